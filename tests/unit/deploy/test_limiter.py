"""Permits at sites, shared by all changes."""

from __future__ import annotations

from speck.deploy.limiter import Limiter


class Change:
    """A caller that wants permits; counts how often it was notified."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


def take_all(permits: Limiter, who: Change, site: str = "a") -> int:
    """How many permits `who` gets before one is refused."""
    count = 0
    while permits.acquire(site, who):
        count += 1
    return count


def test_the_bound_of_a_site_holds_over_all() -> None:
    permits, first, second = Limiter(4), Change(), Change()
    assert take_all(permits, first) == 4
    assert take_all(permits, second) == 0
    assert take_all(permits, second, "b") == 4


def test_who_was_refused_is_told_when_a_turn_is_free() -> None:
    permits, first, second = Limiter(1), Change(), Change()
    assert permits.acquire("a", first)
    assert not permits.acquire("a", second)
    permits.release("a", first)
    assert second.woken == 1
    assert permits.acquire("a", second)


def test_turns_are_shared_evenly_by_those_who_want_them() -> None:
    permits, first, second = Limiter(4), Change(), Change()
    assert take_all(permits, first) == 4
    assert not permits.acquire("a", second)
    for _ in range(2):
        permits.release("a", first)
        assert not permits.acquire("a", first), "the other's share is free"
        assert take_all(permits, second) == 1
    permits.release("a", first)
    assert permits.acquire("a", first)
    assert not permits.acquire("a", second)


def test_who_leaves_is_waited_for_no_longer() -> None:
    permits, first, second = Limiter(4), Change(), Change()
    assert take_all(permits, first) == 4
    assert not permits.acquire("a", second)
    permits.leave(second)
    permits.release("a", first)
    assert second.woken == 0
    assert permits.acquire("a", first)


def test_who_leaves_gives_back_what_it_holds() -> None:
    permits, first, second = Limiter(4), Change(), Change()
    assert take_all(permits, first) == 4
    assert not permits.acquire("a", second)
    permits.leave(first)
    assert second.woken == 1
    assert take_all(permits, second) == 4


def test_more_claims_than_turns_still_get_on() -> None:
    permits = Limiter(2)
    changes = [Change() for _ in range(5)]
    held = [change for change in changes if permits.acquire("a", change)]
    assert len(held) == 2
    permits.release("a", held[0])
    assert any(permits.acquire("a", change) for change in changes)
