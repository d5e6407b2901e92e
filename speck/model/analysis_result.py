"""What an analysis has found: the rows of its tables, which docs/analysis.md describes.

A figure that the samples do not support is None. Rates are per second, means over the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from speck.model.shown import Shown


@dataclass(frozen=True, slots=True)
class Window:
    """The time that was analysed; None and 0: nothing was."""

    since: Annotated[str | None, Shown("RFC 3339", name="from")]
    until: Annotated[str | None, Shown("RFC 3339", name="to")]
    seconds: float


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """How many `rows` of tasks there were, how many of them show something odd, and the files that
    were skipped."""

    rows: int | None
    duplicates: int | None
    resets: int | None
    gaps: int | None
    nan: int | None
    contended: Annotated[int | None, Shown("the machine was overloaded")]
    damaged_files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The link of a job's source or sink."""

    site: str | None
    topic: str | None


@dataclass(frozen=True, slots=True)
class SubtaskRate:
    """flink-placement's true output rate of one subtask."""

    vertex: str
    subtask: int
    trueOutputProcessingRate: float | None


@dataclass(frozen=True, slots=True)
class AnalysedJob:
    """A job that ran in the window: its rates, its cost and its state."""

    job_name: str
    composition: Annotated[str | None, Shown("null: the job was posted alone")]
    site: str
    engine_job_id: str | None
    attempt: int | None
    ended: Annotated[bool | None, Shown("it was not running at the end of the window")]
    evidence: Annotated[str, Shown("`sufficient` or `insufficient` for a cost")]
    why: tuple[str, ...]
    rate_evidence: Annotated[str, Shown("the same for its rates alone")]
    rate_why: tuple[str, ...]
    confidence: Annotated[str | None, Shown("high, medium or low")]
    seconds: float | None
    covered: Annotated[float | None, Shown("share of the time that was measured")]
    samples: int | None
    in_rate: Annotated[float | None, Shown("records/s")]
    out_rate: Annotated[float | None, Shown("records/s")]
    selectivity: float | None
    core_s_per_record: float | None
    reference_core_s_per_record: float | None
    reference_cores: float | None
    true_processing_rate: Annotated[float | None, Shown("records/s")]
    true_output_rate: Annotated[float | None, Shown("records/s")]
    trueOutputProcessingRate: Annotated[float | None, Shown("records/s: flink-placement's figure")]
    tasks: tuple[SubtaskRate, ...] | None
    utilisation: float | None
    back_pressured: float | None
    lower_bound: Annotated[bool | None, Shown("the true rate may be higher")]
    contended: float | None
    bytes_in_per_record: float | None
    bytes_out_per_record: float | None
    restarts: int | None
    stateful: Annotated[bool | None, Shown("whether it keeps state; null: unknown")]
    state_bytes: float | None
    state_bytes_per_s: float | None
    heap_bytes: float | None
    heap_bytes_per_s: float | None
    checkpoint_s: float | None
    subtasks: int | None
    spread: float | None
    pinned: bool | None
    source: JobEnd
    sink: JobEnd

    @property
    def has_ended(self) -> bool:
        return bool(self.ended)


@dataclass(frozen=True, slots=True)
class AnalysedProducer:
    """A client that publishes to a link; without a `job_name` it is no job of speck's."""

    client_id: str | None
    job_name: Annotated[str | None, Shown("null outside speck")]
    site: str | None
    records_per_s: float | None
    bytes_per_s: float | None
    counted_per_s: Annotated[float | None, Shown("by the numbers that it publishes")]
    evidence: str | None
    why: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class AnalysedReader(AnalysedProducer):
    """A client that reads a link, and how its queue grows."""

    lag: Annotated[int | None, Shown("messages")]
    lag_per_s: Annotated[float | None, Shown("its growth")]
    lag_fit: Annotated[float | None, Shown("how well a line fits, 0 to 1")]


@dataclass(frozen=True, slots=True)
class AnalysedLink:
    """A link of a composition: its one rate, and what was measured at its ends."""

    composition: str | None
    broker_site: str | None
    topic: str
    records_per_s: float | None
    bytes_per_s: float | None
    seconds: float | None
    difference: Annotated[float | None, Shown("share that the rates of its ends are apart")]
    evidence: str | None
    why: tuple[str, ...] | None
    producers: tuple[AnalysedProducer, ...]
    readers: tuple[AnalysedReader, ...]
    wan_bytes_per_s: float | None
    fed_outside: Annotated[bool | None, Shown("outsiders send to it")]


@dataclass(frozen=True, slots=True)
class AnalysedSite:
    """What a site has, and what is used of it."""

    name: str
    tier: str | None
    cores: float | None
    core_speed: Annotated[float | None, Shown("null: not calibrated")]
    slots_total: int | None
    slots_free: int | None
    host_cpu: float | None
    cpu: float | None
    busy: float | None
    uplink_mbps: float | None
    heap_bytes: float | None
    heap_max_bytes: float | None
    heap_bytes_per_subtask: float | None
    heap_per_state_byte: float | None
    load: Annotated[float | None, Shown("reference cores that its jobs use")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOrigin:
    """Where input of a job enters the system: at a `site`, or at a `job` without input."""

    site: Annotated[str | None, Shown(left_out=True)] = None
    job: Annotated[str | None, Shown(left_out=True)] = None
    share: Annotated[float | None, Shown("of the bytes; null: unknown")]


@dataclass(frozen=True, slots=True)
class RankedJob:
    """How well a job would be placed at an edge; without a score it has no rank."""

    rank: int | None
    job_name: str
    composition: str | None
    site: str | None
    stateful: bool | None
    edge: Annotated[str | None, Shown("where most of its input enters")]
    origins: tuple[DataOrigin, ...] | None
    wan_bytes_saved_per_s: float | None
    edge_core_s_per_s: float | None
    score: float | None
    confidence: str | None
    reasons: tuple[str, ...] | None
    against: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A busy job, a growing queue or a full site."""

    kind: str
    name: str
    value: float
    why: str


@dataclass(frozen=True, slots=True)
class LinkForecast:
    """The highest rate of a link until `at` (RFC 3339), with its bounds (records/s); `mape` is the
    mean error of the method, None while there are too few samples."""

    site: str | None
    topic: str
    at: str
    rate: float
    low: float
    high: float
    method: str
    mape: float | None


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """The tables of an analysis."""

    window: Annotated[Window, Shown(left_out=True)]
    samples: Annotated[SampleCounts | None, Shown("rows, and how many are invalid", left_out=True)]
    jobs: Annotated[
        tuple[AnalysedJob, ...],
        Shown("rates, cost and state of each job, and the samples behind them", left_out=True),
    ]
    links: Annotated[
        tuple[AnalysedLink, ...],
        Shown(
            "what producers send and readers receive, and the traffic between sites", left_out=True
        ),
    ]
    sites: Annotated[
        tuple[AnalysedSite, ...], Shown("capacity and use of each site", left_out=True)
    ]
    ranking: Annotated[
        tuple[RankedJob, ...],
        Shown("jobs that belong at edges, best candidate first", left_out=True),
    ]
    bottlenecks: Annotated[tuple[Bottleneck, ...], Shown(left_out=True)]
    forecast: Annotated[
        tuple[LinkForecast, ...] | None, Shown("of each link; with `ahead_s` only", left_out=True)
    ] = None


NOTHING_MEASURED = AnalysisResult(
    Window(None, None, 0.0), None, jobs=(), links=(), sites=(), ranking=(), bottlenecks=()
)
"""The result where there is none."""
