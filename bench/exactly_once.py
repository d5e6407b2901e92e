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

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import token_hex

from bench.common import is_quick, machine, say, write_result
from bench.load import Cores, Measured, Order
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
ROUNDS = 1 if QUICK else 2
SECONDS = 2.0 if QUICK else 5.0
LEAD_S = 1.5  # of each run, not measured: more than one checkpoint interval
WARM_UP_S = 2.0 if QUICK else 8.0
WARM_UP_RATE = 2000  # at first: nothing is compiled yet
INTERVALS_S = (1.0,) if QUICK else (1.0, 0.2)
PAYLOAD = 100
WINDOW = 40_000  # end to end, and what the broker takes unanswered
SINK_WINDOW = 2000
EXACTLY, AT_LEAST, BARE, RELAY = (
    "exactly_once",
    "at_least_once",
    "at_least_once_without_window_in_state",
    "relay",
)
RATED = (EXACTLY, AT_LEAST, BARE, RELAY)
TIMED = (EXACTLY, AT_LEAST, RELAY)

Results = Mapping[str, Sequence[Measured]]
"""Of each round, by variant."""


def measure_once(
    lab: Lab, variant: str, rate: int = 0, lead_s: float = LEAD_S, seconds: float = SECONDS
) -> Measured:
    """Start the variant, run once, end it. Raises RuntimeError when it loses or repeats."""
    source = f"bench/{token_hex(4)}"  # what an earlier one has left waiting is not taken
    order = Order(source, f"{source}/out", 1, PAYLOAD, WINDOW, rate, lead_s, seconds)
    with _running(lab, variant, order):
        return lab.run(variant, order)


@contextmanager
def _running(lab: Lab, variant: str, order: Order) -> Iterator[None]:
    if variant == RELAY:
        with lab.relay(order.source, order.sink):
            yield
        return
    more = {
        "receive-maximum": str(RECEIVE_MAXIMUM),
        "sink-window": str(SINK_WINDOW),
        "resend-state-bytes": "0" if variant == BARE else "1000000",
    }
    job = Job(order.source, order.sink, EXACTLY if variant == EXACTLY else AT_LEAST, more)
    with submitted(lab.engine, lab.broker, job):
        yield


def measure(lab: Lab, interval_s: float) -> tuple[Results, Results]:
    """At full speed, and at half of exactly_once's own top rate."""
    for variant in TIMED:
        measure_once(lab, variant, rate=WARM_UP_RATE, lead_s=WARM_UP_S / 2, seconds=0.1)
        measure_once(lab, variant, lead_s=WARM_UP_S / 2, seconds=0.1)

    def measure_and_say(variant: str, rate: int = 0) -> Measured:
        result = measure_once(lab, variant, rate)
        late = f"p50 {result.p50_ms} p99 {result.p99_ms} ms" if rate else ""
        say(f"{interval_s} s {variant:38} {result.msgs_per_s:8.0f}/s {late}")
        return result

    full = take_turns(ROUNDS, RATED, lambda _, variant: measure_and_say(variant))
    at = round(rate(full[EXACTLY]) / 2)
    return full, take_turns(ROUNDS, TIMED, lambda _, variant: measure_and_say(variant, at))


def entry(interval_s: float, full: Results, half: Results) -> JsonObject:
    """One element of `intervals`."""
    rates = {variant: rate(full[variant]) for variant in RATED}
    p50 = {variant: median(half[variant], lambda each: each.p50_ms) for variant in TIMED}
    p99 = {variant: median(half[variant], lambda each: each.p99_ms) for variant in TIMED}
    return {
        "checkpoint_interval_s": interval_s,
        "msgs_per_s": {variant: round(each) for variant, each in rates.items()},
        "ratio": round(rates[EXACTLY] / rates[AT_LEAST], 3),
        "ratio_to_relay": round(rates[EXACTLY] / rates[RELAY], 3),
        "ratio_of_window_in_state": round(rates[AT_LEAST] / rates[BARE], 3),
        "latency_at_msgs_per_s": round(rates[EXACTLY] / 2),
        "p50_ms": p50,
        "p99_ms": p99,
        "ratio_p50": round(p50[EXACTLY] / p50[AT_LEAST], 1),
        "ratio_p99": round(p99[EXACTLY] / p99[AT_LEAST], 1),
        "rounds": {variant: list_rates(results) for variant, results in full.items()},
    }


def main() -> None:
    settings: JsonObject = {
        "payload_bytes": PAYLOAD,
        "end_to_end_window": WINDOW,
        "sink_window": SINK_WINDOW,
        "receive_maximum": RECEIVE_MAXIMUM,
        "pinning": str(Cores.pick()),
        "rounds": ROUNDS,
        "seconds_a_round": SECONDS,
        "machine": machine(),
    }
    entries = []
    for interval_s in INTERVALS_S:
        with scratch() as folder, lab(folder, WINDOW, interval_s) as running:
            entries.append(entry(interval_s, *measure(running, interval_s)))
    # the whole file is written only when every run lost and repeated nothing
    write_result(
        "exactly_once.json",
        {"lost": 0, "repeated": 0, "intervals": entries, "settings": settings},
    )


if __name__ == "__main__":
    main()
