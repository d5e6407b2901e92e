"""Decides whether the autopilot applies a placement. Pure: time and facts are parameters.

It is reluctant on purpose. A move stops a job for a while, and advice is only as good as the
measurements behind it. So it acts only when several analyses agree, the gain is large enough, and
nothing else is changing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from speck.model.shown import Shown
from speck.placement.names import DEFAULT_POLICY

NO_RETURN_SETTLE_TIMES = 3
"""For this many settle times the autopilot does not return to a placement that it left."""
SILENT_ONE_IN = 3
"""The autopilot waits while at least one site in this many does not answer."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The user's settings, stored as they are.

    `every_s`: seconds between two analyses; `min_gain`: share (0 to 1) of the bytes between
    sites that a move must save; `settle_s`: seconds to wait after any change; `agreeing`: number of
    consecutive analyses that must give the same advice; `scale`: whether it also changes the
    parallelism of jobs; `ahead_s`: it plans for the rates that are forecast for so many seconds,
    and for those of today with 0.
    """

    on: bool = False
    every_s: float = 300.0
    min_gain: float = 0.2
    policy: str = DEFAULT_POLICY
    settle_s: float = 600.0
    agreeing: int = 2
    scale: Annotated[bool, Shown("whether it also changes the parallelism of jobs")] = False
    ahead_s: Annotated[
        float, Shown("seconds that it forecasts; 0: it plans for the rates of today")
    ] = 0.0


@dataclass(frozen=True, slots=True)
class Advice:
    """What the policy proposes for one analysis.

    `today` and `sites`: the current and the proposed site of each job and link (and, of a job that
    is scaled, its parallelism); `gain`: share of the bytes between sites that would be saved, None
    when nothing crosses today; `broken`: limits violated today; `violations`: limits that the
    proposal would violate; `doubts`: why its figures are unreliable; `scaled_up` and
    `scaled_down`: a sentence on each job that gets more or fewer subtasks.
    """

    analysis: str
    placement: str
    today: Mapping[str, str]
    sites: Mapping[str, str]
    gain: float | None = None
    broken: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    scaled_up: tuple[str, ...] = ()
    scaled_down: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of the installation: number of registered `sites`, of which `silent` do not answer.

    `busy`: a sentence naming the change that is in the way; `changed_at`: when (epoch seconds) the
    last change of the composition ended, whoever made it.
    """

    advice: Advice
    sites: int
    silent: int = 0
    busy: str | None = None
    changed_at: float | None = None


@dataclass(frozen=True, slots=True)
class FormerPlacement:
    """A placement that the autopilot moved away from, and when (epoch seconds)."""

    at: float
    sites: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Memory:
    """What is stored between decisions; the field names are those of the stored JSON.

    `seen`: id of the last analysis; `advised`: the sites it proposed; `same`: how many consecutive
    analyses proposed them; `acted_at`: when the autopilot last acted; `left`: former placements.
    """

    seen: str | None = None
    advised: Mapping[str, str] = field(default_factory=dict)
    same: int = 0
    acted_at: float | None = None
    left: tuple[FormerPlacement, ...] = ()


@dataclass(frozen=True, slots=True)
class AutopilotDecision:
    """Whether to apply the advice now (`act`), the reason, and the new memory."""

    act: bool
    reason: str
    memory: Memory


def decide(now: float, settings: Settings, memory: Memory, facts: Facts) -> AutopilotDecision:
    """Decide whether to apply the advice at `now` (epoch seconds)."""
    advice = facts.advice
    memory = _remember(now, settings, memory, advice)
    objection = (
        _object_to_advice(settings, advice)
        or _object_to_state(facts)
        or _object_to_recent_change(now, settings, memory, facts)
        or _object_to_haste(settings, memory)
        or _object_to_return(settings, memory, advice)
    )
    if objection is not None:
        return AutopilotDecision(False, objection, memory)
    former_placements = (*memory.left, FormerPlacement(now, dict(advice.today)))
    new_memory = replace(memory, acted_at=now, left=former_placements, advised={}, same=0)
    return AutopilotDecision(True, _explain_worth(settings, advice) or "", new_memory)


def _remember(now: float, settings: Settings, memory: Memory, advice: Advice) -> Memory:
    """Add this analysis to the memory and drop former placements that no longer matter."""
    former_placements = tuple(
        each for each in memory.left if now - each.at < NO_RETURN_SETTLE_TIMES * settings.settle_s
    )
    memory = replace(memory, left=former_placements)
    if memory.seen == advice.analysis:
        return memory
    if advice.doubts:  # the analysis is no evidence
        return replace(memory, seen=advice.analysis, advised={}, same=0)
    times = memory.same + 1 if memory.advised == advice.sites else 1
    return replace(memory, seen=advice.analysis, advised=dict(advice.sites), same=times)


def _explain_worth(settings: Settings, advice: Advice) -> str | None:
    """Why the advice is worth a change; None if it is not."""
    if len(advice.violations) < len(advice.broken):
        when = f"within {settings.ahead_s:g} s" if settings.ahead_s else "today"
        return f"it fixes limits that are violated {when}: {'; '.join(advice.broken)}"
    if advice.scaled_up:
        return "; ".join(advice.scaled_up)
    if advice.gain is not None and advice.gain >= settings.min_gain:
        return f"it saves {advice.gain:.0%} of the bytes between sites"
    return "; ".join(advice.scaled_down) or None


def _object_to_advice(settings: Settings, advice: Advice) -> str | None:
    # this and the next functions: the reason not to act, None without one
    if advice.doubts:
        return f"the evidence is too weak: {'; '.join(advice.doubts)}"
    if advice.sites == advice.today:
        return "everything is already where the policy wants it"
    if advice.violations and len(advice.violations) >= len(advice.broken):
        return f"the proposed placement violates a limit: {'; '.join(advice.violations)}"
    if _explain_worth(settings, advice) is None:
        gain = "nothing" if advice.gain is None else f"{advice.gain:.0%}"
        least = f"at least {settings.min_gain:.0%} is required"
        return f"it would save {gain} of the bytes between sites; {least}"
    return None


def _object_to_state(facts: Facts) -> str | None:
    if facts.silent and facts.silent * SILENT_ONE_IN >= facts.sites:
        return f"{facts.silent} of {facts.sites} sites do not answer"
    return facts.busy


def _object_to_recent_change(
    now: float, settings: Settings, memory: Memory, facts: Facts
) -> str | None:
    changes = [at for at in (memory.acted_at, facts.changed_at) if at is not None]
    remaining_s = max((settings.settle_s - (now - at) for at in changes), default=0.0)
    if remaining_s <= 0:
        return None
    return f"the last change must settle for another {remaining_s:.0f} s"


def _object_to_haste(settings: Settings, memory: Memory) -> str | None:
    if memory.same >= settings.agreeing:
        return None
    return f"{memory.same} of {settings.agreeing} consecutive analyses agree"


def _object_to_return(settings: Settings, memory: Memory, advice: Advice) -> str | None:
    if advice.scaled_up or (advice.gain is not None and advice.gain >= 2 * settings.min_gain):
        return None
    if any(each.sites == advice.sites for each in memory.left):
        least = f"a gain of {2 * settings.min_gain:.0%} is required to return"
        return f"the composition left that placement recently; {least}"
    return None
