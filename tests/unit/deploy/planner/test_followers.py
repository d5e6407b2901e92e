"""Who follows whom where an earlier change has handed a link over to one of several readers."""

from __future__ import annotations

from typing import Any

import pytest

from speck.deploy.planner.handovers import find_followers, list_others
from speck.model.incarnation import Inventory
from tests.unit.deploy.planner.plans import deployed
from tests.unit.deploy.planner.readers import (
    FEED,
    NEW,
    OLD,
    OTHER,
    TAKEN,
    client_id,
    end_jobs,
    reader,
    session,
    with_sessions,
)
from tests.unit.deploy.planner.test_stages import situation_of

MIDDLE = reader("middle")


def hand_over_to_one(old: Any, new: Any, other: Any) -> Inventory:
    """Two were to follow the old reader, and the change ended when one had been given its link."""
    return with_sessions(
        end_jobs(deployed(FEED, OLD), "old"),
        session(OLD, begun=True, job=OLD, **{"followed_by": client_id(NEW), **old}),
        session(NEW, skip=TAKEN, job=NEW, **{"former": client_id(OLD), **new}),
        session(OTHER, follows=client_id(OLD), beside=True, job=OTHER, **{"whole": True, **other}),
    )


def test_the_other_one_still_follows_the_old_reader() -> None:
    followers = find_followers(situation_of(hand_over_to_one({}, {}, {}), FEED, NEW, OTHER))
    assert {c: s.client_id for c, s in followers.predecessors.items()} == {
        client_id(OTHER): client_id(OLD)
    }
    assert followers.beside == {client_id(OTHER)}
    assert not followers.renewed


@pytest.mark.parametrize(
    ("old", "new", "other"),
    [
        ({}, {"begun": True}, {}),
        ({}, {}, {"whole": False}),
        ({"reserved": False}, {}, {}),
    ],
    ids=["the first has begun", "it lacks some", "the session of the old one has ended"],
)
def test_it_begins_anew_if_its_session_is_not_what_the_old_reader_left(
    old: dict[str, Any], new: dict[str, Any], other: dict[str, Any]
) -> None:
    followers = find_followers(situation_of(hand_over_to_one(old, new, other), FEED, NEW, OTHER))
    assert not followers.predecessors
    assert followers.renewed == {client_id(OTHER)}


def test_it_begins_anew_if_the_link_has_gone_through_further_hands() -> None:
    handed = {"followed_by": client_id(MIDDLE)}, {"former": client_id(MIDDLE)}, {}
    middle = session(MIDDLE, former=client_id(OLD), followed_by=client_id(NEW), job=MIDDLE)
    inventory = with_sessions(hand_over_to_one(*handed), middle)
    followers = find_followers(situation_of(inventory, FEED, NEW, OTHER))
    assert followers.renewed == {client_id(OTHER)}


def put_beside(old: Any, new: Any, other: Any) -> Inventory:
    """Two have taken the place of the old reader, which comes back."""
    return with_sessions(
        end_jobs(deployed(FEED, OLD, NEW, OTHER), "old"),
        session(OLD, **{"followed_by": client_id(NEW), **old}),
        session(NEW, begun=True, job=NEW, **{"former": client_id(OLD), **new}),
        session(OTHER, begun=True, beside=True, job=OTHER, **{"former": client_id(OLD), **other}),
    )


def find_others(inventory: Inventory, *wanted: Any) -> tuple[str, ...]:
    (former,) = (s for s in inventory.sessions if s.client_id == client_id(NEW))
    return list_others(situation_of(inventory, FEED, OLD, *wanted), session(OLD), former)


def test_the_old_reader_comes_back_for_both() -> None:
    assert find_others(put_beside({}, {}, {})) == (client_id(OTHER),)


@pytest.mark.parametrize(
    ("old", "new", "other"),
    [
        ({"followed_by": None}, {}, {}),
        ({}, {"former": client_id(MIDDLE)}, {"former": client_id(MIDDLE)}),
        ({}, {}, {"followed_by": client_id(MIDDLE)}),
        ({}, {}, {"former": client_id(MIDDLE)}),
    ],
    ids=[
        "it has a session of its own since",
        "they have taken the place of another one",
        "the other one's place was taken",
        "the other one has taken that of another",
    ],
)
def test_it_comes_back_for_one_only(
    old: dict[str, Any], new: dict[str, Any], other: dict[str, Any]
) -> None:
    assert find_others(put_beside(old, new, other)) == ()


def test_it_does_not_come_back_for_one_that_stays() -> None:
    assert find_others(put_beside({}, {}, {}), OTHER) == ()


def test_a_reader_without_a_session_comes_back_for_nobody() -> None:
    inventory = put_beside({}, {}, {})
    (former,) = (s for s in inventory.sessions if s.client_id == client_id(NEW))
    kept = tuple(s for s in inventory.sessions if s.client_id != client_id(OLD))
    gone = Inventory(inventory.jobs, kept, inventory.attempts)
    assert list_others(situation_of(gone, FEED, OLD), session(OLD), former) == ()
