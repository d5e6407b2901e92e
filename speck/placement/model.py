"""Input and output of every placement policy.

Work is counted in *reference core-seconds*: CPU seconds of one core of speed 1 (by calibration,
the first cloud site's). A site does `cores * core_speed` of them per second.

Ends outside speck are loads that cost nothing and cannot move: a topic that is fed or read from
outside is pinned to the site of its broker. A topic with several readers is a load of its own
(`Kind.TOPIC`: movable, no slots). Its messages go to the broker once and from there to each reader,
so the bytes between sites are the sum over the flows, as on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Kind(StrEnum):
    JOB = "job"
    TOPIC = "topic"  # a topic with several readers: needs no engine, but a broker
    END = "end"  # outside speck: feeds or reads a topic; pinned


@dataclass(frozen=True, slots=True)
class Load:
    """A job, topic or outside end to be placed.

    `core_s_per_record`: reference core-seconds per input record; `rate`: input records per second
    that its producers send. Both are None for a job without sufficient measurements, which then
    stays where it is. `slots`: task slots that it needs. `site`: where it is now. `pinned`: where
    it must be. `state_bytes`: size of the state that a move transfers. `stateful`: None if unknown.
    `memory_bytes`: memory that its engine needs for it; None: `instance.MEMORY_BYTES` per slot.
    `true_output_rate`: records that it sends per second of useful time, as measured; None: unknown.
    `silence_s`: seconds for which a move stops it; 0: moves of it cost nothing. `barred`: by site,
    why it cannot run there, whatever is free.
    """

    name: str
    kind: Kind = Kind.JOB
    core_s_per_record: float | None = None
    rate: float | None = None
    slots: int = 1
    site: str | None = None
    pinned: str | None = None
    stateful: bool | None = None
    state_bytes: int | None = None
    memory_bytes: float | None = None
    true_output_rate: float | None = None
    silence_s: float = 0.0
    barred: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def work(self) -> float | None:
        """Reference core-seconds per second; None if unknown."""
        if self.core_s_per_record is None or self.rate is None:
            return None
        return self.core_s_per_record * self.rate


@dataclass(frozen=True, slots=True)
class Flow:
    """What one load sends another: messages, and bytes as their brokers carry them, per second."""

    start: str
    end: str
    records_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Place:
    """A site as placement sees it.

    `core_speed`: speed of a core relative to the reference. `slots`: slots available to this
    composition, including those that its own jobs use; None: unknown, no limit. `uplink`: maximum
    bytes per second that these loads may send from the site; None: no limit. `latency_ms`: one way
    from the site to the core of the network; between two sites the latency is the sum of both.
    `busy`: reference core-seconds per second used by jobs that are not to be placed.
    `memory_bytes`: memory available to this composition, including that of its own jobs; None:
    unknown, no limit. `closed`: why the site takes no load that is not there already, and
    `uplink_closed` why its uplink takes no more bytes than today: part of what uses them was not
    measured, so nobody knows how much is free; None: they do.
    """

    name: str
    tier: str
    cores: float = 1.0
    core_speed: float = 1.0
    slots: int | None = None
    uplink: float | None = None
    latency_ms: float = 0.0
    busy: float = 0.0
    memory_bytes: float | None = None
    closed: str | None = None
    uplink_closed: str | None = None

    @property
    def capacity(self) -> float:
        """Reference core-seconds per second."""
        return self.cores * self.core_speed


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a placement.

    `utilisation`: maximum share of each site's capacity. `max_latency_ms`: maximum latency of the
    longest path through the composition (network, plus service time of each job at its site).
    `min_rate`: records per second that the composition must be able to take in. `latency_weight`:
    bytes per second that one ms of latency on a flow counts in the objective (lambda).
    `time_limit_s`: time limit of policies that search. `horizon_s`: seconds within which a move has
    to save as many bytes as it costs.
    """

    utilisation: float = 0.7
    max_latency_ms: float | None = None
    min_rate: float | None = None
    latency_weight: float = 0.0
    time_limit_s: float = 60.0
    horizon_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job in the analyzer's ranking of jobs for edges.

    `edge`: the edge whose data it processes; None: none. `score`: bytes between sites that it saves
    there for each core-second of that edge; None: unknown. `against`: the analyzer's objections.
    """

    name: str
    edge: str | None
    score: float | None
    against: tuple[str, ...] = ()

    @property
    def suggested_site(self) -> str | None:
        """The edge, if the job saves bytes there."""
        return self.edge if self.score is not None and self.score > 0 else None


@dataclass(frozen=True, slots=True)
class Problem:
    """A placement problem: which of these sites for each of these loads?

    `ranking`: the jobs for edges, best candidate first, from the analysis; empty without one.
    `unmeasured`: (start, end) of flows without evidence. They are no part of `flows`: no sum
    includes them, both ends stay, and the sites and the uplink that carry them are closed.
    `moves_unmeasured`: what was not measured may move like all else, and closes nothing.
    """

    loads: tuple[Load, ...]
    flows: tuple[Flow, ...]
    places: tuple[Place, ...]
    limits: Limits = Limits()
    ranking: tuple[Candidate, ...] = ()
    unmeasured: tuple[tuple[str, str], ...] = ()
    moves_unmeasured: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """A policy's result: `sites` by load, with `reasons` by load and `notes` on the whole.

    `violations`: sentences that name each violated limit, the site and the figures; a policy that
    finds no placement within the limits returns its best one and says so. `optimal`: proven to be;
    `gap`: maximum distance (0 to 1) from the optimum if the search was stopped early; `objective`:
    bytes per second between sites (plus the latency cost). `dropped`: loads that the policy would
    move, but whose moves would not pay for themselves.
    """

    policy: str
    sites: Mapping[str, str]
    reasons: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    objective: float | None = None
    optimal: bool = False
    gap: float | None = None
    dropped: tuple[str, ...] = ()

    @property
    def feasible(self) -> bool:
        return not self.violations


class Policy(Protocol):
    """A placement policy. Deterministic: the same problem gives the same placement."""

    @property
    def name(self) -> str: ...

    def place(self, problem: Problem) -> Placement:
        """Raises PermanentError if no placement exists (no sites, a pin to an unknown one)."""
