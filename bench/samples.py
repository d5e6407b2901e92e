"""A metrics dataset as a fog of many sites would leave it, with the truth it was made from.

Chains of jobs read a topic at an edge and end in the cloud; sites differ in the speed of their
cores. The faults that real collectors meet are in it: sites that are silent for minutes, engines
that start a job again (counters fall to 0), new incarnations, busy times that are not reported,
values that an engine gives twice, rows that were written twice, polls that come late, machines that
others keep busy.

    python -m bench.samples FOLDER --jobs 1000 --sites 100 --hours 24

Made from a seed: the same spec gives the same rows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.sample_columns import (
    RowFiles,
    events,
    incarnation_of,
    joined,
    pick,
    same,
    since,
    total,
    vertex_of,
)
from bench.sample_spec import CONTENDED, JobTruth, SiteTruth, Spec, Truth
from speck.metrics.dataset.schema import BROKERS, LINKS, PLANS, SITES, TASKS

__all__ = ["JobTruth", "SiteTruth", "Spec", "Truth", "generate"]

_CONTENDED_COST = 1.5
"""What a record costs of wall time while others keep the machine busy, against what it should."""


@dataclass(slots=True)
class _Polls:
    """The polls of one site: seconds since the start, and the values that the whole site shares."""

    at: np.ndarray
    silent: np.ndarray
    host_cpu: np.ndarray


@dataclass(slots=True)
class _Run:
    """One job over all polls of its site."""

    truth: JobTruth
    polls: _Polls
    attempt: np.ndarray
    restarts: np.ndarray
    segment: np.ndarray
    up_s: np.ndarray
    records: np.ndarray
    """Records taken in each interval that the new counters saw."""
    rate: np.ndarray
    value_poll: np.ndarray
    """The poll whose values each poll reports (an earlier one where the engine was stale)."""


def generate(root: Path, spec: Spec) -> Truth:
    """Write a dataset below `root`; the truth of it."""
    truth = Truth(spec)
    maker = _Maker(root, spec, truth)
    maker.make_sites()
    for number in range(-(-spec.jobs // spec.chain)):
        maker.make_composition(number)
    return truth


class _Maker:
    def __init__(self, root: Path, spec: Spec, truth: Truth) -> None:
        self.root, self.spec, self.truth = root, spec, truth
        self.polls: dict[str, _Polls] = {}
        self.count = int(spec.hours * 3600 / spec.every_s)
        self.write = RowFiles(root, spec.start, truth.rows)

    # -- sites ----------------------------------------------------------------------------

    def make_sites(self) -> None:
        rng = np.random.default_rng([self.spec.seed, 1])
        busy_jobs = -(-self.spec.jobs // max(self.spec.sites, 1))
        names = ["cloud"] + [f"edge-{number:03d}" for number in range(1, self.spec.sites)]
        for name in names:
            cloud = name == "cloud"
            self.truth.sites[name] = SiteTruth(
                name,
                "cloud" if cloud else "edge",
                1.0 if cloud else float(rng.choice([0.25, 0.4, 0.5, 0.8])),
                float(self.spec.jobs if cloud else 4),
                8 * self.spec.jobs if cloud else 4 * busy_jobs + 8,
                None if cloud else float(rng.choice([10, 50, 100])),
            )
            self.polls[name] = self._make_polls(rng)
        for name in names:
            self._site_rows(name, rng)

    def _make_polls(self, rng: np.random.Generator) -> _Polls:
        spec, count = self.spec, self.count
        jitter = rng.uniform(-spec.jitter_s, spec.jitter_s, count)
        at = np.maximum(np.arange(count) * spec.every_s + spec.jitter_s + jitter, 0)
        silent = np.zeros(count, bool)
        for _ in range(rng.poisson(spec.silences_per_hour * spec.hours)):
            first = int(rng.integers(count))
            length = int(rng.uniform(60, 600) / spec.every_s) + 1
            silent[first : first + length] = True
            self.truth.faults["silences"] += 1
        host_cpu = rng.uniform(0.1, 0.5, count)
        of = max(1, int(300 / spec.every_s))
        for first in range(0, count, of):
            if rng.random() < spec.contended:
                host_cpu[first : first + of] = rng.uniform(0.7, 1.0)
        return _Polls(at, silent, host_cpu)

    def _site_rows(self, name: str, rng: np.random.Generator) -> None:
        site, polls = self.truth.sites[name], self.polls[name]
        answered = np.flatnonzero(~polls.silent)
        count = len(answered)
        at = polls.at[answered]
        columns: dict[str, Any] = {
            "site": same(name, count),
            "tier": same(site.tier, count),
            "slots_total": np.full(count, site.slots, np.int32),
            "slots_free": np.full(count, site.slots // 2, np.int32),
            "cores": np.full(count, site.cores),
            "core_speed": np.full(count, site.core_speed),
            "cpu_ms": np.cumsum(rng.uniform(0.2, 0.6, count)) * self.spec.every_s * 1000,
            "memory_bytes": rng.integers(300_000_000, 400_000_000, count),
            "heap_used_bytes": rng.integers(50_000_000, 200_000_000, count),
            "heap_max_bytes": np.full(count, 256_000_000),
            "host_cpu": polls.host_cpu[answered],
            "host_cores": np.full(count, max(4, int(site.cores)), np.int32),
        }
        if site.uplink_mbps is not None:
            columns["uplink_mbps"] = np.full(count, site.uplink_mbps)
        self.write(SITES, at, columns)
        rate = rng.uniform(50, 500)
        broker = {
            "site": same(name, count),
            "messages_in": np.int64(at * rate),
            "messages_out": np.int64(at * rate),
            "bytes_in": np.int64(at * rate * 150),
            "bytes_out": np.int64(at * rate * 140),
            "dropped": np.zeros(count, np.int64),
            "queued": rng.integers(0, 100, count),
            "clients": np.full(count, 12, np.int32),
            "uptime_s": np.int64(at) + 10_000,
        }
        self.write(BROKERS, at, broker)

    # -- jobs -----------------------------------------------------------------------------

    def make_composition(self, number: int) -> None:
        spec = self.spec
        rng = np.random.default_rng([spec.seed, 2, number])
        name = f"flow-{number:04d}"
        edges = [site for site in self.truth.sites if site != "cloud"] or ["cloud"]
        edge = edges[number % len(edges)]
        jobs = min(spec.chain, spec.jobs - number * spec.chain)
        at_edge = int(rng.integers(0, jobs + 1))
        sites = [edge] * at_edge + ["cloud"] * (jobs - at_edge)
        base = float(rng.uniform(50, 400))
        phase = rng.uniform(0, 2 * np.pi)
        wave = 1 + 0.3 * np.sin(2 * np.pi * np.arange(self.count) * spec.every_s / 86_400 + phase)
        rate, size, source = base * wave, float(rng.uniform(80, 300)), edge
        tasks: list[tuple[np.ndarray, dict[str, Any]]] = []
        links: list[tuple[np.ndarray, dict[str, Any]]] = []
        plans: list[tuple[np.ndarray, dict[str, Any]]] = []
        for index, site in enumerate(sites):
            sink = sites[index + 1] if index + 1 < jobs else "cloud"
            # what comes out must stay enough to be told, however long the chain is
            faint = rate.mean() < 2
            job = self._job(rng, f"{name}-{index}", name, site, (source, sink), rate, size, faint)
            run = self._run(rng, job, rate)
            self.truth.jobs[job.job_name] = run.truth
            tasks += self._task_rows(rng, run)
            links += _link_rows(self.spec, rng, run, index)
            plans += _plan_rows(run, index)
            rate, size, source = run.rate * job.selectivity, job.bytes_out_per_record, sink
        for table, parts in ((TASKS, tasks), (LINKS, links), (PLANS, plans)):
            self.write(table, *joined(parts), composition=name)

    def _job(
        self,
        rng: np.random.Generator,
        name: str,
        composition: str,
        site: str,
        ends: tuple[str, str],
        rate: np.ndarray,
        size: float,
        faint: bool,
    ) -> JobTruth:
        spec, place = self.spec, self.truth.sites[site]
        stateful = bool(rng.random() < spec.stateful)
        subtasks = 2 if stateful and rng.random() < spec.parallel else 1
        tasks = (3 if subtasks > 1 else 2) if stateful else 1
        saturated = bool(not stateful and rng.random() < spec.saturated)
        held = bool(not saturated and not stateful and rng.random() < spec.back_pressured)
        use = float(rng.uniform(0.05, 0.5) if not saturated else rng.uniform(1.5, 2.0))
        cost = use / float(rate.mean())
        low, high = (0.9, 1.1) if faint else (0.1, 0.4) if stateful else (0.3, 1.2)
        selectivity = float(rng.uniform(low, high))
        out_size = size * float(rng.uniform(0.6, 1.2))
        return JobTruth(
            job_name=name,
            composition=composition,
            site=site,
            in_rate=0.0,
            selectivity=selectivity,
            core_s_per_record=cost,
            reference_core_s_per_record=cost * place.core_speed,
            true_processing_rate=1 / cost if tasks == 1 else None,
            utilisation=0.0,
            bytes_in_per_record=round(size, 1),
            bytes_out_per_record=round(out_size, 1),
            stateful=stateful,
            state_bytes=int(10 ** rng.uniform(5, 8)) if stateful else int(rng.uniform(2e3, 5e3)),
            tasks=tasks,
            subtasks=subtasks,
            saturated=saturated,
            back_pressured=0.2 if held else 0.0,
            told_busy=bool(rng.random() >= spec.no_busy),
            source_site=ends[0],
            sink_site=ends[1],
            wan_bytes_per_s=0.0,
        )

    def _run(self, rng: np.random.Generator, job: JobTruth, offered: np.ndarray) -> _Run:
        spec, count = self.spec, self.count
        polls = self.polls[job.site]
        rate = offered * rng.normal(1, 0.05, count).clip(0.5, 1.5)
        if job.saturated:
            rate = np.minimum(rate, 1 / job.core_s_per_record)
        again = events(rng, count, spec.restarts_per_hour * spec.hours)
        fresh = events(rng, count, spec.incarnations_per_hour * spec.hours)
        begins = again | fresh
        up_s = np.diff(polls.at, prepend=polls.at[0] - spec.every_s)
        up_s = np.where(begins, up_s * rng.uniform(0.1, 0.9, count), up_s)
        segment = np.cumsum(begins)
        attempt = 1 + np.cumsum(fresh)
        restarts = since(np.cumsum(again), np.cumsum(fresh))
        numbers = np.arange(count)
        stale = (rng.random(count) < spec.stale) & ~begins & (numbers > 0)
        value_poll = np.maximum.accumulate(np.where(stale, 0, numbers))
        answers = ~polls.silent
        self.truth.faults["stale"] += int((stale & answers).sum()) * job.tasks
        self.truth.faults["resets"] += int(begins.sum())
        mean = float((rate * up_s).sum() / up_s.sum())
        crossing = (job.bytes_in_per_record if job.source_site != job.site else 0.0) + (
            job.bytes_out_per_record * job.selectivity if job.sink_site != job.site else 0.0
        )
        truth = JobTruth(
            **{
                **asdict(job),
                "in_rate": mean,
                "utilisation": mean * job.core_s_per_record / (job.tasks - 1 + job.subtasks),
                "wan_bytes_per_s": mean * crossing,
            }
        )
        return _Run(truth, polls, attempt, restarts, segment, up_s, rate * up_s, rate, value_poll)

    def _task_rows(
        self, rng: np.random.Generator, run: _Run
    ) -> list[tuple[np.ndarray, dict[str, Any]]]:
        """The rows of each subtask of each task."""
        shares = {1: (1.0,), 2: (0.3, 0.7), 3: (0.2, 0.6, 0.2)}[run.truth.tasks]
        tables = []
        for number, share in enumerate(shares):
            several = run.truth.subtasks if number == 1 and len(shares) == 3 else 1
            parts = (1.0,) if several == 1 else (0.55, 0.45)
            for subtask, part in enumerate(parts):
                place = (number, len(shares), subtask, several)
                tables.append(self._subtask(rng, run, place, share * part, part))
        return tables

    def _subtask(
        self,
        rng: np.random.Generator,
        run: _Run,
        place: tuple[int, int, int, int],
        cost_share: float,
        share: float,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Rows of one subtask: it has `share` of the records and `cost_share` of their cost."""
        number, tasks, subtask, several = place
        job, polls, count = run.truth, run.polls, self.count
        first, last = number == 0, number == tasks - 1
        keep, repeats = self._pick_polls(rng, run)
        cost = np.where(polls.host_cpu > CONTENDED, _CONTENDED_COST, 1.0) * cost_share
        busy = run.records * job.core_s_per_record * 1000 * cost * rng.normal(1, 0.02, count)
        held = run.up_s * 1000 * job.back_pressured
        busy = np.clip(busy, 0, run.up_s * 1000 - held)
        idle = run.up_s * 1000 - held - busy
        records_in = total(run.records * share, run.segment)
        # of the job's selectivity, its last task has all
        records_out = records_in * job.selectivity if last else records_in
        take = run.value_poll[keep]

        def whole(counter: np.ndarray) -> np.ndarray:
            return np.repeat(np.floor(counter[take]).astype(np.int64), repeats)

        def accumulate(each: np.ndarray) -> np.ndarray:
            return np.repeat(total(each, run.segment)[take], repeats)

        rows = int(repeats.sum())
        checkpoint = (polls.at / 10).astype(np.int64) + 1
        names = [incarnation_of(job.job_name, n) for n in range(1, int(run.attempt[-1]) + 1)]
        columns: dict[str, Any] = {
            "job_name": same(job.job_name, rows),
            "site": same(job.site, rows),
            "engine_job_id": pick(names, np.repeat(run.attempt[take] - 1, repeats)),
            "attempt": np.repeat(run.attempt[take].astype(np.int32), repeats),
            "vertex": same(vertex_of(job.job_name, number), rows),
            "subtask": np.full(rows, subtask, np.int32),
            "subtasks": np.full(rows, several, np.int32),
            "is_source": np.full(rows, first),
            "is_sink": np.full(rows, last),
            "busy_ms": self._some_nan(rng, accumulate(busy), job.told_busy),
            "idle_ms": accumulate(idle),
            "back_pressured_ms": accumulate(held),
            "cpu_ms": pa.nulls(rows, pa.float64()),
            "records_in": whole(records_in),
            "records_out": whole(records_out),
            "restarts": np.repeat(run.restarts[take].astype(np.int32), repeats),
            "checkpoint_id": whole(checkpoint),
            "checkpoint_bytes": np.full(rows, job.state_bytes),
            "checkpoint_ms": np.repeat(rng.integers(5, 60, count)[take], repeats),
            "host_cpu": np.repeat(polls.host_cpu[keep], repeats),
        }
        if first:
            columns["bytes_in"] = whole(np.floor(records_in) * job.bytes_in_per_record)
        if last:
            columns["bytes_out"] = whole(np.floor(records_out) * job.bytes_out_per_record)
        faults = self.truth.faults
        faults["contended"] += int((polls.host_cpu[keep] > CONTENDED).sum())
        return np.repeat(polls.at[keep], repeats), columns

    def _pick_polls(self, rng: np.random.Generator, run: _Run) -> tuple[np.ndarray, np.ndarray]:
        """The polls that have a row, and how many each has."""
        lost = (rng.random(self.count) < self.spec.missed) | run.polls.silent
        keep = np.flatnonzero(~lost)
        repeats = 1 + (rng.random(len(keep)) < self.spec.duplicates)
        self.truth.faults["lost"] += int(lost.sum())
        self.truth.faults["duplicates"] += int(repeats.sum() - len(keep))
        return keep, repeats

    def _some_nan(
        self, rng: np.random.Generator, busy: np.ndarray, has_busy_time: bool
    ) -> pa.Array:
        missing = rng.random(len(busy)) < (self.spec.nan if has_busy_time else 1.0)
        null = missing & (rng.random(len(busy)) < 0.5)
        self.truth.faults["nan"] += int(missing.sum())
        return pa.array(np.where(missing, np.nan, busy), mask=null)


