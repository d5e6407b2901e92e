"""What exactly_once costs: messages/s and latency of one job, beside at_least_once.

source -> map -> sink in one Flink job on one core, at checkpoint intervals of 1 s and 0.2 s. In the
same run and taking turns: the same job under at_least_once, with and without the window of what was
published of late in its checkpoints (`--resend-state-bytes`); and a relay without Flink, which is
the floor: two hops through the same broker. Broker and load generator have the other core.

Throughput: at most `WINDOW` messages are between publisher and reader, as fast as that goes. It is
large, since under exactly_once all that was taken since the last checkpoint is on its way. Latency:
at half of exactly_once's own top rate, each message since it was due. Median of `ROUNDS` rounds. A
lost or repeated message is no result.

`make bench-exactly-once` writes bench/results/exactly_once.json; QUICK=1 takes one short round.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from bench.common import is_quick, machine, say, write_result
from bench.connector import Job, engine_settings, submitted
from bench.load import Cores, JavaProgram, Measured, Order, load, pinning, relay, run
from speck.fog import flink, mosquitto
from speck.fog.mosquitto import Mosquitto
from speck.model.values import JsonObject

QUICK = is_quick()
ROUNDS = 1 if QUICK else 2
SECONDS = 2.0 if QUICK else 5.0
LEAD_S = 1.5  # of each run, not measured: more than one checkpoint interval
WARM_UP_S = 2.0 if QUICK else 8.0
WARM_UP_RATE = 2000  # at first: nothing is compiled yet
INTERVALS_S = (1.0,) if QUICK else (1.0, 0.2)
PAYLOAD = 100
WINDOW = 40_000  # end to end, and what the broker takes unanswered
SINK_WINDOW = 2000
RECEIVE_MAXIMUM = 65534  # acknowledging at checkpoints: the most in one interval

EXACTLY, AT_LEAST, BARE, RELAY = (
    "exactly_once",
    "at_least_once",
    "at_least_once_without_window_in_state",
    "relay",
)
RATED = (EXACTLY, AT_LEAST, BARE, RELAY)
TIMED = (EXACTLY, AT_LEAST, RELAY)


@dataclass(slots=True)
class Lab:
    """A broker, an engine with room for one job, and a load generator."""

    cores: Cores
    broker: Mosquitto
    engine: flink.Flink
    generator: JavaProgram

    def measure(
        self, variant: str, rate: int = 0, lead_s: float = LEAD_S, seconds: float = SECONDS
    ) -> Measured:
        """Start the variant, run once, end it. Raises RuntimeError when it loses or repeats."""
        source = f"bench/{token_hex(4)}"  # what an earlier one has left waiting is not taken
        order = Order(source, f"{source}/out", 1, PAYLOAD, WINDOW, rate, lead_s, seconds)
        with self._running(variant, order):
            result = run(self.generator, order, {})
        if result.lost or result.repeated:
            raise RuntimeError(f"cannot trust this run: {variant}, {order}: {result}")
        return result

    @contextmanager
    def _running(self, variant: str, order: Order) -> Iterator[None]:
        if variant == RELAY:
            ends = (order.source, order.sink)
            bare = relay(self.cores.measured, self.broker, *ends, qos=1, window=RECEIVE_MAXIMUM)
            with bare:
                yield
            return
        more = {
            "receive-maximum": str(RECEIVE_MAXIMUM),
            "sink-window": str(SINK_WINDOW),
            "resend-state-bytes": "0" if variant == BARE else "1000000",
        }
        delivery = EXACTLY if variant == EXACTLY else AT_LEAST
        job = Job(order.source, order.sink, delivery, more)
        with submitted(self.engine, self.broker, job):
            yield


@dataclass(slots=True)
class Figures:
    """The figures of all rounds at one checkpoint interval."""

    rates: dict[str, list[Measured]] = field(default_factory=lambda: {each: [] for each in RATED})
    latencies: dict[str, list[Measured]] = field(
        default_factory=lambda: {each: [] for each in TIMED}
    )

    def rate(self, variant: str) -> float:
        return statistics.median(each.msgs_per_s for each in self.rates[variant])

    def latency_ms(self, variant: str) -> tuple[float, float]:
        """p50, p99."""
        results = self.latencies[variant]
        p50 = statistics.median(each.p50_ms for each in results if each.p50_ms is not None)
        p99 = statistics.median(each.p99_ms for each in results if each.p99_ms is not None)
        return p50, p99


@contextmanager
def lab(interval_s: float, cores: Cores) -> Iterator[Lab]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="speck-bench-")))
        broker = mosquitto.start(
            folder / "broker",
            settings={"max_inflight_messages": str(WINDOW)},
            launch=pinning(cores.load),
        )
        stack.callback(broker.stop)
        engine = flink.start(engine_settings(folder, interval_s), launch=pinning(cores.measured))
        stack.callback(engine.stop)
        yield Lab(cores, broker, engine, stack.enter_context(load(cores.load, broker)))


def measure(lab: Lab, interval_s: float) -> Figures:
    """Variants take turns within each round, so that a disturbance affects all."""
    for variant in TIMED:
        lab.measure(variant, rate=WARM_UP_RATE, lead_s=WARM_UP_S / 2, seconds=0.1)
        lab.measure(variant, lead_s=WARM_UP_S / 2, seconds=0.1)
    figures = Figures()
    for _ in range(ROUNDS):
        for variant in RATED:
            figures.rates[variant].append(result := lab.measure(variant))
            say(f"{interval_s} s {variant:38} {result.msgs_per_s:8.0f}/s")
    rate = round(figures.rate(EXACTLY) / 2)
    for _ in range(ROUNDS):
        for variant in TIMED:
            figures.latencies[variant].append(result := lab.measure(variant, rate))
            say(f"{interval_s} s {variant:38} p50 {result.p50_ms} p99 {result.p99_ms} ms")
    return figures


def entry(interval_s: float, figures: Figures) -> JsonObject:
    """One element of `intervals`."""
    exactly, at_least = figures.rate(EXACTLY), figures.rate(AT_LEAST)
    latencies = {variant: figures.latency_ms(variant) for variant in TIMED}
    return {
        "checkpoint_interval_s": interval_s,
        "msgs_per_s": {variant: round(figures.rate(variant)) for variant in RATED},
        "ratio": round(exactly / at_least, 3),
        "ratio_to_relay": round(exactly / figures.rate(RELAY), 3),
        "ratio_of_window_in_state": round(at_least / figures.rate(BARE), 3),
        "latency_at_msgs_per_s": round(exactly / 2),
        "p50_ms": {variant: p50 for variant, (p50, _) in latencies.items()},
        "p99_ms": {variant: p99 for variant, (_, p99) in latencies.items()},
        "ratio_p50": round(latencies[EXACTLY][0] / latencies[AT_LEAST][0], 1),
        "ratio_p99": round(latencies[EXACTLY][1] / latencies[AT_LEAST][1], 1),
        "rounds": {
            variant: [round(each.msgs_per_s) for each in results]
            for variant, results in figures.rates.items()
        },
    }


def main() -> None:
    cores = Cores.pick()
    settings: JsonObject = {
        "payload_bytes": PAYLOAD,
        "end_to_end_window": WINDOW,
        "sink_window": SINK_WINDOW,
        "receive_maximum": RECEIVE_MAXIMUM,
        "pinning": str(cores),
        "rounds": ROUNDS,
        "seconds_a_round": SECONDS,
        "machine": machine(),
    }
    entries = []
    for interval_s in INTERVALS_S:
        with lab(interval_s, cores) as running:
            entries.append(entry(interval_s, measure(running, interval_s)))
    # the whole file is written only when every run lost and repeated nothing
    write_result(
        "exactly_once.json",
        {"lost": 0, "repeated": 0, "intervals": entries, "settings": settings},
    )


if __name__ == "__main__":
    main()
