"""Whatever analyses say and whatever happens, the autopilot keeps its word."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from speck.placement.autopilot import (
    NO_RETURN_SETTLE_TIMES,
    Advice,
    Facts,
    Memory,
    Settings,
    decide,
)

SETTINGS = Settings(on=True, every_s=100.0, min_gain=0.2, settle_s=250.0, agreeing=2)
PLACES = [{"a": x, "b": y} for x in ("cloud", "edge") for y in ("cloud", "edge")]
WORDS = st.lists(st.sampled_from(["latency", "uplink", "slots"]), max_size=2, unique=True)


@dataclass(frozen=True)
class Step:
    """The advice of one analysis, and the conditions at that time."""

    after_s: float
    to: int
    gain: float | None
    doubts: tuple[str, ...]
    broken: tuple[str, ...]
    violations: tuple[str, ...]
    silent: int
    busy: str | None
    others: bool
    """Somebody else changed the composition, just before."""


STEPS = st.lists(
    st.builds(
        Step,
        after_s=st.sampled_from([50.0, 100.0, 400.0]),
        to=st.sampled_from([0, 0, 1, 1, 2, 3]),
        gain=st.sampled_from([None, -0.5, 0.1, 0.3, 0.3, 0.5]),
        doubts=st.sampled_from([(), (), (), ("contended",)]),
        broken=WORDS.map(tuple),
        violations=st.one_of(st.just(()), WORDS.map(tuple)),
        silent=st.sampled_from([0, 0, 0, 1, 2, 3]),
        busy=st.sampled_from([None, None, None, "a change is under way"]),
        others=st.sampled_from([False, False, False, True]),
    ),
    max_size=30,
)


@dataclass
class Flight:
    """The composition as the autopilot leaves it, step by step."""

    now: float = 0.0
    at: int = 0
    memory: Memory = field(default_factory=Memory)
    changed_at: float | None = None

    def take(self, number: int, step: Step) -> tuple[Facts, bool]:
        self.now += step.after_s
        if step.others:
            self.changed_at = self.now
        advice = Advice(
            f"a{number}",
            f"p{number}",
            PLACES[self.at],
            PLACES[step.to],
            step.gain,
            step.broken,
            step.violations,
            step.doubts,
        )
        facts = Facts(advice, 6, step.silent, step.busy, self.changed_at)
        decision = decide(self.now, SETTINGS, self.memory, facts)
        self.memory = decision.memory
        if decision.act:
            self.at, self.changed_at = step.to, self.now
        assert decision.reason
        return facts, decision.act


@given(STEPS)
def test_it_keeps_its_word(steps: list[Step]) -> None:
    flight, advice, acted, former = Flight(), [], None, []
    for number, step in enumerate(steps):
        before, quiet_since = flight.at, flight.changed_at
        facts, act = flight.take(number, step)
        if step.others:
            quiet_since = flight.now
        advice.append(None if step.doubts else step.to)
        if not act:
            continue
        assert step.to != before
        assert facts.silent * 3 < facts.sites and facts.busy is None and not step.doubts
        assert acted is None or flight.now - acted >= SETTINGS.settle_s
        assert quiet_since is None or flight.now - quiet_since >= SETTINGS.settle_s
        assert advice[-SETTINGS.agreeing :] == [step.to] * SETTINGS.agreeing
        saves = step.gain is not None and step.gain >= SETTINGS.min_gain
        assert saves or len(step.violations) < len(step.broken)
        assert len(step.violations) < len(step.broken) or not step.violations
        back = [at for at, place in former if place == step.to]
        if back and flight.now - back[-1] < NO_RETURN_SETTLE_TIMES * SETTINGS.settle_s:
            assert step.gain is not None and step.gain >= 2 * SETTINGS.min_gain
        former.append((flight.now, before))
        acted = flight.now


@given(STEPS)
def test_asking_twice_about_one_analysis_never_acts_twice(steps: list[Step]) -> None:
    flight = Flight()
    for number, step in enumerate(steps):
        facts, act = flight.take(number, step)
        if act:
            moved = replace(facts, changed_at=flight.now)
            assert not decide(flight.now, SETTINGS, flight.memory, moved).act
            return
        again = decide(flight.now, SETTINGS, flight.memory, facts)
        assert not again.act
        assert again.memory == flight.memory


@given(STEPS)
def test_it_does_act_when_all_is_quiet(before: list[Step]) -> None:
    """No history keeps it from good advice for ever: that would be no autopilot."""
    flight = Flight()
    for number, step in enumerate(before):
        flight.take(number, step)
    good = Step(1000.0, (flight.at + 1) % 4, 0.3, (), (), (), 0, None, False)
    acts = [flight.take(len(before) + n, good)[1] for n in range(SETTINGS.agreeing)]
    assert any(acts)