def _link_rows(
    spec: Spec, rng: np.random.Generator, run: _Run, index: int
) -> list[tuple[np.ndarray, dict[str, Any]]]:
    """What its reader and its producer say of their links, some of the polls apart."""
    job, count = run.truth, len(run.polls.at)
    step = max(1, round(spec.links_every_s / spec.every_s))
    some = np.arange(0, count, step)
    some = some[~run.polls.silent[some]]
    messages_in = np.floor(total(run.records, np.cumsum(np.diff(run.attempt, prepend=1))))
    rows = len(some)
    grows = 0.5 * job.in_rate * run.polls.at if job.saturated else 0
    lag = np.int64(rng.integers(0, 20, count) + grows)
    ends = (
        ("reader", job.source_site, f"{job.composition}-t{index}", "", messages_in),
        ("producer", job.sink_site, f"{job.composition}-t{index + 1}", "-out", None),
    )
    tables = []
    for role, broker, topic, suffix, messages in ends:
        counted = messages if messages is not None else messages_in * job.selectivity
        columns: dict[str, Any] = {
            "broker_site": same(broker, rows),
            "topic": same(topic, rows),
            "role": same(role, rows),
            "client_id": same(f"speck-1-{job.job_name}{suffix}", rows),
            "job_name": same(job.job_name, rows),
            "engine_site": same(job.site, rows),
            "epoch": np.int64(run.attempt[some]) if messages is None else None,
            "messages": np.int64(counted[some]),
            "lag": lag[some] if messages is not None else None,
        }
        tables.append((run.polls.at[some], columns))
    return tables


