"""What the connector's benchmark runs beside the job: the load generator and the bare relay.

Both are Java, in the connector's jar: Python cannot publish 40 000 messages a second. Every
process is pinned to a core, so that what is measured has one core of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO

from bench.usage import cpu_s
from speck.fog.flink import find_java, flink_jars
from speck.fog.mosquitto import Mosquitto
from speck.fog.paths import edge_jar, flink_folder
from speck.fog.process import Command, Launch, Process, spawn

JAVA_OPTIONS = ("-XX:+UseSerialGC", "-Xms256m", "-Xmx256m", "-XX:+ExitOnOutOfMemoryError")


@dataclass(frozen=True, slots=True)
class Order:
    """One run of the load generator.

    `window`: most messages between publisher and reader; `rate`: messages/s, 0 for as many as
    the window lets through. It measures for `seconds`, after
    `lead_s` that do not count.
    """

    source: str
    sink: str
    qos: int
    payload: int
    window: int
    rate: int = 0
    lead_s: float = 1.0
    seconds: float = 4.0

    def __str__(self) -> str:
        words = (self.source, self.sink, self.qos, self.payload, self.window, self.rate)
        return " ".join(map(str, (*words, self.lead_s, self.seconds)))


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run gave. `cores`: CPU seconds a second of each process, while it was measured."""

    msgs_per_s: float
    sent: int
    received: int
    lost: int
    repeated: int
    cores: Mapping[str, float]
    p50_ms: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Cores:
    """Which core the broker and the load generator share, and which one the measured has."""

    load: int
    measured: int

    @classmethod
    def pick(cls) -> Cores:
        """The first two that we may use; one for all when there is no second."""
        allowed = sorted(os.sched_getaffinity(0))
        return cls(allowed[0], allowed[1 % len(allowed)])

    def __str__(self) -> str:
        if self.load == self.measured:
            return f"everything on core {self.load}"
        return f"broker and load on core {self.load}, job or relay alone on core {self.measured}"


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Processes that are started in this block run, with all their threads, on one core."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def pinning(core: int) -> Launch:
    """A `launch` for the fog's brokers and engines, on one core."""

    def launch(command: Command) -> Process:
        with pinned(core):
            return spawn(command)

    return launch


class JavaProgram:
    """A main class of the connector's jar, spoken to in lines."""

    def __init__(self, core: int, main_class: str, arguments: Sequence[str]):
        argv = [str(find_java()), *JAVA_OPTIONS, "-cp", _class_path(), main_class, *arguments]
        self.name = main_class.rsplit(".", 1)[1]
        with pinned(core):
            self.process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, line: str) -> None:
        stream = self._stream(self.process.stdin)
        stream.write(line + "\n")
        stream.flush()

    def hear(self) -> str:
        """The next line. Raises RuntimeError when the program has ended."""
        line = self._stream(self.process.stdout).readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended with {self.process.wait(10)}")
        return line.strip()

    def __enter__(self) -> JavaProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    @staticmethod
    def _stream(stream: IO[str] | None) -> IO[str]:
        assert stream is not None  # both are pipes
        return stream


def relay(
    core: int, broker: Mosquitto, source: str, sink: str, qos: int, window: int
) -> JavaProgram:
    """The least that can stand between two topics, with the same client library; ready."""
    arguments = [broker.address, source, sink, str(qos), str(window)]
    program = JavaProgram(core, "io.speck.mqtt.bench.Relay", arguments)
    line = program.hear()
    if line != "relay ready":
        raise RuntimeError(f"the relay says: {line}")
    return program


def load(core: int, broker: Mosquitto) -> JavaProgram:
    """The load generator, which waits for orders."""
    return JavaProgram(core, "io.speck.mqtt.bench.Load", [broker.host, str(broker.port)])


def run(generator: JavaProgram, order: Order, watched: Mapping[str, int]) -> Measured:
    """Run an order; `watched`: the process ids whose use of the CPU is told, by name."""
    generator.tell(str(order))
    _expect(generator, "measuring")
    before = {name: cpu_s(pid) for name, pid in watched.items()}
    _expect(generator, "measured")
    cores = {
        name: round((cpu_s(pid) - before[name]) / order.seconds, 3) for name, pid in watched.items()
    }
    return replace(Measured(**json.loads(generator.hear()), cores={}), cores=cores)


def _expect(generator: JavaProgram, word: str) -> None:
    line = generator.hear()
    if line != word:
        raise RuntimeError(f"the load generator says: {line}")


def _class_path() -> str:
    # the connector logs through Flink's jars
    jars = [edge_jar("speck-flink-connector.jar"), *flink_jars(flink_folder())]
    return ":".join(map(str, jars))
