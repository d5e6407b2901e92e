"""Messages/s and latency through source -> map -> sink, one Flink job on one core.

Beside it, in the same run and taking turns with it: a relay without Flink (two hops through the
same broker, with the same client library and windows), and the bare broker (one hop). Broker and
load generator have one core, the job or the relay has the other.

Throughput: at most `WINDOW` messages are between publisher and reader, as fast as that goes.
Latency: at half the job's own top rate, each message since it was due. Of each, the median of
`ROUNDS` rounds. At QoS 1 it must lose nothing, or there is no result.

`make bench-connector` writes bench/results/connector.json; QUICK=1 takes one short round.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

import requests

from bench.common import is_quick, machine, say, write_result
from bench.load import JAVA_OPTIONS, Cores, JavaProgram, Measured, Order, load, pinning, relay, run
from speck.fog import flink, mosquitto
from speck.fog.paths import edge_jar
from speck.model.values import JsonObject

QUICK = is_quick()
ROUNDS = 1 if QUICK else 3
SECONDS = 1.0 if QUICK else 4.0
LEAD_S = 0.3 if QUICK else 0.5  # of each run, not measured
WARM_UP_S = 1.0 if QUICK else 9.0  # of each variant and payload, for the compilers to do their work
START_LIMIT_S = 120.0
PAYLOADS = (100,) if QUICK else (100, 1000)
DELIVERY = {1: "at_least_once"} if QUICK else {0: "at_most_once", 1: "at_least_once"}
WANTED = 0.8

CHECKPOINT_S = 1.0
# Acknowledging at checkpoints bounds the rate: this many in one checkpoint interval.
# 65535 is the protocol's default, left out when it is asked for, and Mosquitto has another one.
RECEIVE_MAXIMUM = 65534
# Of messages on their way at once: end to end, of the sink, and what the broker takes unanswered.
WINDOW = 2000

CLASS = "io.speck.jobs.PassThrough"
VARIANTS = ("job", "relay", "broker")


@dataclass(frozen=True, slots=True)
class Lab:
    """Everything that runs while one QoS is measured. `processes`: whom each variant keeps busy."""

    qos: int
    generator: JavaProgram
    processes: Mapping[str, Mapping[str, int]]

    def measure(self, variant: str, payload: int, rate: int = 0) -> Measured:
        """Raises RuntimeError when QoS 1 loses or repeats a message."""
        order = self._order(variant, payload, rate, LEAD_S, SECONDS)
        result = run(self.generator, order, self.processes[variant])
        if self.qos > 0 and (result.lost or result.repeated):
            raise RuntimeError(f"cannot trust this run: {variant}, {order}: {result}")
        return result

    def warm_up(self, variant: str, payload: int) -> None:
        run(self.generator, self._order(variant, payload, 0, WARM_UP_S, 0.1), {})

    def _order(self, variant: str, payload: int, rate: int, lead_s: float, seconds: float) -> Order:
        source, sink = topics(self.qos, variant)
        return Order(source, sink, self.qos, payload, WINDOW, rate, lead_s, seconds)


@dataclass(slots=True)
class Figures:
    """The figures of all rounds for one QoS and payload."""

    rates: dict[str, list[Measured]] = field(
        default_factory=lambda: {variant: [] for variant in VARIANTS}
    )
    latencies: dict[str, list[Measured]] = field(
        default_factory=lambda: {variant: [] for variant in ("job", "relay")}
    )

    def rate(self, variant: str) -> float:
        return _median(self.rates[variant], lambda result: result.msgs_per_s)


def topics(qos: int, variant: str) -> tuple[str, str]:
    """The topics that the load generator publishes to and reads; for the bare broker they are the
    same."""
    source = f"bench/{qos}/{variant}"
    return source, source if variant == "broker" else f"{source}/out"


@contextmanager
def lab(qos: int, cores: Cores) -> Iterator[Lab]:
    """A broker, an engine with one job, a relay and a load generator, each on its core."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="speck-bench-")))
        broker = mosquitto.start(
            folder / "broker",
            settings={"max_inflight_messages": str(WINDOW)},
            launch=pinning(cores.load),
        )
        stack.callback(broker.stop)
        settings = engine_settings(folder, CHECKPOINT_S)
        engine = flink.start(settings, launch=pinning(cores.measured))
        stack.callback(engine.stop)
        windows = {"receive-maximum": str(RECEIVE_MAXIMUM), "sink-window": str(WINDOW)}
        job = Job(*topics(qos, "job"), DELIVERY[qos], windows)
        stack.enter_context(submitted(engine, broker, job))
        bare = relay(cores.measured, broker, *topics(qos, "relay"), qos=qos, window=RECEIVE_MAXIMUM)
        stack.enter_context(bare)
        generator = stack.enter_context(load(cores.load, broker))
        common = {"broker": broker.pid, "load": generator.pid}
        yield Lab(
            qos,
            generator,
            {
                "job": {"job": engine.processes["engine"].pid, **common},
                "relay": {"relay": bare.pid, **common},
                "broker": common,
            },
        )


