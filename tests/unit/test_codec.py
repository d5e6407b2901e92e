"""What is stored is read back as it was."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from speck.model.incarnation import Carried, Incarnation, Left, Session
from speck.model.job import Compression, Delivery, DesiredState, Job, Sending, Upgrade
from speck.model.link import Link
from speck.model.observation import TakenEpoch
from speck.model.site import Broker, Engine, Site, Tier
from speck.model.values import JsonObject
from speck.store.codec import (
    incarnation_from_json,
    incarnation_to_json,
    job_from_json,
    job_to_json,
    session_from_json,
    session_to_json,
    site_from_json,
    site_to_json,
)

LINK = Link("tcp://a:1883", "T-1")
PLAIN = Job("A", "a", "http://a:8081", LINK, Link("tcp://b:1883", "T"), "a", "b", "x.A", "f" * 64)
FULL = replace(
    PLAIN,
    args=("--x", "ü"),
    parallelism=3,
    state=DesiredState.STOPPED,
    delivery=Delivery.EXACTLY_ONCE,
    upgrade=Upgrade.STATELESS,
    pinned=True,
    link=Sending(100, 5, Compression.ZSTD),
)


def stored(data: JsonObject) -> JsonObject:
    """As the store gives it back."""
    found: JsonObject = json.loads(json.dumps(data))
    return found


@pytest.mark.parametrize("job", [PLAIN, FULL])
def test_a_job_is_read_back(job: Job) -> None:
    assert job_from_json(stored(job_to_json(job))) == job


def test_what_a_job_leaves_at_its_default_takes_no_room() -> None:
    assert set(job_to_json(PLAIN)).isdisjoint({"args", "parallelism", "state", "pinned", "link"})
    assert {"args", "parallelism", "state", "pinned", "link"} <= set(job_to_json(FULL))


def test_an_incarnation_is_read_back_with_what_it_continues() -> None:
    base = Incarnation(PLAIN, 1, "1" * 32, confirmed=True, ended=True, savepoint="file:/s")
    deployed = Incarnation(
        FULL,
        2,
        "2" * 32,
        base=base,
        accepted=True,
        void=True,
        stopping=True,
        former_sinks=("x-out", "y-out"),
        restored="file:/there/s",
        carried=Carried("file:/s", "b", "file:/there/s"),
        left=(Left("a", "file:/s", 1), Left("b", "file:/there/s", 2)),
    )
    assert incarnation_from_json(stored(incarnation_to_json(deployed))) == deployed


def test_what_holds_its_default_is_left_out_and_read_back() -> None:
    deployed = Incarnation(PLAIN, 1, "1" * 32, confirmed=True)
    old = stored(incarnation_to_json(deployed))
    assert "former_sinks" not in old
    assert incarnation_from_json(old) == deployed


@pytest.mark.parametrize("job_name", ["A", None])
def test_a_session_is_read_back(job_name: str | None) -> None:
    session = Session("reader", LINK, "a", job_name, reserved=False, owed=(("p", 1 << 32, 7),))
    assert session_from_json(stored(session_to_json(session))) == session


@pytest.mark.parametrize("more", [{"follows": "old"}, {"followed_by": "new"}])
def test_a_session_that_follows_or_is_followed_is_read_back(more: dict[str, str]) -> None:
    skip = (TakenEpoch("p", 1 << 32, 7, ((9, 9), (12, 15))), TakenEpoch("q", 1, 0))
    session = replace(Session("reader", LINK, "a", "A", skip=skip), **more)  # type: ignore[arg-type]
    assert session_from_json(stored(session_to_json(session))) == session


def test_a_session_that_never_changed_hands_takes_no_more_room() -> None:
    data = stored(session_to_json(Session("reader", LINK, "a", "A")))
    assert data.keys().isdisjoint({"follows", "followed_by", "skip"})
    assert session_from_json(data) == Session("reader", LINK, "a", "A")


def test_a_site_is_read_back() -> None:
    site = Site(
        "a",
        Tier.EDGE,
        Engine("flink", "http://a:8081"),
        Broker("mqtt", "tcp://a:1883", "a"),
        10.5,
        {"state_uri": "file:/s"},
    )
    assert site_from_json(stored(site_to_json(site))) == site
