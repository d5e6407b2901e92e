"""The service under clients that are slow, silent, too many or hostile.

The service is the real one in a process of its own, and so is each attack (`bench.attackers`).
During an attack new connections ask for /livez, for readiness with a heartbeat, and for the list
of jobs; then the attack ends, and it is measured how long it takes until all is as before.

Before that the worker is compared with gunicorn's own, which it replaced, in the same run: time and
rate of GET /livez and GET /jobs, measured in turns.

`make bench-overload` writes bench/results/overload.json; QUICK=1 attacks for two seconds each.
"""

from __future__ import annotations

import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import requests

from bench import soak
from bench.common import say
from bench.experiment import Check, Experiment, is_quick, percentile
from bench.sample_spec import Spec
from bench.samples import generate
from speck.clock import SystemClock
from speck.fog.service import Served, serving
from speck.model.values import JsonObject
from speck.service.tokens import Tokens
from speck.store.records import Records

QUICK = is_quick()
ATTACK_S = 2.0 if QUICK else 30.0
RECOVERY_S = 60.0
PROBE_EVERY_S = 0.05
CALM = 20
"""Probes in a row that must be as before, until the service has recovered."""

CALM_FACTOR = 5.0
CALM_FLOOR_MS = 50.0
"""As before: up to this many times the p99 without an attack, or this."""

JOBS = 16
FILES = 512
"""The limit of open files during the attack on descriptors."""

SINGLE = ("one byte", "slow headers", "slow bodies", "slow readers", "idle connections")
CALLS = ("checks of a hanging engine", "hostile documents", "import and analysis")
EXPANDING = (
    *("large defaults", "dense documents", "archives with a decoy", "slow programs"),
    "a hostile engine",
)
"""What becomes large or slow once it is parsed; the engine stays registered, and so comes last."""
HOLDING = ("readers of exports", "dry runs at a hanging engine")
"""Clients with a valid token that hold what others need."""
DESCRIPTORS = "descriptors"
WAITING = "all but hostile documents"
TOGETHER = "all together"
SOAK = "soak"
MOST_MS = 1000.0
MOST_RECOVERY_S = 10.0
MOST_GROWTH_MB = 300
"""Of attacks by content that expands, or by what is held, beyond the memory without an attack."""

ROUNDS = 3 if QUICK else 15
ROUND_REQUESTS = 50 if QUICK else 400
CLIENTS = 4
MOST_RATIO = 1.1
WORKERS = {"before": {"BENCH_WORKER": "threads"}, "now": {}}
ROUTES = ("/livez", "/jobs")


def main() -> None:
    experiment = Experiment(
        "overload",
        {
            "attack_s": ATTACK_S,
            "probe_every_s": PROBE_EVERY_S,
            "jobs": JOBS,
            "files": FILES,
            "rounds": ROUNDS,
            "requests": ROUND_REQUESTS,
            "clients": CLIENTS,
        },
        simulated=[
            "Engine and broker of the site with jobs exist in the service's memory alone; the"
            " engine that hangs is a socket that takes connections and never answers.",
            "Attackers, probes and service share this machine's cores.",
        ],
    )
    comparison = compare()  # no row: those are attacks
    with service() as target:
        calm = experiment.row(
            "none", lambda: {"attack": "none", **measure(target, ())[0], "recovered_s": 0.0}
        )
        for attack in (*SINGLE, *CALLS):
            experiment.row(attack, lambda it=attack: run(target, it, [it], calm))
        everything = [*SINGLE, *CALLS]
        waiting = [attack for attack in everything if attack != "hostile documents"]
        experiment.row(WAITING, lambda: run(target, WAITING, waiting, calm))
        experiment.row(TOGETHER, lambda: run(target, TOGETHER, everything, calm))
    with service() as target:
        for attack in EXPANDING:
            experiment.row(attack, lambda it=attack: run(target, it, [it], calm))
    with service() as target:
        for attack in HOLDING:
            experiment.row(attack, lambda it=attack: run(target, it, [it], calm))
    with service() as target:
        soaked = experiment.row(SOAK, lambda: {"attack": SOAK, **soak.soak(target)})
    with service(BENCH_FILES=str(FILES)) as target:
        experiment.row(DESCRIPTORS, lambda: run(target, DESCRIPTORS, [DESCRIPTORS], calm))
    rows = [row for row in experiment.rows if row["attack"] not in ("none", SOAK)]
    summary = {"calm": calm, "attacks": rows, "soak": soaked, "comparison": comparison}
    wanted = [*checks(rows, calm, comparison), *soak.checks(soaked)]
    sys.exit(experiment.finish(summary, wanted))


