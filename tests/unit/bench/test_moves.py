"""Moves under load: parts of the experiment, and what is claimed."""

from __future__ import annotations

import random

import pytest

from bench.moves import STATEFUL, STATELESS, Where, checks, next_place, parts, summary
from speck.model.values import JsonObject

HERE = Where("moves", {STATELESS: "edge-a", STATEFUL: "cloud"}, 0)


def row(delivery: str, **more: object) -> JsonObject:
    counted = {"moves": 50, "published": 1000, "lost": 0, "repeated": 0, "miscounted": 0}
    gaps = {"gap_stateless_s": [0.4, 0.6], "gap_stateful_s": [0.5, 0.9], "gap_at_rest_s": [0.8]}
    return {"delivery": delivery, "two_copies": 0, **counted, **gaps, **more}


ROWS = [row("exactly_once"), row("at_least_once"), row("exactly_once")]


def test_the_modes_take_turns() -> None:
    assert list(parts(["a", "b"], 2)) == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_a_change_moves_a_job_or_updates_both() -> None:
    dice = random.Random(1)
    for _ in range(50):
        place, changed = next_place(dice, HERE, ["edge-a", "edge-b", "cloud"])
        moved = {name for name in HERE.sites if place.sites[name] != HERE.sites[name]}
        assert changed == (moved or {STATELESS, STATEFUL})
        assert (place.note != HERE.note) == (not moved)


def test_parts_are_added_up() -> None:
    result = summary(ROWS)
    assert result["exactly_once"]["moves"] == 100
    assert result["exactly_once"]["gap_stateless_s"]["of"] == 4
    assert result["exactly_once"]["gap_at_rest_s"]["p50"] == 0.8
    assert all(check.ok for check in checks(result))


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"lost": 1}, "lost, exactly_once"),
        ({"repeated": 1}, "repeated, exactly_once"),
        (
            {"gap_stateless_s": [0.8, 0.8]},
            "silence of a stateless job's move, exactly_once, p95, s",
        ),
    ],
)
def test_what_is_not_as_wanted_is_told(more: JsonObject, name: str) -> None:
    failed = [check for check in checks(summary([row("exactly_once", **more)])) if not check.ok]
    assert [check.name for check in failed] == [name]
