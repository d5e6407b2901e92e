"""What samples are made from, and the truth of what was made."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

START = datetime(2026, 3, 2, tzinfo=UTC)
CONTENDED = 0.6
"""Above this share of a machine its samples count as contended."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What to make. Shares are 0 to 1; rates per hour are for one site or one job."""

    jobs: int = 20
    sites: int = 4
    hours: float = 1.0
    every_s: float = 10.0
    links_every_s: float = 60.0
    seed: int = 1
    start: datetime = START
    chain: int = 5
    stateful: float = 0.2
    parallel: float = 0.25
    """Of the stateful jobs: those with two subtasks between source and sink."""
    saturated: float = 0.03
    back_pressured: float = 0.03
    no_busy: float = 0.01
    """Jobs whose busy time is never told (NaN)."""
    silences_per_hour: float = 0.1
    restarts_per_hour: float = 0.05
    incarnations_per_hour: float = 0.02
    nan: float = 0.002
    stale: float = 0.01
    duplicates: float = 0.002
    missed: float = 0.001
    contended: float = 0.02
    jitter_s: float = 0.3


@dataclass(frozen=True, slots=True)
class SiteTruth:
    """A site as it is."""

    name: str
    tier: str
    core_speed: float
    cores: float
    slots: int
    uplink_mbps: float | None


@dataclass(frozen=True, slots=True)
class JobTruth:
    """A job as it is: rates in records/s, costs in core-seconds, sizes in bytes per record.

    `in_rate` is the mean over the time of the spec while the job was up. `true_processing_rate`
    (at its site) is told of jobs of one task only. `told_busy`: whether any row has its busy time.
    """

    job_name: str
    composition: str
    site: str
    in_rate: float
    selectivity: float
    core_s_per_record: float
    reference_core_s_per_record: float
    true_processing_rate: float | None
    utilisation: float
    bytes_in_per_record: float
    bytes_out_per_record: float
    stateful: bool
    state_bytes: int
    tasks: int
    subtasks: int
    saturated: bool
    back_pressured: float
    told_busy: bool
    source_site: str
    sink_site: str
    wan_bytes_per_s: float


@dataclass(slots=True)
class Truth:
    """What the dataset was made from, and how much of what is in it."""

    spec: Spec
    sites: dict[str, SiteTruth] = field(default_factory=dict)
    jobs: dict[str, JobTruth] = field(default_factory=dict)
    rows: Counter[str] = field(default_factory=Counter)
    """Rows written, by table, duplicates included."""
    faults: Counter[str] = field(default_factory=Counter)
    """Rows of `tasks` by fault: duplicates, nan, stale, contended, lost; resets; silences."""