def measure(lab: Lab) -> dict[int, Figures]:
    """All payloads; variants take turns within each round, so that a disturbance affects all."""
    for variant in ("job", "relay"):  # which warms up the load generator, too
        for payload in PAYLOADS:
            lab.warm_up(variant, payload)
    figures = {payload: Figures() for payload in PAYLOADS}
    for number in range(ROUNDS):
        for payload, figure in figures.items():
            for variant in VARIANTS:
                result = lab.measure(variant, payload)
                figure.rates[variant].append(result)
                _tell(lab.qos, payload, number, variant, result)
    for number in range(ROUNDS):
        for payload, figure in figures.items():
            for variant, results in figure.latencies.items():
                result = lab.measure(variant, payload, rate=round(figure.rate("job") / 2))
                results.append(result)
                _tell(lab.qos, payload, number, variant, result)
    return figures


def entry(qos: int, payload: int, figures: Figures, settings: JsonObject) -> JsonObject:
    """One element of connector.json."""
    job, relay = figures.latencies["job"], figures.latencies["relay"]
    return {
        "qos": qos,
        "bytes": payload,
        "msgs_per_s": round(figures.rate("job")),
        "relay_msgs_per_s": round(figures.rate("relay")),
        "broker_msgs_per_s": round(figures.rate("broker")),
        "ratio": round(figures.rate("job") / figures.rate("relay"), 3),
        "p50_ms": _median(job, lambda result: result.p50_ms),
        "p99_ms": _median(job, lambda result: result.p99_ms),
        "relay_p50_ms": _median(relay, lambda result: result.p50_ms),
        "relay_p99_ms": _median(relay, lambda result: result.p99_ms),
        "latency_at_msgs_per_s": round(figures.rate("job") / 2),
        # less than that only when the machine was too busy: the latencies then mean nothing
        "latency_reached_msgs_per_s": round(_median(job, lambda result: result.msgs_per_s)),
        "lost": sum(result.lost for result in figures.rates["job"] + job),
        "rounds": {
            variant: [round(result.msgs_per_s) for result in results]
            for variant, results in figures.rates.items()
        },
        "cpu_us_per_msg": {variant: _cpu_us(results) for variant, results in figures.rates.items()},
        "settings": settings,
    }


def main() -> None:
    cores = Cores.pick()
    settings = {
        "receive_maximum": RECEIVE_MAXIMUM,
        "sink_window": WINDOW,
        "end_to_end_window": WINDOW,
        "broker_max_inflight_messages": WINDOW,
        "checkpoint_interval_s": CHECKPOINT_S,
        "pinning": str(cores),
        "rounds": ROUNDS,
        "warm_up_s": WARM_UP_S,
        "seconds_a_round": SECONDS,
        "machine": machine(),
    }
    for name, value in settings.items():
        say(f"{name}: {value}")
    entries = []
    for qos in DELIVERY:
        with lab(qos, cores) as running:
            for payload, figures in measure(running).items():
                entries.append(entry(qos, payload, figures, settings))
    write_result("connector.json", {"items": entries})
    low = [each for each in entries if each["qos"] == 1 and each["ratio"] < WANTED]
    for each in low:
        say(f"below {WANTED:.0%} of the relay: QoS 1, {each['bytes']} B: {each['ratio']:.0%}")


