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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product

from bench.common import is_quick, machine, say, write_result
from bench.load import Cores, Measured, Order, run
from bench.runner import (
    RECEIVE_MAXIMUM,
    Job,
    Lab,
    lab,
    list_rates,
    median,
    rate,
    scratch,
    submitted,
    take_turns,
)
from speck.model.values import JsonObject

QUICK = is_quick()
ROUNDS = 1 if QUICK else 3
SECONDS = 1.0 if QUICK else 4.0
LEAD_S = 0.3 if QUICK else 0.5  # of each run, not measured
WARM_UP_S = 1.0 if QUICK else 9.0  # of each variant and payload, for the compilers to do their work
PAYLOADS = (100,) if QUICK else (100, 1000)
DELIVERY = {1: "at_least_once"} if QUICK else {0: "at_most_once", 1: "at_least_once"}
WANTED = 0.8

CHECKPOINT_S = 1.0
# Of messages on their way at once: end to end, of the sink, and what the broker takes unanswered.
WINDOW = 2000

VARIANTS = ("job", "relay", "broker")


def topics(qos: int, variant: str) -> tuple[str, str]:
    """The topics that the load generator publishes to and reads; for the bare broker they are the
    same."""
    source = f"bench/{qos}/{variant}"
    return source, source if variant == "broker" else f"{source}/out"


@dataclass(frozen=True, slots=True)
class Running:
    """Everything that runs while one QoS is measured. `processes`: whom each variant keeps busy."""

    qos: int
    lab: Lab
    processes: Mapping[str, Mapping[str, int]]

    def measure(self, number: int, variant: str, payload: int, rate: int = 0) -> Measured:
        order = self._order(variant, payload, rate, LEAD_S, SECONDS)
        result = self.lab.run(variant, order, self.processes[variant])
        _tell(self.qos, payload, number, variant, result)
        return result

    def warm_up(self, variant: str, payload: int) -> None:
        run(self.lab.generator, self._order(variant, payload, 0, WARM_UP_S, 0.1), {})

    def _order(self, variant: str, payload: int, rate: int, lead_s: float, seconds: float) -> Order:
        source, sink = topics(self.qos, variant)
        return Order(source, sink, self.qos, payload, WINDOW, rate, lead_s, seconds)


@contextmanager
def running(qos: int) -> Iterator[Running]:
    """A broker, an engine with one job, a relay and a load generator, each on its core."""
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        its_lab = stack.enter_context(lab(folder, WINDOW, CHECKPOINT_S))
        windows = {"receive-maximum": str(RECEIVE_MAXIMUM), "sink-window": str(WINDOW)}
        job = Job(*topics(qos, "job"), DELIVERY[qos], windows)
        stack.enter_context(submitted(its_lab.engine, its_lab.broker, job))
        bare = stack.enter_context(its_lab.relay(*topics(qos, "relay"), qos=qos))
        common = {"broker": its_lab.broker.pid, "load": its_lab.generator.pid}
        processes = {
            "job": {"job": its_lab.engine.processes["engine"].pid, **common},
            "relay": {"relay": bare.pid, **common},
            "broker": common,
        }
        yield Running(qos, its_lab, processes)


Results = Mapping[tuple[int, str], Sequence[Measured]]
"""Of each round, by payload and variant."""


def measure(running: Running) -> tuple[Results, Results]:
    """At full speed, and at half of the job's own top rate."""
    for variant in ("job", "relay"):  # which warms up the load generator, too
        for payload in PAYLOADS:
            running.warm_up(variant, payload)
    full = take_turns(
        ROUNDS,
        list(product(PAYLOADS, VARIANTS)),
        lambda number, key: running.measure(number, key[1], key[0]),
    )
    half = take_turns(
        ROUNDS,
        list(product(PAYLOADS, ("job", "relay"))),
        lambda number, key: running.measure(number, key[1], key[0], _half(full, key[0])),
    )
    return full, half


def _half(full: Results, payload: int) -> int:
    return round(rate(full[payload, "job"]) / 2)


def entry(qos: int, payload: int, full: Results, half: Results, settings: JsonObject) -> JsonObject:
    """One element of connector.json."""
    job, relay = half[payload, "job"], half[payload, "relay"]
    rates = {variant: full[payload, variant] for variant in VARIANTS}
    return {
        "qos": qos,
        "bytes": payload,
        "msgs_per_s": round(rate(rates["job"])),
        "relay_msgs_per_s": round(rate(rates["relay"])),
        "broker_msgs_per_s": round(rate(rates["broker"])),
        "ratio": round(rate(rates["job"]) / rate(rates["relay"]), 3),
        "p50_ms": median(job, lambda result: result.p50_ms),
        "p99_ms": median(job, lambda result: result.p99_ms),
        "relay_p50_ms": median(relay, lambda result: result.p50_ms),
        "relay_p99_ms": median(relay, lambda result: result.p99_ms),
        "latency_at_msgs_per_s": _half(full, payload),
        # less than that only when the machine was too busy: the latencies then mean nothing
        "latency_reached_msgs_per_s": round(rate(job)),
        "lost": sum(result.lost for result in [*rates["job"], *job]),
        "rounds": {variant: list_rates(results) for variant, results in rates.items()},
        "cpu_us_per_msg": {variant: _cpu_us(results) for variant, results in rates.items()},
        "settings": settings,
    }


def main() -> None:
    settings = {
        "receive_maximum": RECEIVE_MAXIMUM,
        "sink_window": WINDOW,
        "end_to_end_window": WINDOW,
        "broker_max_inflight_messages": WINDOW,
        "checkpoint_interval_s": CHECKPOINT_S,
        "pinning": str(Cores.pick()),
        "rounds": ROUNDS,
        "warm_up_s": WARM_UP_S,
        "seconds_a_round": SECONDS,
        "machine": machine(),
    }
    for name, value in settings.items():
        say(f"{name}: {value}")
    entries = []
    for qos in DELIVERY:
        with running(qos) as its_run:
            full, half = measure(its_run)
        entries += [entry(qos, payload, full, half, settings) for payload in PAYLOADS]
    write_result("connector.json", {"items": entries})
    low = [each for each in entries if each["qos"] == 1 and each["ratio"] < WANTED]
    for each in low:
        say(f"below {WANTED:.0%} of the relay: QoS 1, {each['bytes']} B: {each['ratio']:.0%}")


def _cpu_us(results: Sequence[Measured]) -> dict[str, float]:
    """Microseconds of CPU time a message, for each process that has to do with it."""
    return {
        name: round(
            statistics.median(each.cores[name] / each.msgs_per_s * 1e6 for each in results), 1
        )
        for name in results[0].cores
    }


def _tell(qos: int, payload: int, number: int, variant: str, result: Measured) -> None:
    cores = ", ".join(f"{name} {busy:.2f}" for name, busy in result.cores.items())
    late = "" if result.p50_ms is None else f" p50 {result.p50_ms} p99 {result.p99_ms} ms"
    say(
        f"QoS {qos} {payload:4} B round {number} {variant:6} {result.msgs_per_s:8.0f}/s"
        f"{late} lost {result.lost} (cores: {cores})"
    )


if __name__ == "__main__":
    main()
