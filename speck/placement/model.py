"""What every placement policy is given, and what it answers.

Work is counted in *reference core-seconds*: CPU seconds of one core of pace 1 (the cloud's, by
calibration). A site of `cores` cores of pace `pace` does `cores * pace` of them a second.

Places that are no jobs take part as loads that cost nothing and cannot move: a topic that is fed
or read from outside is pinned to the site of its broker. A topic with several readers is a load
of its own (`Kind.TOPIC`, free to move, no slots): its messages go once to the broker and from
there to each reader, so what crosses between sites is the sum over the flows, as on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Kind(StrEnum):
    JOB = "job"
    TOPIC = "topic"  # a broker's topic with several readers: runs nowhere, but lies somewhere
    END = "end"  # outside speck: feeds or reads a topic; pinned


@dataclass(frozen=True, slots=True)
class Load:
    """One thing to be placed.

    `core_s_per_record`: reference core-seconds for each record in, `rate`: records in a second
    that it is offered. Both None for a job that was never measured well enough: it is kept where
    it is. `slots`: task slots that it takes. `site`: where it is now. `pinned`: where it must be.
    `state_bytes`: what a move carries. `stateful`: None when not known.
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

    @property
    def work(self) -> float | None:
        """Reference core-seconds a second; None when not known."""
        if self.core_s_per_record is None or self.rate is None:
            return None
        return self.core_s_per_record * self.rate


@dataclass(frozen=True, slots=True)
class Flow:
    """What goes from one load to another: messages and bytes (MQTT packets) a second."""

    start: str
    end: str
    records_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Place:
    """A site as placement sees it.

    `slots`: free for this composition, those its own jobs hold included; None: not known, no
    limit. `uplink`: bytes a second of these loads that may leave the site; None: no limit.
    `latency_ms`: one way, from here to the core of the network; between two sites it is the sum
    of both.
    `busy`: reference core-seconds a second that are taken by jobs that are not to be placed.
    """

    name: str
    tier: str
    cores: float = 1.0
    pace: float = 1.0
    slots: int | None = None
    uplink: float | None = None
    latency_ms: float = 0.0
    busy: float = 0.0

    @property
    def capacity(self) -> float:
        """Reference core-seconds a second."""
        return self.cores * self.pace


@dataclass(frozen=True, slots=True)
class Limits:
    """What a placement must keep.

    `utilisation`: at most this share of each site's capacity. `max_latency_ms`: of the longest
    path through the composition (network, plus service time of each job at its site).
    `min_rate`: records a second that the composition must be able to take in. `latency_weight`:
    bytes a second that one ms of latency on a flow is worth in the objective (lambda).
    `time_limit_s`: for policies that search.
    """

    utilisation: float = 0.7
    max_latency_ms: float | None = None
    min_rate: float | None = None
    latency_weight: float = 0.0
    time_limit_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Problem:
    """One question: place these loads on these sites."""

    loads: tuple[Load, ...]
    flows: tuple[Flow, ...]
    places: tuple[Place, ...]
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Placement:
    """The answer: `sites` by load, and in words why (`reasons` by load; `notes` on the whole).

    `violations`: limits that it does not keep, in words that name the limit, the site and the
    figures; a policy that finds no placement that keeps them answers with its best and says so.
    `optimal`: proven; `gap`: how far (0 to 1) it may be from the best when it was stopped early;
    `objective`: bytes a second that cross between sites (plus the latency's worth).
    """

    policy: str
    sites: Mapping[str, str]
    reasons: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    objective: float | None = None
    optimal: bool = False
    gap: float | None = None

    @property
    def feasible(self) -> bool:
        return not self.violations


class Policy(Protocol):
    """A way to answer. Deterministic: the same problem gives the same placement."""

    @property
    def name(self) -> str: ...

    def place(self, problem: Problem) -> Placement:
        """Raises PermanentError when there is no placement at all (no sites, a pin to nowhere)."""
