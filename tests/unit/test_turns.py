"""Turns at sites, shared by all changes."""

from __future__ import annotations

from speck.turns import Turns


class Change:
    """Somebody who wants turns; counts how often it was told to look again."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


def take_all(turns: Turns, who: Change, site: str = "a") -> int:
    """How many turns `who` gets before it is refused one."""
    taken = 0
    while turns.take(site, who):
        taken += 1
    return taken


def test_the_bound_of_a_site_holds_over_all() -> None:
    turns, first, second = Turns(4), Change(), Change()
    assert take_all(turns, first) == 4
    assert take_all(turns, second) == 0
    assert take_all(turns, second, "b") == 4


def test_who_was_refused_is_told_when_a_turn_is_free() -> None:
    turns, first, second = Turns(1), Change(), Change()
    assert turns.take("a", first)
    assert not turns.take("a", second)
    turns.give_back("a", first)
    assert second.woken == 1
    assert turns.take("a", second)


def test_turns_are_shared_evenly_by_those_who_want_them() -> None:
    turns, first, second = Turns(4), Change(), Change()
    assert take_all(turns, first) == 4
    assert not turns.take("a", second)
    for _ in range(2):
        turns.give_back("a", first)
        assert not turns.take("a", first), "the other's share is free"
        assert take_all(turns, second) == 1
    turns.give_back("a", first)
    assert turns.take("a", first)
    assert not turns.take("a", second)


def test_who_leaves_is_waited_for_no_longer() -> None:
    turns, first, second = Turns(4), Change(), Change()
    assert take_all(turns, first) == 4
    assert not turns.take("a", second)
    turns.leave(second)
    turns.give_back("a", first)
    assert second.woken == 0
    assert turns.take("a", first)


def test_who_leaves_gives_back_what_it_holds() -> None:
    turns, first, second = Turns(4), Change(), Change()
    assert take_all(turns, first) == 4
    assert not turns.take("a", second)
    turns.leave(first)
    assert second.woken == 1
    assert take_all(turns, second) == 4


def test_more_claims_than_turns_still_get_on() -> None:
    turns = Turns(2)
    changes = [Change() for _ in range(5)]
    held = [change for change in changes if turns.take("a", change)]
    assert len(held) == 2
    turns.give_back("a", held[0])
    assert any(turns.take("a", change) for change in changes)
