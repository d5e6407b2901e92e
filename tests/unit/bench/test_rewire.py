"""Rewirings are as specified, and faults are attributed to the right change."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import pairwise

import pytest

from bench.common import RESULTS
from bench.page.result import Result
from bench.page.rewire import SECTION
from bench.rewire_counts import Change, EndTally, faults_of, spread, under_way_in
from bench.taps import Stamps
from bench.wirings import (
    BRANCHES,
    IN,
    LINKS,
    MOST_JOBS,
    NAMES,
    OUT,
    OUT2,
    Wiring,
    first_wiring,
    next_wiring,
)
from speck.model.values import JsonObject
from speck.spec.schema import composition_from_data
from speck.spec.topology import Graph


def _wirings(seed: int, count: int = 200) -> list[Wiring]:
    dice = random.Random(seed)
    wirings = [first_wiring(dice)]
    while len(wirings) < count:
        wirings.append(next_wiring(dice, wirings[-1]))
    return wirings


@pytest.mark.parametrize("seed", range(5))
def test_a_wiring_is_a_line_with_a_branch_behind_its_first_job(seed: int) -> None:
    for wiring in _wirings(seed):
        ends = wiring.ends()
        chain = [ends[name] for name in wiring.order]
        assert 1 <= len(chain) <= MOST_JOBS
        assert set(wiring.order) <= set(NAMES) and wiring.branch in BRANCHES
        assert (chain[0][0], chain[-1][1]) == (IN, OUT)
        assert all(one[1] == other[0] for one, other in pairwise(chain))
        assert ends[wiring.branch] == (chain[0][1], OUT2)
        assert len(set(wiring.links)) == len(wiring.links)
        assert set(wiring.links) <= set(LINKS)


def test_a_wiring_is_a_composition_without_a_circle() -> None:
    for wiring in _wirings(seed=7):
        description = composition_from_data(wiring.composition("run", "exactly_once"))
        assert Graph.of_description(description).cycles() == []


def test_every_rewiring_changes_something_that_runs() -> None:
    for one, other in pairwise(_wirings(seed=1)):
        assert one.composition("run", "exactly_once") != other.composition("run", "exactly_once")


def test_all_that_may_change_does_change() -> None:
    wirings = _wirings(seed=2)
    assert {len(wiring.order) for wiring in wirings} == set(range(1, MOST_JOBS + 1))
    assert {wiring.order[0] for wiring in wirings} == set(NAMES)
    assert {wiring.order[-1] for wiring in wirings} == set(NAMES)
    assert {link for wiring in wirings for link in wiring.links} == set(LINKS)
    counts = Counter(
        (one.order == other.order, one.links == other.links) for one, other in pairwise(wirings)
    )
    assert set(counts) == {(same, alike) for same in (False, True) for alike in (False, True)}


def test_the_same_seed_gives_the_same_wirings() -> None:
    assert list(map(str, _wirings(3, 20))) == list(map(str, _wirings(3, 20)))
    assert list(map(str, _wirings(3, 20))) != list(map(str, _wirings(4, 20)))


def test_a_tap_counts_what_has_the_stamp_of_another_message() -> None:
    stamps = Stamps()
    stamps.line("edge-a:run/x 10 speck:p/1/1\n")
    stamps.line("edge-a:run/x 10 other:thing speck:p/1/2\n")
    stamps.mark = 4
    stamps.line("cloud:run/x 10 speck:p/1/2\n")
    stamps.line("edge-a:run/x 10 speck:p/2/2\n")
    stamps.line("edge-a:run/in 10 \n")
    assert (stamps.messages, stamps.resent, stamps.bytes_resent) == (4, 1, 10)
    assert stamps.places == {(4, "cloud:run/x"): 1}


def test_a_tap_takes_numbers_in_any_order_and_keeps_few() -> None:
    stamps = Stamps(room=3)
    for number in (1, 3, 2, 5, 6, 7, 8):
        stamps.see("x", f"p/1/{number}", 1)
    assert (stamps.resent, stamps.missed) == (0, 1)
    stamps.see("x", "p/1/7", 1)
    assert stamps.resent == 1


def test_what_comes_twice_is_noted_with_the_change_in_which_it_came() -> None:
    tally = EndTally()
    tally.hear("p/1/1", b'{"n": 1}', 1.0)
    tally.during = 3
    tally.hear("p/1/1", b'{"n": 1}', 1.1)
    tally.hear("q/1/1", b'{"n": 1}', 1.2)
    tally.hear("q/1/2", b'{"n": 2}', 1.3)
    assert tally.dropped_again == [(1, 3)]
    assert tally.came_again == [(1, 3)]


@pytest.mark.parametrize(("number", "change"), [(99, 0), (100, 1), (499, 1), (500, 2), (900, 3)])
def test_a_record_is_put_down_to_the_change_in_which_it_was_under_way(
    number: int, change: int
) -> None:
    assert under_way_in(number, [100, 500, 900]) == change


def test_a_change_says_what_was_killed() -> None:
    change = Change(2, "in > job1", {"out": 7}, state="done", took_s=1.25, killed="service")
    assert str(change) == "change 2 done in 1.2 s, silent for 0.00 s, killed: service: in > job1"


def _result(**more: object) -> JsonObject:
    zero = dict.fromkeys(("lost", "repeated", "repeated_outside", "bytes_resent", "two_copies"), 0)
    return {**zero, "delivery": "exactly_once", "changes": 5, **more}


@pytest.mark.parametrize(
    ("result", "faults"),
    [
        (_result(), []),
        (_result(bytes_resent=3), ["bytes_resent: 3"]),
        (_result(delivery="at_least_once", repeated=1), ["repeated: 1"]),
        (_result(delivery="at_most_once", lost=1, repeated=1, bytes_resent=1), []),
        (_result(killed={"engine": 1}, bytes_resent=1, repeated_outside=1), []),
        (_result(killed={"engine": 1}, lost=1), ["lost: 1"]),
        (_result(changes=4), ["4 of 5 changes"]),
    ],
    ids=lambda it: json.dumps(it),
)
def test_what_each_mode_promises(result: JsonObject, faults: list[str]) -> None:
    assert faults_of(result, 5) == faults


def test_silences_are_told_by_nearest_rank() -> None:
    assert spread([3.0, 1.0, 2.0]) == {"p50": 2.0, "p95": 3.0, "max": 3.0, "of": 3}
    assert spread([]) == {"p50": None, "p95": None, "max": None, "of": 0}


def test_the_page_tells_readers_that_were_away_and_that_they_are_not_measured() -> None:
    stored = json.loads((RESULTS / "rewire.json").read_text())
    stored.pop("absent_readers", None)
    stored.pop("with_cancels", None)
    without = Result(stored, "rewire.json")
    assert "Not measured yet" in SECTION.figures(without)
    killed = {"engine": 0, "broker": 10, "service": 0}
    away = {**stored["with_kills"], "changes": 10, "lost": 0, "killed": killed}
    more = {"absent_readers": away, "wanted_absent_kills": 10}
    measured = Result({**stored, **more}, "rewire.json")
    assert "10 kills of brokers" in SECTION.figures(measured)
    assert SECTION.claims is not None
    claims = {claim.name: claim.ok for claim in SECTION.claims(measured)}
    assert claims["changes done, exactly_once, brokers killed, readers away"]
    assert claims["lost, exactly_once, brokers killed, readers away"]
    assert not any("away" in claim.name for claim in SECTION.claims(without))


def test_the_page_tells_what_was_cancelled_and_superseded_and_that_it_is_not_measured() -> None:
    stored = json.loads((RESULTS / "rewire.json").read_text())
    stored.pop("with_cancels", None)
    assert "cancelled or superseded at a random" in SECTION.figures(Result(stored, "rewire.json"))
    ends = {"done": 200, "cancelled": 51, "superseded": 49}
    series = {**stored["at_least_once"], "changes": 300, "bytes_resent": None, "ends": ends}
    more = {"with_cancels": series, "wanted_cancelling": 300}
    measured = Result({**stored, **more}, "rewire.json")
    assert "51 changes were cancelled and 49 superseded" in SECTION.figures(measured)
    assert SECTION.claims is not None
    claims = {claim.name: claim.ok for claim in SECTION.claims(measured)}
    assert claims["changes done, at_least_once, cancelled and superseded"]
    assert claims["lost, at_least_once, cancelled and superseded"]
    assert "bytes resent, at_least_once, cancelled and superseded" not in claims
