"""Stored records are read back unchanged."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from speck.model.analysis_result import Window
from speck.model.incarnation import (
    EndState,
    FormerSink,
    Incarnation,
    Session,
    StaleSink,
    StartState,
    StateCopy,
    UsedState,
)
from speck.model.job import Batching, Compression, Delivery, DesiredState, Job, Upgrade
from speck.model.link import Link
from speck.model.observation import TakenEpoch
from speck.model.site import Broker, Engine, Site, Tier
from speck.model.values import JsonObject
from speck.store.codec import RecordError, from_json, from_shown, to_json
from tests.sample_job import LINK, make_job

PLAIN = make_job("A", LINK, Link("b", "T"))
FULL = replace(
    PLAIN,
    args=("--x", "ü"),
    parallelism=3,
    state=DesiredState.STOPPED,
    delivery=Delivery.EXACTLY_ONCE,
    upgrade=Upgrade.STATELESS,
    pinned=True,
    link=Batching(100, 5, Compression.ZSTD),
)


def stored(data: JsonObject) -> JsonObject:
    """As the store gives it back."""
    value: JsonObject = json.loads(json.dumps(data))
    return value


@pytest.mark.parametrize("job", [PLAIN, FULL])
def test_a_job_is_read_back(job: Job) -> None:
    assert from_json(stored(to_json(job)), Job) == job


def test_what_a_job_leaves_at_its_default_takes_no_room() -> None:
    assert set(to_json(PLAIN)).isdisjoint({"args", "parallelism", "state", "pinned", "link"})
    assert {"args", "parallelism", "state", "pinned", "link"} <= set(to_json(FULL))


def test_an_incarnation_is_read_back_with_what_it_continues() -> None:
    base = Incarnation(
        PLAIN, 1, "1" * 32, start=StartState.CONFIRMED, end=EndState.ENDED, savepoint="file:/s"
    )
    deployed = Incarnation(
        FULL,
        2,
        "2" * 32,
        base=base,
        start=StartState.ACCEPTED,
        end=EndState.STOPPING,
        former_sinks=(FormerSink(LINK, "x-out"), FormerSink(LINK, "y-out")),
        restored="file:/there/s",
        carried=StateCopy("file:/s", "b", "file:/there/s"),
        left=(UsedState("a", "file:/s", 1), UsedState("b", "file:/there/s", 2)),
        stale=(StaleSink("a", LINK, "x-out"),),
    )
    assert from_json(stored(to_json(deployed)), Incarnation) == deployed


def test_what_holds_its_default_is_left_out_and_read_back() -> None:
    deployed = Incarnation(PLAIN, 1, "1" * 32, StartState.CONFIRMED)
    old = stored(to_json(deployed))
    assert "former_sinks" not in old
    assert from_json(old, Incarnation) == deployed


@pytest.mark.parametrize("job_name", ["A", None])
def test_a_session_is_read_back(job_name: str | None) -> None:
    session = Session("reader", LINK, "a", job_name, reserved=False, owed=(("p", 1 << 32, 7),))
    assert from_json(stored(to_json(session)), Session) == session


@pytest.mark.parametrize("more", [{"follows": "old"}, {"followed_by": "new"}])
def test_a_session_that_follows_or_is_followed_is_read_back(more: dict[str, str]) -> None:
    skip = (TakenEpoch("p", 1 << 32, 7, ((9, 9), (12, 15))), TakenEpoch("q", 1, 0))
    session = replace(Session("reader", LINK, "a", "A", skip=skip), **more)  # type: ignore[arg-type]
    assert from_json(stored(to_json(session)), Session) == session


def test_a_session_that_never_changed_hands_takes_no_more_room() -> None:
    data = stored(to_json(Session("reader", LINK, "a", "A")))
    assert data.keys().isdisjoint({"follows", "followed_by", "skip"})
    assert from_json(data, Session) == Session("reader", LINK, "a", "A")


def test_a_site_is_read_back() -> None:
    site = Site(
        "a",
        Tier.EDGE,
        Engine("flink", "http://a:8081"),
        Broker("mqtt", "tcp://a:1883", "a"),
        10.5,
        {"state_uri": "file:/s"},
    )
    assert from_json(stored(to_json(site)), Site) == site


def test_what_users_see_is_read_by_their_names() -> None:
    data = {"from": "2026-01-31T12:00:00Z", "to": None, "seconds": 1.0}
    assert from_shown(data, Window) == Window("2026-01-31T12:00:00Z", None, 1.0)
    with pytest.raises(RecordError, match="from: is missing"):
        from_shown({"since": None, "until": None, "seconds": 1.0}, Window)
    with pytest.raises(RecordError, match="to: must be a string, is 5"):
        from_shown({**data, "to": 5}, Window)


def test_an_item_at_fault_is_named_with_its_place() -> None:
    data = stored(to_json(FULL))
    with pytest.raises(RecordError, match=r"args\[1\]: must be a string, is 5"):
        from_json({**data, "args": ["--x", 5]}, Job)