def checks(rows: Sequence[JsonObject], calm: JsonObject, comparison: JsonObject) -> Iterator[Check]:
    """What is wanted of every attack and of the comparison."""
    for row in rows:
        if row["attack"] in (*EXPANDING, *HOLDING):
            grown = row["memory_mb"] - calm["memory_mb"]
            name = f"memory grown by {row['attack']}"
            yield Check(name, f"<= {MOST_GROWTH_MB} MB", grown, grown <= MOST_GROWTH_MB)
        worst = max(row["livez_p99_ms"], row["vital_p99_ms"])
        yield Check(
            f"health and heartbeats, {row['attack']}",
            f"p99 <= {MOST_MS:g} ms",
            worst,
            worst <= MOST_MS,
        )
        failures = row["failures"]["livez"] + row["failures"]["vital"]
        yield Check(f"health without an answer, {row['attack']}", "0", failures, failures == 0)
        recovered = row["recovered_s"]
        yield Check(
            f"recovered from {row['attack']}",
            f"<= {MOST_RECOVERY_S:g} s",
            recovered,
            recovered is not None and recovered <= MOST_RECOVERY_S,
        )
        yield Check(
            f"the same worker after {row['attack']}",
            "yes",
            row["same_worker"],
            row["same_worker"],
            always=True,
        )
    for route, it in comparison.items():
        for name in ("p50_ratio", "rate_ratio"):
            yield Check(
                f"{route} against gunicorn's worker, {name}",
                f"<= {MOST_RATIO:g}",
                it[name],
                it[name] <= MOST_RATIO,
            )


# -- the service --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """A service under attack."""

    program: Served
    token: str

    @property
    def url(self) -> str:
        return self.program.url

    def worker(self) -> psutil.Process:
        """The process that answers."""
        return psutil.Process(self.program.process.pid).children()[0]

    def call(self, method: str, path: str, **more: object) -> requests.Response:
        """On a new connection, like that of a health check."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return requests.request(method, self.url + path, headers=headers, timeout=60, **more)  # type: ignore[arg-type]


@contextmanager
def service(**settings: str) -> Iterator[Target]:
    """A fresh one with jobs, metrics and a site whose engine hangs."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="speck-bench-")))
        home, jars = folder / "home", folder / "jars"
        home.mkdir()
        jars.mkdir()
        with zipfile.ZipFile(jars / "a.jar", "w") as archive:
            archive.writestr("package/Job.class", b"")
        start = datetime.now(UTC) - timedelta(hours=2)
        generate(home / "metrics", Spec(jobs=20 if QUICK else 100, hours=1.0, start=start))
        clock = SystemClock()
        records = Records.open(home / "store", clock)
        token = Tokens(records, clock).add("root", "admin")
        records.store.close()
        more = {"SPECK_SIMULATED": "1", **settings}
        module = "bench.overload_server"
        program = stack.enter_context(serving(home, [jars], more=more, module=module))
        hung = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096))
        target = Target(program, token)
        _fill(target, hung.getsockname()[1])
        yield target


