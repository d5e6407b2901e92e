"""What is remembered of orders to save a state."""

from __future__ import annotations

from speck.runner.triggers import (
    Triggers,
    close_trigger,
    fail_open,
    fail_trigger,
    list_open,
    open_trigger,
)


def test_a_program_that_ends_fails_what_is_awaited_and_nothing_else() -> None:
    known = open_trigger(close_trigger({}, "saved", "file:///s"), "awaited", request=3)
    known = fail_trigger(known, "failed", "no checkpoints")
    assert list_open(known) == ["awaited"]
    ended = fail_open(known, "it is canceled")
    assert list_open(ended) == []
    assert {name: (each["location"], each["failure"]) for name, each in ended.items()} == {
        "saved": ("file:///s", None),
        "awaited": (None, "it is canceled"),
        "failed": (None, "no checkpoints"),
    }


def test_the_newest_are_remembered() -> None:
    known: Triggers = {}
    for number in range(50):
        known = close_trigger(known, str(number), "file:///s")
    assert list(known) == [str(number) for number in range(29, 50)]
    assert list(open_trigger(known, "30"))[-1] == "30", "what is asked anew is the newest"
