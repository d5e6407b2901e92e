"""The runner of the connector's benchmarks: a broker, an engine with jobs, and a load generator.

Broker and load generator have one core, what is measured has the other. A run at QoS 1 that loses
or repeats a message is no result.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import requests

from bench.load import JAVA_OPTIONS, Cores, JavaProgram, Measured, Order, load, pinning, relay, run
from speck.fog import flink, mosquitto
from speck.fog.mosquitto import Mosquitto
from speck.fog.paths import edge_jar
from speck.model.values import JsonObject

Key = TypeVar("Key")
START_LIMIT_S = 120.0
CLASS = "io.speck.jobs.PassThrough"
RECEIVE_MAXIMUM = 65534
"""Acknowledging at checkpoints bounds the rate: this many in one checkpoint interval. 65535 is the
protocol's default, left out when it is asked for, and Mosquitto has another one."""


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
        class_path=[edge_jar("speck-flink-connector.jar")],
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


@dataclass(frozen=True, slots=True)
class Lab:
    """What runs while jobs are measured."""

    cores: Cores
    broker: Mosquitto
    engine: flink.Flink
    generator: JavaProgram

    def run(self, what: str, order: Order, watched: Mapping[str, int] | None = None) -> Measured:
        """Run an order; `watched`: see `load.run`. Raises RuntimeError when QoS 1 loses or repeats
        a message."""
        result = run(self.generator, order, watched or {})
        if order.qos > 0 and (result.lost or result.repeated):
            raise RuntimeError(f"cannot trust this run: {what}, {order}: {result}")
        return result

    def relay(self, source: str, sink: str, qos: int = 1) -> JavaProgram:
        """The floor: a relay without Flink, where jobs are measured."""
        window = RECEIVE_MAXIMUM
        return relay(self.cores.measured, self.broker, source, sink, qos=qos, window=window)


@contextmanager
def lab(
    folder: Path,
    window: int,
    checkpoint_s: float,
    *,
    slots: int = 1,
    broker_settings: Mapping[str, str] | None = None,
    credentials: Path | None = None,
) -> Iterator[Lab]:
    """A lab below `folder`. `window`: of messages that the broker takes unanswered."""
    cores = Cores.pick()
    with ExitStack() as stack:
        broker = mosquitto.start(
            folder / "broker",
            settings={"max_inflight_messages": str(window), **(broker_settings or {})},
            launch=pinning(cores.load),
        )
        stack.callback(broker.stop)
        settings = replace(
            engine_settings(folder, checkpoint_s), slots=slots, credentials=credentials
        )
        engine = flink.start(settings, launch=pinning(cores.measured))
        stack.callback(engine.stop)
        yield Lab(cores, broker, engine, stack.enter_context(load(cores.load, broker)))


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="speck-bench-") as folder:
        yield Path(folder)


def take_turns(
    rounds: int, keys: Sequence[Key], measure: Callable[[int, Key], Measured]
) -> dict[Key, list[Measured]]:
    """The results of each key; keys take turns within each round, so that a disturbance affects
    all. `measure` takes the number of the round, from 1, too."""
    results: dict[Key, list[Measured]] = {key: [] for key in keys}
    for number in range(1, rounds + 1):
        for key in keys:
            results[key].append(measure(number, key))
    return results


def median(results: Sequence[Measured], of: Callable[[Measured], float | None]) -> float:
    """The median of those that are known."""
    return statistics.median(value for value in map(of, results) if value is not None)


def rate(results: Sequence[Measured]) -> float:
    """Messages per second: the median."""
    return median(results, lambda each: each.msgs_per_s)


def list_rates(results: Sequence[Measured]) -> list[int]:
    """Messages per second of each round."""
    return [round(each.msgs_per_s) for each in results]