def _fill(target: Target, hung_port: int) -> None:
    broker = {"kind": "memory", "address": "tcp://edge-a:1883"}
    edge = {"kind": "memory", "address": "http://edge-a:8081"}
    hung = {"kind": "flink", "address": f"http://127.0.0.1:{hung_port}"}
    away = {**broker, "address": "tcp://hung:1883"}
    for site in (
        {"name": "edge-a", "tier": "edge", "spe": edge, "broker": broker},
        {"name": "hung", "tier": "edge", "spe": hung, "broker": away},
    ):
        _must(target.call("POST", "/sites", json=site))
    jobs = [
        {
            "job_name": f"j{number}",
            "site": "edge-a",
            "source_topic": f"in-{number}",
            "sink_topic": f"out-{number}",
            "entry_class": "package.Job",
            "job_path": "a.jar",
        }
        for number in range(JOBS)
    ]
    _must(target.call("POST", "/compositions?wait=60", json={"name": "x", "jobs": jobs}))


def _must(answer: requests.Response) -> None:
    if not answer.ok:
        raise RuntimeError(f"{answer.request.method} {answer.url}: {answer.text[:2000]}")


# -- attacks ------------------------------------------------------------------------------


@dataclass(slots=True)
class Probe:
    """Calls that are made again and again; how long each took, in ms."""

    calls: Sequence[Callable[[], requests.Response]]
    times_ms: list[float] = field(default_factory=list)
    failures: int = 0

    def once(self) -> float:
        """Call each of them; the longest time."""
        longest = 0.0
        for call in self.calls:
            began = time.perf_counter()
            try:
                self.failures += not call().ok
            except requests.RequestException:
                self.failures += 1
            took = 1000 * (time.perf_counter() - began)
            self.times_ms.append(took)
            longest = max(longest, took)
        return longest

    def p99_ms(self) -> float:
        return round(percentile(self.times_ms, 0.99) or 0.0, 1)


def probes(target: Target) -> dict[str, Probe]:
    """What is asked during an attack."""

    def get(path: str) -> Callable[[], requests.Response]:
        return lambda: target.call("GET", path)

    return {
        "livez": Probe([get("/livez")]),
        "vital": Probe(
            [get("/readyz"), lambda: target.call("POST", "/sites/edge-a/heartbeat", json={})]
        ),
        "reads": Probe([get("/jobs")]),
    }


def measure(target: Target, attacks: Sequence[str]) -> tuple[JsonObject, float]:
    """Probe for `ATTACK_S` while these attacks go on; the figures, and the moment (of the
    monotonic clock) at which the attacks ended."""
    all_probes = probes(target)
    worker = target.worker()
    over = threading.Event()
    memory: list[int] = []

    def repeat(action: Callable[[], object]) -> None:
        while not over.wait(PROBE_EVERY_S):
            action()

    actions: list[Callable[[], object]] = [probe.once for probe in all_probes.values()]
    actions.append(lambda: memory.append(worker.memory_info().rss))
    threads = [threading.Thread(target=repeat, args=(action,)) for action in actions]
    with attacking(target, attacks):
        for thread in threads:
            thread.start()
        time.sleep(ATTACK_S)
        over.set()
    end = time.monotonic()
    for thread in threads:
        thread.join()
    cancel_analyses(target)
    return {
        **{f"{name}_p99_ms": probe.p99_ms() for name, probe in all_probes.items()},
        "probes": {name: len(probe.times_ms) for name, probe in all_probes.items()},
        "failures": {name: probe.failures for name, probe in all_probes.items()},
        "memory_mb": round(max(memory) / 2**20),
    }, end


def run(target: Target, name: str, attacks: Sequence[str], calm: JsonObject) -> JsonObject:
    """One attack and what comes after it."""
    worker = target.worker().pid
    figures, end = measure(target, attacks)
    recovered = recovery_s(target, calm, end)
    same = target.worker().pid == worker
    return {"attack": name, **figures, "recovered_s": recovered, "same_worker": same}


