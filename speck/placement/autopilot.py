"""When a placement is carried out though nobody asked. Pure: time and facts are given.

Reluctant on purpose. A move costs a stop, and advice is only as good as what was measured; so it
acts on what several analyses say alike, when it is worth it, and when all is quiet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

LEFT_FOR = 3
"""A placement that was left is not gone back to for so many settle times."""
SILENT = 3
"""Nothing is done while one in so many sites does not answer."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What its user chose.

    `every_s`: seconds between two analyses; `min_gain`: share (0 to 1) of the bytes between
    sites that must be saved; `settle_s`: how long nothing is done after any change; `looks`: so
    many analyses in a row must say the same.
    """

    on: bool = False
    every_s: float = 300.0
    min_gain: float = 0.2
    policy: str = "milp"
    settle_s: float = 600.0
    looks: int = 2


@dataclass(frozen=True, slots=True)
class Advice:
    """What the policy says to one analysis.

    `today` and `sites`: of each job and link; `gain`: share of the bytes between sites that is
    saved, None when nothing crosses today; `broken`: limits that are not kept today,
    `violations`: those that would not be kept then; `doubts`: why its figures are not to be
    trusted.
    """

    analysis: str
    placement: str
    today: Mapping[str, str]
    sites: Mapping[str, str]
    gain: float | None = None
    broken: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """How things are now: registered sites and those that are `silent`; `busy`: what change is
    in the way, in words; `changed_at`: when (epoch seconds) the last change of the composition,
    whoever made it, came to its end."""

    advice: Advice
    sites: int
    silent: int = 0
    busy: str | None = None
    changed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """A placement that the autopilot left, and when (epoch seconds)."""

    at: float
    sites: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Memory:
    """What is kept from one decision to the next: the analysis that was `seen` last, what was
    `advised` by it and how many in a row said the `same`; when it acted, and what it left."""

    seen: str | None = None
    advised: Mapping[str, str] = field(default_factory=dict)
    same: int = 0
    acted_at: float | None = None
    left: tuple[Left, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, why, and what to remember. `act`: carry the advice out, now."""

    act: bool
    reason: str
    memory: Memory


def decide(now: float, settings: Settings, memory: Memory, facts: Facts) -> Decision:
    """Whether to carry the advice out at `now` (epoch seconds)."""
    advice = facts.advice
    memory = _noted(now, settings, memory, advice)
    against = (
        _pointless(settings, advice)
        or _in_the_way(facts)
        or _unsettled(now, settings, memory, facts)
        or _hasty(settings, memory)
        or _back_and_forth(settings, memory, advice)
    )
    if against is not None:
        return Decision(False, against, memory)
    left = (*memory.left, Left(now, dict(advice.today)))
    acted = replace(memory, acted_at=now, left=left, advised={}, same=0)
    return Decision(True, _worth(settings, advice) or "", acted)


def _noted(now: float, settings: Settings, memory: Memory, advice: Advice) -> Memory:
    """The memory with this analysis in it, and without what is long past."""
    kept = tuple(each for each in memory.left if now - each.at < LEFT_FOR * settings.settle_s)
    memory = replace(memory, left=kept)
    if memory.seen == advice.analysis:
        return memory
    if advice.doubts:  # such an analysis says nothing
        return replace(memory, seen=advice.analysis, advised={}, same=0)
    again = memory.same + 1 if memory.advised == advice.sites else 1
    return replace(memory, seen=advice.analysis, advised=dict(advice.sites), same=again)


def _worth(settings: Settings, advice: Advice) -> str | None:
    """Why the advice is worth a change; None when it is not."""
    if len(advice.violations) < len(advice.broken):
        return f"it mends what is not kept today: {'; '.join(advice.broken)}"
    if advice.gain is not None and advice.gain >= settings.min_gain:
        return f"it saves {advice.gain:.0%} of the bytes between sites"
    return None


def _pointless(settings: Settings, advice: Advice) -> str | None:
    if advice.doubts:
        return f"the evidence is too weak: {'; '.join(advice.doubts)}"
    if advice.sites == advice.today:
        return "everything is where it should be"
    if len(advice.violations) > len(advice.broken) or (
        advice.violations and len(advice.violations) == len(advice.broken)
    ):
        return f"the advice would not keep to a limit: {'; '.join(advice.violations)}"
    if _worth(settings, advice) is None:
        gain = "nothing" if advice.gain is None else f"{advice.gain:.0%}"
        return f"it would save {gain} of the bytes between sites: {settings.min_gain:.0%} is asked"
    return None


def _in_the_way(facts: Facts) -> str | None:
    if facts.silent and facts.silent * SILENT >= facts.sites:
        return f"{facts.silent} of {facts.sites} sites do not answer"
    return facts.busy


def _unsettled(now: float, settings: Settings, memory: Memory, facts: Facts) -> str | None:
    changes = [at for at in (memory.acted_at, facts.changed_at) if at is not None]
    left = max((settings.settle_s - (now - at) for at in changes), default=0.0)
    return f"the last change settles for another {left:.0f} s" if left > 0 else None


def _hasty(settings: Settings, memory: Memory) -> str | None:
    if memory.same >= settings.looks:
        return None
    return f"{memory.same} of {settings.looks} analyses in a row say the same"


def _back_and_forth(settings: Settings, memory: Memory, advice: Advice) -> str | None:
    if advice.gain is not None and advice.gain >= 2 * settings.min_gain:
        return None
    if any(each.sites == advice.sites for each in memory.left):
        return f"that placement was left a short while ago: {2 * settings.min_gain:.0%} is asked"
    return None