@dataclass(frozen=True, slots=True)
class Job:
    """A job that passes everything on, unless it is another. `more`: further arguments by name."""

    source: str
    sink: str
    delivery: str
    more: Mapping[str, str]
    entry_class: str = CLASS

    def words(self, broker: mosquitto.Mosquitto) -> list[str]:
        """The arguments of its `main`."""
        arguments = {
            "job-name": "pass-through",
            "source-broker": broker.address,
            "source-topic": self.source,
            "sink-broker": broker.address,
            "sink-topic": self.sink,
            "client-id": f"speck-bench-pass-through-{token_hex(4)}",
            "epoch": "1",
            "delivery": self.delivery,
            "sink-readers": "none",
            **self.more,
        }
        return [word for name, value in arguments.items() for word in (f"--{name}", value)]


def engine_settings(folder: Path, checkpoint_s: float) -> flink.FlinkSettings:
    """An engine for one job."""
    return flink.FlinkSettings(
        folder=folder / "engine",
        state=folder / "state",
        slots=1,
        class_path=[edge_jar("speck-mqtt-connector.jar")],
        checkpoint_interval_s=checkpoint_s,
        # as the relay has it; and the compiler that a site's small engine goes without
        java_options=[*JAVA_OPTIONS, "-XX:TieredStopAtLevel=4"],
    )


@contextmanager
def submitted(engine: flink.Flink, broker: mosquitto.Mosquitto, job: Job) -> Iterator[None]:
    """The job runs, with all its tasks; it is cancelled at the end."""
    with requests.Session() as http:
        http.trust_env = False
        with edge_jar("speck-jobs.jar").open("rb") as jar:
            files = {"jarfile": ("speck-jobs.jar", jar, "application/x-java-archive")}
            answer = http.post(f"{engine.url}/jars/upload", files=files, timeout=60)
        answer.raise_for_status()
        jar_id = str(answer.json()["filename"]).rsplit("/", 1)[1]
        body = {"entryClass": job.entry_class, "programArgsList": job.words(broker)}
        answer = http.post(f"{engine.url}/jars/{jar_id}/run", json=body, timeout=60)
        answer.raise_for_status()
        url = f"{engine.url}/jobs/{answer.json()['jobid']}"
        _await(http, engine, lambda jobs: _is(jobs, url, "RUNNING"), "start the job")
        try:
            yield
        finally:
            http.patch(url, timeout=10).raise_for_status()
            _await(http, engine, lambda jobs: _is(jobs, url, "CANCELED"), "cancel the job")


def _await(
    http: requests.Session,
    engine: flink.Flink,
    reached: Callable[[list[JsonObject]], bool],
    what: str,
) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not reached(http.get(f"{engine.url}/jobs/overview", timeout=10).json()["jobs"]):
        if time.monotonic() > deadline:
            raise RuntimeError(f"cannot {what}; see {engine.log}")
        time.sleep(0.1)


def _is(jobs: list[JsonObject], url: str, state: str) -> bool:
    """Whether the job at `url` is in this state; running: with all its tasks."""
    return any(
        job["state"] == state
        and (state != "RUNNING" or 0 < job["tasks"]["total"] == job["tasks"]["running"])
        for job in jobs
        if url.endswith(job["jid"])
    )


def _cpu_us(results: list[Measured]) -> dict[str, float]:
    """Microseconds of CPU time a message, for each process that has to do with it."""
    return {
        name: round(
            statistics.median(each.cores[name] / each.msgs_per_s * 1e6 for each in results), 1
        )
        for name in results[0].cores
    }


def _median(results: list[Measured], of: Callable[[Measured], float | None]) -> float:
    values = [value for value in map(of, results) if value is not None]
    return statistics.median(values)


def _tell(qos: int, payload: int, number: int, variant: str, result: Measured) -> None:
    cores = ", ".join(f"{name} {busy:.2f}" for name, busy in result.cores.items())
    late = "" if result.p50_ms is None else f" p50 {result.p50_ms} p99 {result.p99_ms} ms"
    say(
        f"QoS {qos} {payload:4} B round {number + 1} {variant:6} {result.msgs_per_s:8.0f}/s"
        f"{late} lost {result.lost} (cores: {cores})"
    )


if __name__ == "__main__":
    main()