def recovery_s(target: Target, calm: JsonObject, end: float) -> float | None:
    """Seconds from the attack's end until the first of `CALM` probes in a row that are as before
    it."""
    all_probes = probes(target)
    limits = {name: max(CALM_FLOOR_MS, CALM_FACTOR * calm[f"{name}_p99_ms"]) for name in all_probes}
    since, good = end, 0
    while time.monotonic() - end < RECOVERY_S:
        at = time.monotonic()
        results = [probe.once() <= limits[name] for name, probe in all_probes.items()]
        fine = all(results) and not any(probe.failures for probe in all_probes.values())
        for probe in all_probes.values():
            probe.failures = 0
        if not fine:
            good = 0
            continue
        since = at if good == 0 else since
        good += 1
        if good == CALM:
            return round(since - end, 2)
        time.sleep(PROBE_EVERY_S)
    return None


@contextmanager
def attacking(target: Target, attacks: Sequence[str]) -> Iterator[None]:
    """Attacks in processes of their own, which have begun; over with the block."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.attackers", attack, target.url, target.token],
            stdout=subprocess.PIPE,
            preexec_fn=_raise_file_limit,
        )
        for attack in attacks
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != b"begun\n":
                raise RuntimeError("cannot attack: an attacker ended before it began")
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def cancel_analyses(target: Target) -> None:
    """What an attack has begun goes on without it."""
    for analysis in target.call("GET", "/analyses?state=running").json()["analyses"]:
        target.call("DELETE", f"/analyses/{analysis['id']}")


def _raise_file_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# -- against gunicorn's own worker --------------------------------------------------------


def compare() -> JsonObject:
    """Time and rate of two routes, of both workers in turns."""
    with ExitStack() as stack:
        targets = {
            name: stack.enter_context(service(**settings)) for name, settings in WORKERS.items()
        }
        times: dict[tuple[str, str], list[float]] = {}
        rates: dict[tuple[str, str], list[float]] = {}
        for number in range(ROUNDS):
            say(f"round {number + 1} of {ROUNDS}")
            for route in ROUTES:
                names = list(targets) if number % 2 else list(targets)[::-1]
                for name in names:
                    times.setdefault((name, route), []).append(_p50_ms(targets[name], route))
                    rates.setdefault((name, route), []).append(_rate(targets[name], route))
    routes = {}
    for route in ROUTES:
        p50 = {name: statistics.median(times[name, route]) for name in targets}
        rate = {name: statistics.median(rates[name, route]) for name in targets}
        routes[route] = {
            "p50_ms": {name: round(value, 3) for name, value in p50.items()},
            "requests_per_s": {name: round(value) for name, value in rate.items()},
            "p50_ratio": round(p50["now"] / p50["before"], 3),
            "rate_ratio": round(rate["before"] / rate["now"], 3),
        }
    return routes


class _Client:
    """One kept connection; as little work for each request as possible."""

    def __init__(self, target: Target, route: str):
        address = urlsplit(target.url)
        self._socket = socket.create_connection((address.hostname, address.port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = (f"GET {route} HTTP/1.1", "Host: x", f"Authorization: Bearer {target.token}")
        self._request = "\r\n".join([*lines, "", ""]).encode()

    def ask(self) -> None:
        """One request, and all of its answer."""
        self._socket.sendall(self._request)
        answer = self._socket.recv(65536)
        while b"\r\n\r\n" not in answer:
            answer += self._socket.recv(65536)
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += self._socket.recv(65536)

    def close(self) -> None:
        self._socket.close()


def _p50_ms(target: Target, route: str) -> float:
    client = _Client(target, route)
    times = []
    for _ in range(ROUND_REQUESTS):
        began = time.perf_counter()
        client.ask()
        times.append(time.perf_counter() - began)
    client.close()
    return 1000 * statistics.median(times)


def _rate(target: Target, route: str) -> float:
    """Requests a second of several clients at once."""
    clients = [_Client(target, route) for _ in range(CLIENTS)]

    def ask(client: _Client) -> None:
        for _ in range(ROUND_REQUESTS):
            client.ask()

    threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    for client in clients:
        client.close()
    return CLIENTS * ROUND_REQUESTS / took


if __name__ == "__main__":
    main()
