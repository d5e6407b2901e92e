"""A placement as it is stored and shown: today's beside the proposed one, and the reasons. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from speck.model.composition import CompositionDescription
from speck.model.shown import Shown
from speck.placement.consistency import Earlier
from speck.placement.move_costs import Silences
from speck.placement.reasons import PlacedJob
from speck.placement.scaling import Scale


@dataclass(frozen=True, slots=True)
class Side:
    """Sites of jobs and links, and what is predicted for them."""

    sites: Mapping[str, str]
    links: Annotated[Mapping[str, str], Shown("the site of the broker that carries `job -> topic`")]
    wan_bytes_per_s: Annotated[
        float, Shown("predicted bytes of messages between sites, per second")
    ]
    utilisation: Annotated[Mapping[str, float | None], Shown("used share of each site's capacity")]
    cores: Annotated[Mapping[str, float | None], Shown("CPU cores that each site's engine uses")]
    memory_bytes: Annotated[
        Mapping[str, float], Shown("heap that the composition's jobs need at each site")
    ]
    in_rate: Annotated[
        float, Shown("records per second that enter, for which the figures are predicted")
    ]
    latency_ms: Annotated[
        float | None, Shown("latency of the slowest path through the composition")
    ]
    max_rate: Annotated[
        float | None, Shown("highest sustainable input rate, in records per second")
    ]
    held_by: Annotated[str | None, Shown("what limits max_rate")]
    violations: Annotated[tuple[str, ...], Shown("the limits that are exceeded")]


@dataclass(frozen=True, slots=True)
class Move:
    """A job that is to run at another site."""

    job_name: str
    source: Annotated[str, Shown("site", name="from")]
    target: Annotated[str, Shown("site", name="to")]
    reason: str
    stateful: bool | None
    state_bytes: int | None
    silence_s: Annotated[float, Shown("expected time for which the move stops the job, in seconds")]
    saved_bytes_per_s: Annotated[
        float | None,
        Shown("bytes per second between sites that only this job's return would add"),
    ]
    cost_bytes: Annotated[float | None, Shown("its state, and what arrives while it is silent")]
    break_even_s: Annotated[
        float | None,
        Shown("seconds after which it has saved what it costs; null: it saves nothing by itself"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedSide(Side):
    """What is proposed, with the moves that lead there."""

    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class Rewired:
    """A topic that another site's broker will carry."""

    topic: str
    source: Annotated[str, Shown("site", name="from")]
    target: Annotated[str, Shown("the site whose broker will carry the topic", name="to")]


@dataclass(frozen=True, slots=True)
class Gain:
    """What a placement saves, and what its moves and restarts cost."""

    wan_bytes_per_s: Annotated[float, Shown("bytes between sites saved, per second")]
    share: Annotated[
        float | None,
        Shown("saved share of today's bytes between sites; null when there are none"),
    ]
    cost_bytes: Annotated[
        float, Shown("what all moves, and restarts of jobs whose links move, cost once")
    ]
    net_bytes_per_s: Annotated[
        float, Shown("what is saved per second, less the cost over the horizon")
    ]
    break_even_s: Annotated[
        float | None,
        Shown("seconds after which as much is saved as the moves cost; null: nothing is saved"),
    ]


