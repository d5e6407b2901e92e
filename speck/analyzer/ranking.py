"""Ranks the jobs that should run at edges. Pure.

The score is the number of WAN bytes that a job saves at its edge for each core-second it uses
there: `(bytes in - bytes out) / (reference core-seconds / core speed of the edge)`, all per second.
Bytes in are those that enter the system at that edge, minus those that enter it at no edge
(`speck.placement.origins`); where the job and its links are now plays no part. Scores within 1 % of
the next one are ties, and among ties stateless jobs come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from speck.analyzer.data_origins import DataOrigins
from speck.model.analysis_result import DataOrigin, RankedJob
from speck.model.values import JsonObject
from speck.placement.evidence import SUFFICIENT
from speck.placement.origins import Mix, sum_by_edge
from speck.placement.ranking import WHOLE, sort_by_score

FULL = 0.7
"""Maximum share of a site's capacity that jobs may use."""


def rank_jobs(
    jobs: Sequence[JsonObject], sites: Sequence[JsonObject], origins: DataOrigins
) -> tuple[RankedJob, ...]:
    """The jobs, best candidate first, by rows of JOBS and of sites with their `load`. Jobs without
    a score have no rank and come last."""
    by_name = {site["site"]: site for site in sites}
    edges = {name for name, site in by_name.items() if site["tier"] == "edge"}
    rated = [_Rated(job, origins.of(job), by_name, edges) for job in jobs]
    ordered = sort_by_score(
        rated,
        lambda each: each.score,
        lambda each: each.job["stateful"],
        lambda each: (each.job["composition"] or "", each.job["job_name"]),
    )
    return tuple(_make(rank, each) for rank, each in enumerate(ordered, start=1))


def _make(rank: int, rated: _Rated) -> RankedJob:
    job = rated.job
    return RankedJob(
        rank=None if rated.score is None else rank,
        job_name=job["job_name"],
        composition=job["composition"],
        site=job["site"],
        stateful=job["stateful"],
        edge=rated.edge,
        origins=rated.list_origins(),
        wan_bytes_saved_per_s=rated.saved,
        edge_core_s_per_s=rated.edge_cores,
        score=rated.score,
        confidence=rated.confidence,
        reasons=tuple(rated.list_reasons()),
        against=tuple(rated.list_objections()),
    )


@dataclass(frozen=True)
class _Rated:
    """A job, the origins of its input, and the sites by name."""

    job: JsonObject
    mix: Mix
    sites: Mapping[str, JsonObject]
    edges: set[str]

    @cached_property
    def shares(self) -> dict[str | None, float]:
        """By edge; None: produced at no edge."""
        return sum_by_edge(self.mix, self.edges)

    @cached_property
    def edge(self) -> str | None:
        """The edge at which most of its input enters; of equal ones the first by name."""
        edges = sorted(name for name in self.shares if name is not None)
        return max(edges, key=lambda name: self.shares[name], default=None)

    @cached_property
    def share(self) -> float | None:
        return self.shares[self.edge] if self.mix.is_known and self.edge is not None else None

    @cached_property
    def edge_row(self) -> JsonObject:
        """The row of `edge`; empty without one."""
        return self.sites.get(self.edge or "", {})

    @property
    def is_there(self) -> bool:
        return self.edge is not None and self.job["site"] == self.edge

    @cached_property
    def work(self) -> float | None:
        cost, rate = self.job["reference_core_s_per_record"], self.job["in_rate"]
        return None if cost is None or rate is None else cost * rate

    @property
    def edge_cores(self) -> float | None:
        return None if self.work is None else self.work / self.speed

    @property
    def speed(self) -> float:
        return self.edge_row.get("core_speed") or 1.0

    @cached_property
    def saved(self) -> float | None:
        """In the cloud it would send its input across, at its edge its output and its input from
        the cloud; input from other edges crosses either way."""
        taken, sent = self.job["bytes_in_rate"], self.job["bytes_out_rate"]
        if self.share is None or taken is None or sent is None:
            return None
        return float(taken * (self.share - self.shares.get(None, 0.0)) - sent)

    @cached_property
    def score(self) -> float | None:
        return self.saved / self.edge_cores if self.saved is not None and self.edge_cores else None

    @property
    def confidence(self) -> str:
        if self.score is None:
            return "low"
        if self.edge_row.get("core_speed") is not None:
            return str(self.job["confidence"])
        return "medium" if self.job["confidence"] == "high" else "low"

    def list_origins(self) -> tuple[DataOrigin, ...]:
        """Each origin of its input, the largest first; shares are None where they are not known."""
        ordered = sorted(self.mix.shares.items(), key=lambda item: (-item[1], item[0]))
        return tuple(
            DataOrigin(
                site=origin.name if origin.kind == "site" else None,
                job=origin.name if origin.kind == "job" else None,
                share=share if self.mix.is_known else None,
            )
            for origin, share in ordered
        )

    def list_reasons(self) -> Iterator[str]:
        job = self.job
        if self.is_there:
            yield f"runs at {self.edge}, where its data is produced"
        if self.saved is not None and self.saved > 0:
            received = job["bytes_in_rate"] * self.share
            yield (
                f"sends {job['bytes_out_rate']:.0f} B/s of the {received:.0f} B/s that it receives"
                f" from {self.edge}"
            )
        if job["stateful"] is False:
            yield f"stateless: {job['state_why']}"

    def list_objections(self) -> Iterator[str]:
        job = self.job
        if job["ended"] and job["evidence"] == SUFFICIENT:
            yield "is no longer running"
        if job["evidence"] != SUFFICIENT:
            yield f"not ranked: {'; '.join(job['why'])}"
        if self.edge is None:
            yield self._explain_no_edge()
        elif self.saved is None:
            is_known = self.share is not None
            unknown = "the shares of sites in its input are unknown"
            yield "its bytes are not reported" if is_known else unknown
        is_part = self.share is not None and self.share < WHOLE
        if is_part and self.share is not None:
            yield f"only {self.share * 100:.0f} % of its input comes from {self.edge}"
        if self.saved is not None and self.saved <= 0:
            more = f"{abs(self.saved):.0f} B/s more"
            yield (
                f"{more} would be sent between sites"
                if is_part
                else f"it sends {more} than it receives"
            )
        if not self.is_there:
            yield from self._object_to_move()
        yield from self._object_to_load()

    def _explain_no_edge(self) -> str:
        kinds = {origin.kind for origin in self.mix.shares}
        if not kinds:
            return "it is unknown where its input comes from"
        made_here = "it has no input, or that of jobs that have none"
        return made_here if kinds == {"job"} else "its input does not come from an edge"

    def _object_to_move(self) -> Iterator[str]:
        job, slots = self.job, self.edge_row.get("slots_free")
        if job["pinned"]:
            yield "pinned"
        if slots is not None and job["subtasks"] is not None and slots < job["subtasks"]:
            yield f"{self.edge} has {slots} free slots"
        if job["stateful"]:
            yield f"stateful: a move transfers {job['state_bytes'] or 0} bytes"
        if job["stateful"] is None:
            yield "it is unknown whether it keeps state"

    def _object_to_load(self) -> Iterator[str]:
        cores, load = self.edge_row.get("cores"), self.edge_row.get("load")
        if cores is None or load is None or (self.work is None and not self.is_there):
            return
        load = load if self.is_there else load + self.work
        capacity = FULL * cores * self.speed
        if load > capacity:
            yield (
                f"over the capacity of {self.edge}: {load:.2f} of {capacity:.2f} reference"
                " core-seconds per second"
            )
