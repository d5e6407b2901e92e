"""The control plane against 10 to 1000 simulated sites of ten jobs each.

The service is the real one in a process of its own, and so is the one Mosquitto for all sites (a
listener for each, by a forwarder); engines are simulated (`bench.simulated_flink`), with the
latencies of a real Flink that is measured first. A composition holds up to 1000 jobs, as pipelines
of ten: seven jobs at one site, three at the next. At the end one composition of all 10 000
jobs is planned, applied and applied again.

`make bench-scale` writes bench/results/scale.json; QUICK=1 takes 10 and 30 sites. With `--sites N`
or `--whole` only these rows are measured, and no result is written.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import requests

from bench.common import RESULTS, say
from bench.experiment import Experiment, percentile
from bench.flink_latencies import measure as measure_latencies
from bench.scale_checks import (
    JOBS_A_SITE,
    QUICK,
    SIZES,
    WATCH_S,
    WHOLE_SITES,
    checks,
    compare,
    summary,
)
from bench.simulated_flink import addresses
from bench.usage import cpu_s, processes, tree_cpu_s
from speck.errors import SpeckError
from speck.fog import mosquitto
from speck.fog.paths import edge_jar
from speck.fog.service import Served, serving
from speck.model.values import JsonObject

JOBS_A_COMPOSITION = 1000
SLOTS = 16
CHECKPOINT_S = 10.0
LOOKS = 30 if QUICK else 200
"""Of each kind, at the real Flink."""
COLLECT_S = (2.0, 2.0) if QUICK else (10.0, 30.0)
"""Between two polls by the collector, at up to 300 sites and past that."""
IDLE_S = (4.0, 4.0) if QUICK else (20.0, 60.0)
"""At up to 300 sites and past that, where the watch takes longer for a round. Longer than the
service keeps an idle connection: one that it closes as the next request is sent is reset."""
REPEATS = 1 if QUICK else 5
"""What takes seconds, and can be repeated, is the median of so many."""
READS = 10 if QUICK else 100
READ_FOR_S = 0.5 if QUICK else 2.0
WAIT_S = 800
BASE = f"127.{16 + os.getpid() % 200}.64.0"
"""Loopback addresses that no other run has."""
ENGINE_PORT, BROKER_PORT = 8081, 1883
POLLER = "speck.sites.pollers.process"


def main() -> None:
    parser = argparse.ArgumentParser(description="the control plane at many simulated sites")
    only = "measure only these rows, which the next run without it uses"
    parser.add_argument("--sites", type=int, nargs="+", choices=SIZES, default=(), help=only)
    parser.add_argument("--whole", action="store_true", help="the same: one composition of all")
    options = parser.parse_args()
    in_part = bool(options.sites or options.whole)
    experiment = Experiment(
        "scale",
        {
            "sizes": list(SIZES),
            "jobs_a_site": JOBS_A_SITE,
            "jobs_a_composition": JOBS_A_COMPOSITION,
            "slots": SLOTS,
            "checkpoint_interval_s": CHECKPOINT_S,
            "watch_s": WATCH_S,
            "collect_s": list(COLLECT_S),
            "idle_s": list(IDLE_S),
            "reads": READS,
            "repeats": REPEATS,
        },
        simulated=[
            "All engines: one process speaks Flink's REST API for every site. Their latencies are"
            " drawn, each by itself, from those of one real Flink with ten jobs on this machine"
            " (row `latencies`): they do not grow with load. No job runs and no record flows.",
            "All sites share one real Mosquitto; a forwarder (bench.mount) gives each an address"
            " of its own and keeps their topics apart. Nothing is published but what speck"
            " publishes: no reader or sink tells numbers.",
            "Service, simulator, Mosquitto and the client share this machine's cores.",
        ],
    )
    latencies = experiment.row(
        "latencies", lambda: {"seconds": measure_latencies(LOOKS, CHECKPOINT_S)}
    )["seconds"]
    whole, broke, sites = None, "", 0
    former = read_former()
    try:
        for sites in options.sites if in_part else SIZES:
            experiment.row(f"{sites} sites", lambda n=sites: measure_size(n, latencies))
        if options.whole or not in_part:
            sites = WHOLE_SITES
            whole = experiment.row(
                "one composition", lambda: measure_size(WHOLE_SITES, latencies, whole=True)
            )
    except (RuntimeError, requests.RequestException, SpeckError) as error:
        broke = f"{sites} sites: {error}"[:500]  # where it breaks is a result, too
        say(broke)
    if in_part:
        sys.exit(1 if broke else 0)
    rows = [row for row in experiment.rows if "reads" in row]
    rows.sort(key=lambda row: int(row["sites"]))
    slower = compare(former, rows[0]) if former and rows else {}
    result = {**summary(rows, whole, latencies), "broke": broke or None, "to_former": slower}
    sys.exit(experiment.finish(result, checks(rows, latencies, broke, slower)))


def read_former() -> JsonObject | None:
    """The row of the smallest size in the last result."""
    file = RESULTS / "scale.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    return next((row for row in rows if row["key"] == f"{SIZES[0]} sites"), None)


# -- one size -----------------------------------------------------------------------------


def measure_size(sites: int, latencies: JsonObject, *, whole: bool = False) -> JsonObject:
    """All measurements at one number of sites, from an empty store on; `whole`: those of one
    composition with all jobs."""
    with (
        tempfile.TemporaryDirectory(prefix="speck-bench-") as folder,
        fog_of(sites, Path(folder), latencies) as others,
    ):
        size = Size(sites, Path(folder) / "home", others)
        return size.measure_whole() if whole else size.measure_all()


@contextmanager
def fog_of(sites: int, folder: Path, latencies: JsonObject) -> Iterator[dict[str, int]]:
    """Simulated engines and one broker that they share; process ids by name."""
    (folder / "latencies.json").write_text(json.dumps(latencies))
    many = ["--base", BASE, "--sites", str(sites)]
    engines = ["--port", str(ENGINE_PORT), "--slots", str(SLOTS), "--interval", str(CHECKPOINT_S)]
    engines += ["--latencies", str(folder / "latencies.json")]
    with ExitStack() as stack:
        broker = stack.enter_context(mosquitto.start(folder / "broker"))
        to = ["--port", str(BROKER_PORT), "--to", f"{broker.host}:{broker.port}"]
        yield {
            "engines": stack.enter_context(program("bench.simulated_flink", *many, *engines)).pid,
            "mount": stack.enter_context(program("bench.mount", *many, *to)).pid,
            "broker": broker.pid,
        }


@contextmanager
def program(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A module as a process that says a line when it is ready; ended with the block."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            expect("answer" in process.stdout.readline(), f"{module} does not start; see above")
            yield process
        finally:
            process.terminate()


class Size:
    """The measurements at one number of sites."""

    def __init__(self, sites: int, home: Path, others: dict[str, int]):
        self.sites = sites
        self.home = home
        self.others = others
        self.hosts = addresses(BASE, sites)
        self.result: JsonObject = {
            "sites": sites,
            "jobs": sites * JOBS_A_SITE,
            "compositions": math.ceil(sites * JOBS_A_SITE / JOBS_A_COMPOSITION),
        }
        self._api: Api | None = None

    def measure_all(self) -> JsonObject:
        began = time.monotonic()
        with self.service(collect_s=0) as server:
            self.cpu_of("register", self.register)
            self.cpu_of("plan", lambda: self.plans("many"), times=REPEATS)
            self.cpu_of("apply", self.apply)
            self.record("rss_mb", rss_mb(server.process.pid))
            self.cpu_of("noop", self.apply_again, times=REPEATS)
            self.result["reads"] = self.reads()
            self.result["watch"] = self.measure_watch(server)
            self.record("store_bytes", size_of(self.home / "store"))
            self.record("rss_after_mb", rss_mb(server.process.pid))
        times = [self.restart() for _ in range(1 if self.sites > 300 else REPEATS)]
        for name, seconds in zip(("ready", "looked"), zip(*times, strict=True), strict=True):
            self.record(f"restart_{name}_s", statistics.median(seconds))
        self.collect_s = COLLECT_S[self.sites > 300]
        with self.service(self.collect_s) as server:
            self.result["collector"] = self.measure_collector(server)
        self.record("took_s", time.monotonic() - began)
        return self.result

    def measure_whole(self) -> JsonObject:
        """One composition of all jobs: plan, apply and apply again."""
        self.result["compositions"] = 1
        with self.service(collect_s=0) as server:
            self.register()
            self.cpu_of("plan", lambda: self.plans("one"), times=REPEATS)
            self.cpu_of("apply", lambda: self.apply("one"))
            self.cpu_of("noop", lambda: self.apply_again("one"), times=REPEATS)
            self.result["change"] = self.read("change", f"/changes/{self.change}")
            self.record("rss_mb", rss_mb(server.process.pid))
        return self.result

    @contextmanager
    def service(self, collect_s: float) -> Iterator[Served]:
        more = {"SPECK_METRICS_S": str(collect_s), "SPECK_WATCH_S": str(WATCH_S)}
        jars = [edge_jar("speck-jobs.jar").parent]
        with serving(self.home, jars, timeout_s=120, more=more) as server:
            self._api = Api(server.url)
            self.service_pid = server.process.pid
            yield server

    @property
    def api(self) -> Api:
        assert self._api is not None
        return self._api

    def record(self, name: str, value: float) -> None:
        self.result[name] = round(value, 4)
        say(f"  {self.sites} sites: {name} {self.result[name]}")

    def cpu_of(self, name: str, action: Callable[[], None], times: int = 1) -> None:
        """Seconds of `action`, the median of so many `times`, and the share of a core that each
        process used meanwhile."""
        before, seconds = self.cpu(), []
        for _ in range(times):
            began = time.perf_counter()
            action()
            seconds.append(time.perf_counter() - began)
        self.record(f"{name}_s", statistics.median(seconds))
        by_process = self.cores_since(before, sum(seconds))
        self.result.setdefault("cores", {})[name] = by_process
        say(f"  {self.sites} sites: cores {by_process}")

    # -- steps ----------------------------------------------------------------------------

    def register(self) -> None:
        """From eight clients: each answer waits for a first poll of the site."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self.register_one, range(1, self.sites + 1)))
        states = {site["state"] for site in self.all_sites()}
        expect(states == {"up"}, f"sites are {states}")

    def register_one(self, n: int) -> None:
        host = self.hosts[n - 1]
        body = {
            "name": f"site-{n:04d}",
            "tier": "cloud" if n == 1 else "edge",
            "spe": {"kind": "flink", "address": f"http://{host}:{ENGINE_PORT}"},
            "broker": {"kind": "mqtt", "address": f"tcp://{host}:{BROKER_PORT}"},
        }
        Api(self.api.url).call("POST", "/sites", body)

    def all_sites(self) -> list[JsonObject]:
        """As soon as none is unknown."""
        until = time.monotonic() + 60
        while True:
            sites: list[JsonObject] = self.api.call("GET", "/sites")["sites"]
            if all(site["state"] != "unknown" for site in sites) or time.monotonic() > until:
                return sites

    def plans(self, kind: str) -> None:
        for composition in self.compositions(kind):
            planned = self.api.call("POST", "/compositions", composition, dry_run="true")
            starts = sum(step["kind"] == "start" for step in planned["plan"]["operations"])
            expect(starts == len(composition["jobs"]), f"{starts} starts are planned")

    def apply(self, kind: str = "many") -> None:
        for composition in self.compositions(kind):
            answer = self.api.call("POST", "/compositions", composition, wait=WAIT_S)
            if answer.get("state") != "done":
                change = self.api.call("GET", f"/changes/{answer['change']}")
                raise RuntimeError(f"cannot deploy: {change['state']}, {change['error']}")
            self.change = answer["change"]

    def apply_again(self, kind: str = "many") -> None:
        for composition in self.compositions(kind):
            answer = self.api.call("POST", "/compositions", composition, wait=WAIT_S)
            expect(answer["plan"]["operations"] == [], "applying again plans something")
            expect(answer.get("state") == "done", f"the change is {answer.get('state')}")

    def reads(self) -> JsonObject:
        job = f"c0-{self.sites * JOBS_A_SITE // 2 % JOBS_A_COMPOSITION:04d}"
        paths = {
            "livez": "/livez",
            "job": f"/jobs/{job}",
            "jobs": "/jobs?limit=100",
            "composition": "/compositions/c0",
            "drift": "/compositions/c0/drift",
            "sites": "/sites",
            "change": f"/changes/{self.change}",
            "metrics": "/metrics",
        }
        return {name: self.read(name, path) for name, path in paths.items()}

    def read(self, name: str, path: str) -> JsonObject:
        """Times of one GET, one after another."""
        seconds: list[float] = []
        cpu_before_s, began = tree_cpu_s(self.service_pid), time.monotonic()
        while len(seconds) < READS and (time.monotonic() - began < READ_FOR_S or len(seconds) < 3):
            at = time.perf_counter()
            size = self.api.get(path)
            seconds.append(time.perf_counter() - at)
        p50, p99 = (round(1000 * (percentile(seconds, share) or 0), 2) for share in (0.5, 0.99))
        cpu_ms = round(1000 * (tree_cpu_s(self.service_pid) - cpu_before_s) / len(seconds), 2)
        say(f"  {self.sites} sites: GET {name} p50 {p50} p99 {p99} CPU {cpu_ms} ms, {size} bytes")
        latency = {"n": len(seconds), "p50_ms": p50, "p99_ms": p99, "cpu_ms": cpu_ms, "bytes": size}
        return latency

    def measure_watch(self, server: Served) -> JsonObject:
        """How often each site is actually polled in an idle system, and the CPU time."""
        kinds = ("engine", "numbers", "checkpoints")
        before, cpu_before, began = self.count_polls(), self.cpu(), time.monotonic()
        time.sleep(IDLE_S[self.sites > 300])
        seconds = time.monotonic() - began
        cores = self.cores_since(cpu_before, seconds)
        after = self.count_polls()
        polls: JsonObject = {
            f"{kind}_every_s": round(seconds * self.sites / max(1, after[kind] - before[kind]), 2)
            for kind in kinds
        }
        polls["cores"] = cores
        say(f"  {self.sites} sites: watch {polls}")
        return polls

    def measure_collector(self, server: Served) -> JsonObject:
        """How many polls of the collector are answered in time in its second round, and the CPU
        time."""
        time.sleep(1.05 * self.collect_s)  # names of metrics are learnt in the first round
        cpu_before, began = self.cpu(), time.monotonic()
        before = self.counts("speck_collector_polls_total", "speck_collector_gaps_total")
        time.sleep(self.collect_s)
        cores = self.cores_since(cpu_before, time.monotonic() - began)
        after = self.counts("speck_collector_polls_total", "speck_collector_gaps_total")
        answered, gaps = (b - a for a, b in zip(before, after, strict=True))
        figures = {
            "every_s": self.collect_s,
            "answered": answered,
            "gaps": gaps,
            "cores": cores,
            "rss_mb": rss_mb(server.process.pid),
        }
        say(f"  {self.sites} sites: collector {figures}")
        return figures

    def restart(self) -> tuple[float, float]:
        """Seconds until it is ready, and until each site was polled once."""
        began = time.perf_counter()
        with self.service(collect_s=0):
            ready_s = time.perf_counter() - began
            while True:
                started_at = time.perf_counter()
                if (
                    min(v for k, v in self.count_polls().items() if k != "checkpoints")
                    >= self.sites
                ):
                    break
                expect(started_at - began < 300, "not every site is polled")
                time.sleep(max(0.2, 4 * (time.perf_counter() - started_at)))  # to ask costs, too
            looked_s = time.perf_counter() - began
            heads = self.api.call("GET", "/changes", limit=1000)["changes"]
            repairs = [head for head in heads if head["cause"] == "repair"]
            expect(not repairs, f"{len(repairs)} repairs though nothing broke")
        return ready_s, looked_s

    # -- how ------------------------------------------------------------------------------

    def compositions(self, kind: str) -> Iterator[JsonObject]:
        """Of a thousand jobs each (`many`), or all jobs in one (`one`)."""
        jobs = self.sites * JOBS_A_SITE
        size = JOBS_A_COMPOSITION if kind == "many" else jobs
        for first in range(0, jobs, size):
            name = f"c{first // size}" if kind == "many" else "all"
            numbers = range(first, min(first + size, jobs))
            yield {"name": name, "jobs": [self.job(name, n, n - first) for n in numbers]}

    def job(self, composition: str, n: int, number: int) -> JsonObject:
        """The n-th job: seven of a pipeline at one site, three at the next."""
        pipeline, place = divmod(n, JOBS_A_SITE)
        at = [(pipeline + (each >= 7)) % self.sites + 1 for each in (place, place + 1)]
        topic = f"{composition}/{pipeline}"
        return {
            "job_name": f"{composition}-{number:04d}",
            "site": f"site-{at[0]:04d}",
            "source_topic": f"{topic}/{place}",
            "sink_topic": f"{topic}/{place + 1}",
            "sink_site": f"site-{at[1]:04d}",
            "entry_class": "io.speck.jobs.PassThrough",
            "job_path": "speck-jobs.jar",
        }

    def cpu(self) -> dict[str, float]:
        """Seconds of CPU time that each has used; `client` is this program."""
        seconds = {"service": tree_cpu_s(self.service_pid), "pollers": 0.0}
        for pid in processes(self.service_pid):
            if POLLER in psutil.Process(pid).cmdline():
                seconds["pollers"] += cpu_s(pid)
        seconds["service"] -= seconds["pollers"]
        others = {who: tree_cpu_s(pid) for who, pid in self.others.items()}
        return {**seconds, **others, "client": cpu_s(os.getpid())}

    def cores_since(self, before: dict[str, float], seconds: float) -> dict[str, float]:
        return {who: round((now - before[who]) / seconds, 3) for who, now in self.cpu().items()}

    def count_polls(self) -> dict[str, float]:
        text = self.api.text("/metrics")
        counters = re.findall(r'^speck_polls_total\{at="(\w+)"\} (\S+)$', text, re.M)
        return {kind: float(count) for kind, count in counters}

    def counts(self, *names: str) -> list[float]:
        text = self.api.text("/metrics")
        return [float(re.findall(rf"^{name} (\S+)$", text, re.M)[0]) for name in names]


class Api:
    """The service over HTTP; refuses any answer that is no success."""

    def __init__(self, url: str):
        self.url = url
        self._session = requests.Session()
        self._session.trust_env = False

    def call(self, method: str, path: str, body: object = None, **query: object) -> JsonObject:
        answer = self._session.request(
            method, self.url + path, json=body, params=query, timeout=WAIT_S + 60
        )
        if not answer.ok:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text[:2000]}")
        return answer.json() if answer.content else {}

    def text(self, path: str) -> str:
        answer = self._session.get(self.url + path, timeout=WAIT_S)
        answer.raise_for_status()
        return answer.text

    def get(self, path: str) -> int:
        """Bytes of the answer."""
        answer = self._session.get(self.url + path, timeout=WAIT_S)
        answer.raise_for_status()
        return len(answer.content)


def expect(holds: bool, otherwise: str) -> None:
    """Raise when a measured value is not the expected one."""
    if not holds:
        raise RuntimeError(f"cannot go on: {otherwise}")


def rss_mb(pid: int) -> float:
    """Of the largest of a process and its children: the worker."""
    return round(max(psutil.Process(each).memory_info().rss for each in processes(pid)) / 2**20, 1)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    main()