@dataclass(frozen=True, slots=True)
class ScaleOutline:
    """A job that may get another number of subtasks."""

    job_name: str
    site: Annotated[str, Shown("where it runs when it is measured")]
    source: Annotated[int, Shown("subtasks that it has", name="from")]
    target: Annotated[int, Shown("subtasks that it is to have", name="to")]
    needed: Annotated[int, Shown("subtasks that its rates need, whatever slots there are")]
    in_rate: Annotated[float, Shown("records per second that arrive")]
    true_processing_rate: Annotated[
        float, Shown("records per second that today's subtasks can process together")
    ]
    reason: str

    @classmethod
    def of(cls, scale: Scale) -> ScaleOutline:
        return cls(
            scale.job_name,
            scale.site,
            scale.today,
            scale.proposed,
            scale.needed,
            scale.in_rate,
            scale.true_processing_rate,
            scale.reason,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Today's placement and a proposed one side by side, both predicted in the same way."""

    gain: Gain
    violations: Annotated[tuple[str, ...], Shown("the limits that it exceeds")]
    today: Side
    proposed: ProposedSide
    memory_available_bytes: Annotated[
        Mapping[str, float | None],
        Shown("heap of each site for the composition's jobs; null when it is unknown"),
    ]
    rewired: tuple[Rewired, ...]
    restarted: Annotated[tuple[str, ...], Shown("jobs that stay, but whose links move")]
    horizon_s: Annotated[
        float, Shown("seconds within which a move has to save as many bytes as it costs")
    ]
    silences: Silences
    dropped: Annotated[
        tuple[str, ...], Shown("jobs that the policy would move, though it does not pay")
    ]
    evidence: Annotated[
        Mapping[str, Any],
        Shown("what the answer rests on; while it stays the same, so does the answer"),
    ]
    repeats: Annotated[
        str | None, Shown("the earlier placement whose evidence, and so whose answer, it has")
    ]
    jobs: tuple[PlacedJob, ...]
    notes: tuple[str, ...]
    doubts: Annotated[Mapping[str, str], Shown("jobs whose measurements are unreliable, and why")]
    unmeasured: Annotated[
        tuple[str, ...],
        Shown("the flows that were not measured and are missing from all sums"),
    ]
    optimal: Annotated[bool, Shown("whether it is proven optimal")]
    gap: Annotated[float | None, Shown("optimality gap, 0 to 1")]


@dataclass(frozen=True, slots=True)
class Manner:
    """How a placement was asked for."""

    composition: str
    policy: str
    scale: Annotated[bool, Shown("whether the parallelism of jobs was chosen, too")]
    all_moves: Annotated[
        bool, Shown("whether moves that do not pay for themselves were asked for, too")
    ]
    move_unmeasured: Annotated[bool, Shown("whether jobs without evidence were to move, too")]


@dataclass(frozen=True, slots=True)
class PlacementHead:
    """A placement without its details. `at` is RFC 3339."""

    id: str
    at: str
    composition: str
    revision: Annotated[int, Shown("the revision that it was computed for")]
    policy: str
    analysis: Annotated[str | None, Shown("null where nothing was measured")]
    gain: Gain
    violations: Annotated[tuple[str, ...], Shown("the limits that it exceeds")]


@dataclass(frozen=True, slots=True)
class PlacementRecord:
    """A placement of the `revision` of a composition, by the analysis of this id (None: nothing
    was measured), and the `description` that carries it out. `at` is RFC 3339."""

    id: str
    at: str
    revision: int
    analysis: str | None
    manner: Manner
    comparison: Comparison
    scales: tuple[ScaleOutline, ...]
    description: CompositionDescription
    yaml: str

    @property
    def composition(self) -> str:
        return self.manner.composition

    @property
    def scaled(self) -> list[ScaleOutline]:
        """The jobs whose parallelism it changes."""
        return [each for each in self.scales if each.source != each.target]

    @property
    def as_earlier(self) -> Earlier:
        """What a later answer to the same question goes by."""
        compared = self.comparison
        today, proposed = compared.today, compared.proposed
        return Earlier(
            self.id,
            compared.evidence,
            (today.sites, today.links),
            (proposed.sites, proposed.links),
            compared.violations,
            compared.repeats,
            compared.optimal,
            compared.gap,
            compared.dropped,
        )

    @property
    def head(self) -> PlacementHead:
        gain, violations = self.comparison.gain, self.comparison.violations
        manner = self.manner
        return PlacementHead(
            self.id,
            self.at,
            manner.composition,
            self.revision,
            manner.policy,
            self.analysis,
            gain,
            violations,
        )
