"""When the autopilot acts, by example."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.placement.autopilot import Advice, Facts, FormerPlacement, Memory, Settings, decide

TODAY = {"clean": "cloud"}
THERE = {"clean": "edge-a"}
ADVICE = Advice("a2", "p2", TODAY, THERE, gain=0.5)
SETTINGS = Settings(on=True)
ONCE = Memory(seen="a1", advised=THERE, same=1)
QUIET = Facts(ADVICE, sites=3)


def test_it_acts_on_what_two_analyses_say() -> None:
    decision = decide(1000.0, SETTINGS, ONCE, QUIET)
    assert decision.act
    assert decision.reason == "it saves 50% of the bytes between sites"
    assert decision.memory.acted_at == 1000.0
    assert decision.memory.left == (FormerPlacement(1000.0, TODAY),)


@pytest.mark.parametrize(
    ("why", "memory", "facts"),
    [
        ("1 of 2 consecutive analyses agree", Memory(), QUIET),
        ("1 of 2 consecutive analyses", replace(ONCE, advised={"clean": "edge-b"}), QUIET),
        ("1 of 2 consecutive analyses", replace(ONCE, seen="a2"), QUIET),
        (
            "everything is already where the policy wants it",
            ONCE,
            replace(QUIET, advice=replace(ADVICE, sites=TODAY)),
        ),
        ("it would save 19% of", ONCE, replace(QUIET, advice=replace(ADVICE, gain=0.19))),
        ("it would save nothing", ONCE, replace(QUIET, advice=replace(ADVICE, gain=None))),
        (
            "the evidence is too weak: clean: busy for 0.2 s only",
            ONCE,
            replace(QUIET, advice=replace(ADVICE, doubts=("clean: busy for 0.2 s only",))),
        ),
        (
            "the proposed placement violates a limit: uplink",
            ONCE,
            replace(QUIET, advice=replace(ADVICE, violations=("uplink",))),
        ),
        ("1 of 3 sites do not answer", ONCE, replace(QUIET, silent=1)),
        ("change c1 is under way", ONCE, replace(QUIET, busy="change c1 is under way")),
        ("must settle for another 1 s", ONCE, replace(QUIET, changed_at=401.0)),
        ("must settle for another 599 s", replace(ONCE, acted_at=999.0), QUIET),
        ("must settle for another 700 s", replace(ONCE, acted_at=1100.0), QUIET),  # the clock fell
        (
            "left that placement recently; a gain of 40% is required to return",
            replace(ONCE, left=(FormerPlacement(300.0, THERE),)),
            replace(QUIET, advice=replace(ADVICE, gain=0.39)),
        ),
    ],
)
def test_it_waits_and_says_why(why: str, memory: Memory, facts: Facts) -> None:
    decision = decide(1000.0, SETTINGS, memory, facts)
    assert not decision.act
    assert why in decision.reason


def test_a_requirement_that_is_mended_is_worth_a_change_that_saves_nothing() -> None:
    advice = replace(ADVICE, gain=-0.5, broken=("latency", "uplink"), violations=("uplink",))
    decision = decide(1000.0, SETTINGS, ONCE, replace(QUIET, advice=advice))
    assert decision.act
    assert "it fixes limits that are violated today: latency; uplink" in decision.reason


def test_it_goes_back_for_twice_the_gain_or_after_three_settle_times() -> None:
    memory = replace(ONCE, left=(FormerPlacement(300.0, THERE),))
    twice = replace(QUIET, advice=replace(ADVICE, gain=0.4))
    assert decide(1000.0, SETTINGS, memory, twice).act
    once = replace(QUIET, advice=replace(ADVICE, gain=0.3))
    assert not decide(2099.0, SETTINGS, memory, once).act
    assert decide(2100.0, SETTINGS, memory, once).act


def test_the_same_analysis_counts_once_and_a_doubtful_one_begins_anew() -> None:
    first = decide(1000.0, SETTINGS, ONCE, replace(QUIET, busy="change c1 is under way")).memory
    assert first.same == 2
    assert decide(1001.0, SETTINGS, first, replace(QUIET, busy="still")).memory.same == 2
    weak = replace(QUIET, advice=replace(ADVICE, analysis="a3", doubts=("contended",)))
    assert decide(1300.0, SETTINGS, first, weak).memory.same == 0


def test_it_scales_up_at_once_but_does_not_go_back_down_at_once() -> None:
    memory = replace(ONCE, left=(FormerPlacement(300.0, THERE),))
    up = replace(ADVICE, gain=0.0, scaled_up=("clean gets 2 subtasks, not 1: why",))
    decision = decide(1000.0, SETTINGS, memory, replace(QUIET, advice=up))
    assert (decision.act, decision.reason) == (True, "clean gets 2 subtasks, not 1: why")
    down = replace(ADVICE, gain=0.0, scaled_down=("clean gets 1 subtask, not 2: why",))
    assert not decide(1000.0, SETTINGS, memory, replace(QUIET, advice=down)).act
    assert decide(1000.0, SETTINGS, ONCE, replace(QUIET, advice=down)).act