def _plan_rows(run: _Run, index: int) -> list[tuple[np.ndarray, dict[str, Any]]]:
    """When an incarnation is first seen, and each hour."""
    job = run.truth
    answered = np.flatnonzero(~run.polls.silent)
    hours = np.diff(np.floor(run.polls.at[answered] / 3600), prepend=-1) > 0
    some = answered[hours | (np.diff(run.attempt[answered], prepend=0) > 0)]
    words = {
        1: ("Source: speck -> map -> Sink: speck",),
        2: ("Source: speck -> map", "aggregate -> Sink: speck"),
        3: ("Source: speck -> map", "aggregate", "Sink: speck"),
    }[job.tasks]
    ships = ([], ["HASH"], ["REBALANCE"])
    rows = len(some)
    names = [incarnation_of(job.job_name, n) for n in range(1, int(run.attempt[-1]) + 1)]
    tables = []
    for number, description in enumerate(words):
        columns: dict[str, Any] = {
            "job_name": same(job.job_name, rows),
            "site": same(job.site, rows),
            "engine_job_id": pick(names, run.attempt[some] - 1),
            "vertex": same(vertex_of(job.job_name, number), rows),
            "description": same(description, rows),
            "parallelism": np.full(rows, job.subtasks if number == 1 else 1, np.int32),
            "ship_strategies": pa.array([ships[number]] * rows, pa.list_(pa.string())),
            "source_site": same(job.source_site, rows),
            "source_topic": same(f"{job.composition}-t{index}", rows),
            "sink_site": same(job.sink_site, rows),
            "sink_topic": same(f"{job.composition}-t{index + 1}", rows),
            "pinned": np.full(rows, False),
            "stateful": None,
        }
        tables.append((run.polls.at[some], columns))
    return tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    for name, kind in (("jobs", int), ("sites", int), ("hours", float), ("seed", int)):
        parser.add_argument(f"--{name}", type=kind, default=getattr(Spec(), name))
    parser.add_argument("--every", type=float, default=10.0, dest="every_s")
    arguments = vars(parser.parse_args())
    folder = arguments.pop("folder") or Path(tempfile.mkdtemp(prefix="samples-"))
    began = time.monotonic()
    truth = generate(folder, Spec(**arguments))
    seconds = time.monotonic() - began
    report = {"folder": str(folder), "rows": truth.rows, "faults": truth.faults, "seconds": seconds}
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
