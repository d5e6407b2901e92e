"""What batches on a link give: records/s, bytes a record, and what they add to latency.

A job that makes records (`Feed`) sends them over one link to a job that counts them (`Tally`),
each in an engine of its own, through one Mosquitto; `chain`: with a job between them, and two
links. What feeds the link is part of the sending job, so nothing else bounds it. Records are
detections of the traffic application's trace, in its order, of about 100 B, or eight of them in a
record of about 1 kB; each has a number and a time of its own.

One run: as fast as it goes, then nothing, then at a moderate rate, at which latency is measured
(a record's own time against the clock of the same machine when it is counted, whole milliseconds).
Bytes: what the kernel says that the sending engine's connection to its broker carried, both ways,
payload of TCP, over all records of the run.

`make bench-link-batching` writes bench/results/link_batching.json; QUICK=1 takes some variants
once.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from bench.common import is_quick, machine, say
from bench.experiment import Check, Experiment, interval
from bench.instruments import crossing
from bench.runner import Job, engine_settings, submitted
from speck.fog import flink, mosquitto
from speck.fog.mosquitto import Mosquitto
from speck.fog.replay import expand
from speck.fog.trace import read_trace
from speck.model.values import JsonObject

QUICK = is_quick()
ROUNDS = 1 if QUICK else 3
WARM_UP_S = 2.0 if QUICK else 15.0
FULL_S = 3.0 if QUICK else 5.0
LEAD_S = 1.2  # of the full part, not measured: more than one checkpoint interval
PAUSE_S = {"at_least_once": 1.0, "exactly_once": 4.0}  # until what waits has been published
RATED_S = 2.0 if QUICK else 4.0
RATE = 2000
LINGER_MS = 20
CHECKPOINT_S = 0.2  # short: all that comes within one is kept and then published at once
MOST_PER_S = {"at_least_once": 10_000_000, "exactly_once": 250_000, "small in batches": 600_000}
"""Under exactly_once a sink keeps all till the checkpoint, and nothing but what a job takes in
bounds it; this one takes in nothing. Records of 100 B that go in batches may be more than others.
A run that comes near it says how much was fed, not how much the link can carry:
`all_that_was_fed`."""
NEAR = 0.9
HEAP = ["-Xms512m", "-Xmx512m"]
WINDOW = 2000
RECEIVE_MAXIMUM = 65534
LIMIT_S = 60.0
TRACE = Path(__file__).parents[1] / "compositions" / "traffic" / "trace" / "trace.csv.gz"
ROWS = 20_000  # more than any message has: in a message nothing is there twice
AT_LEAST, EXACTLY = "at_least_once", "exactly_once"
WANTED_SPEED, WANTED_BYTES = 5.0, 0.4


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to send: `size` is of a record, in bytes, nominally; `links`: 1 or 2 in a row."""

    size: int
    delivery: str
    batch_records: int = 1
    compression: str = "none"
    links: int = 1

    @property
    def key(self) -> str:
        how = "plain" if self.batch_records == 1 else f"{self.batch_records}-{self.compression}"
        return f"{self.size}-{self.delivery}-{how}" + ("-chain" if self.links > 1 else "")

    @property
    def plain(self) -> Variant:
        """What it is compared with."""
        return replace(self, batch_records=1, compression="none")

    @property
    def most_per_s(self) -> int:
        """Records a second that are fed at most."""
        small = self.delivery == EXACTLY and self.size == 100 and self.batch_records > 1
        return MOST_PER_S["small in batches" if small else self.delivery]

    @property
    def arguments(self) -> dict[str, str]:
        """Of the jobs that send in this way."""
        if self.batch_records == 1:
            return {}
        return {
            "batch-records": str(self.batch_records),
            "linger-ms": str(LINGER_MS),
            "compression": self.compression,
        }


def variants() -> list[Variant]:
    """All that are measured, plain ones first."""
    if QUICK:
        ways = [(1, "none"), (1000, "zstd")]
        return [
            *(Variant(100, AT_LEAST, *way) for way in ways),
            *(Variant(100, EXACTLY, *way) for way in ways),
        ]
    every = [(1, "none"), *((n, c) for n in (10, 100, 1000) for c in ("none", "zstd"))]
    some = [(1, "none"), (100, "none"), (100, "zstd"), (1000, "zstd")]
    ends = [(1, "none"), (1000, "zstd")]
    return [
        *(Variant(100, AT_LEAST, *way) for way in every),
        *(Variant(100, EXACTLY, *way) for way in some),
        *(Variant(1000, AT_LEAST, *way) for way in some),
        *(Variant(1000, EXACTLY, *way) for way in ends),
        *(Variant(100, AT_LEAST, *way, links=2) for way in ends),
    ]


# --- records --------------------------------------------------------------------------------


def lines(size: int) -> list[str]:
    """The part of records of that size after `{"id":n,"time_ms":t`, see `Feed`."""
    rows = [json.loads(each.payload) for each in expand(_valid_rows())]
    for row in rows:
        del row["id"], row["time_ms"]
    if size == 100:
        return ["," + _dump(row)[1:] for row in rows]
    groups = [rows[at : at + 8] for at in range(0, len(rows) - 7, 8)]
    return [f',"detections":{_dump(group)}}}' for group in groups]


def _valid_rows() -> list[Any]:
    return [row for row in read_trace(TRACE) if row.valid][:ROWS]


def _dump(data: object) -> str:
    return json.dumps(data, separators=(",", ":"))


# --- the set-up -----------------------------------------------------------------------------


class CountReports:
    """The counts that the counting job publishes, as they arrive."""

    def __init__(self, broker: Mosquitto, topic: str) -> None:
        self._topic = topic
        self._counts: list[JsonObject] = []
        self._news = threading.Condition()
        self._subscribed = threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.on_connect = lambda client, *_: client.subscribe(topic, qos=1)
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = self._hear
        self._client.connect(broker.host, broker.port)
        self._client.loop_start()
        if not self._subscribed.wait(LIMIT_S):
            raise RuntimeError(f"cannot listen to {topic} on {broker.address}")

    def _hear(self, _: object, __: object, message: paho.MQTTMessage) -> None:
        with self._news:
            self._counts.append(json.loads(message.payload))
            self._news.notify_all()

    def await_end(self, limit_s: float) -> list[JsonObject]:
        """All counts, the last one after the last record. Raises RuntimeError."""
        with self._news:
            if not self._news.wait_for(
                lambda: self._counts and self._counts[-1]["marks"] > 1, limit_s
            ):
                last = {**self._counts[-1], "late": "..."} if self._counts else None
                raise RuntimeError(
                    f"cannot measure {self._topic}: its end did not come in {limit_s} s, only"
                    f" {last}; see whether both engines run"
                )
            return list(self._counts)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@dataclass(frozen=True, slots=True)
class Lab:
    """One broker and two engines: one sends, the other reads."""

    folder: Path
    broker: Mosquitto
    sending: flink.Flink
    reading: flink.Flink

    def measure(self, variant: Variant) -> JsonObject:
        """One run. Raises RuntimeError when it does not end, or is too short to tell anything."""
        name = f"bench/{token_hex(4)}"
        with self._running(variant, name, FULL_S, RATED_S) as reports:
            counts = reports.await_end(FULL_S + RATED_S + LIMIT_S)
            carried = self._count_bytes()
        last = counts[-1]
        return {
            **asdict(variant),
            "variant": variant.key,
            **rates(counts),
            "records": last["records"],
            "bytes_of_a_record": round(last["bytes"] / last["records"], 1),
            "link_bytes_per_record": round(carried / last["records"], 2),
            "lost": last["missing"],
            "repeated": last["repeated"],
        }

    def warm_up(self, variant: Variant) -> None:
        """Let the compilers do their work."""
        with self._running(variant, f"bench/{token_hex(4)}", WARM_UP_S, 0.5) as reports:
            reports.await_end(WARM_UP_S + LIMIT_S)

    def _count_bytes(self) -> int:
        """Bytes of the sending engine's connections to the broker, both ways."""
        pid = self.sending.processes["engine"].pid
        peer = f"{self.broker.host}:{self.broker.port}"
        return sum(
            each.acked + each.received
            for each in crossing.established()
            if each.pid == pid and each.peer == peer
        )

    @contextmanager
    def _running(
        self, variant: Variant, name: str, full_s: float, rated_s: float
    ) -> Iterator[CountReports]:
        """The jobs, those that read first, so that nothing is sent to nobody."""
        windows = {
            "receive-maximum": str(RECEIVE_MAXIMUM),
            "sink-window": str(WINDOW),
            "sink-readers": "some",
        }
        sends = {**windows, **variant.arguments}
        links = [f"{name}/{n}" for n in range(variant.links)]
        feed = {
            "records": str(self._records(variant.size)),
            "full": f"{full_s * 1000:.0f}ms",
            "pause": f"{PAUSE_S[variant.delivery] * 1000:.0f}ms",
            "most": str(variant.most_per_s),
            "rated": f"{rated_s * 1000:.0f}ms",
            "rate": str(RATE),
        }
        with ExitStack() as stack:
            reports = CountReports(self.broker, f"{name}/told")
            stack.callback(reports.close)
            tally = Job(links[-1], f"{name}/told", AT_LEAST, windows, "io.speck.jobs.Tally")
            stack.enter_context(submitted(self.reading, self.broker, tally))
            if variant.links > 1:
                between = Job(links[0], links[1], variant.delivery, sends)
                stack.enter_context(submitted(self.reading, self.broker, between))
            sender = Job(f"{name}/none", links[0], variant.delivery, {**sends, **feed})
            sender = replace(sender, entry_class="io.speck.jobs.Feed")
            stack.enter_context(submitted(self.sending, self.broker, sender))
            yield reports

    def _records(self, size: int) -> Path:
        file = self.folder / f"records-{size}"
        if not file.exists():
            file.write_text("\n".join(lines(size)) + "\n")
        return file


def rates(counts: Sequence[JsonObject]) -> JsonObject:
    """Records/s of the full part, from `LEAD_S` after its first word until all of it is counted;
    milliseconds of the rated part's latencies, None when too few records were made at the rate. A
    mark ends each, and is told at once.

    The time is that from count to count, or that in which these records were made, if it is longer:
    under exactly_once records come in bursts, and from the beginning of one to the end of another
    there is a burst too many for the time between them.
    """
    last = next(word for word in counts if word["marks"])
    began = counts[0]["at_ms"]
    first = next(word for word in counts if word["at_ms"] - began >= 1000 * LEAD_S)
    seconds = max(last[at] - first[at] for at in ("at_ms", "newest_ms")) / 1000
    if seconds < FULL_S / 3:
        raise RuntimeError(f"cannot measure: {seconds:.1f} s at full speed are too short")
    late = _histogram(counts[-1], last)
    rated = sum(late.values())
    in_time = rated >= NEAR * RATE * RATED_S  # else what was sent before was not through
    return {
        "records_per_s": round((last["records"] - first["records"]) / seconds),
        "over_s": round(seconds, 2),
        "p50_ms": _percentile(late, 0.5) if in_time else None,
        "p99_ms": _percentile(late, 0.99) if in_time else None,
        "rated_records": rated,
    }


def _histogram(at_last: JsonObject, before: JsonObject) -> dict[int, int]:
    counts = {int(ms): count for ms, count in at_last["late"].items()}
    for ms, count in before["late"].items():
        counts[int(ms)] -= count
    return counts


def _percentile(late: dict[int, int], share: float) -> int | None:
    rank = share * sum(late.values())
    for ms, count in sorted(late.items()):
        rank -= count
        if rank <= 0 and count:
            return ms
    return None


@contextmanager
def lab() -> Iterator[Lab]:
    """All of it runs."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="speck-bench-")))
        settings = {"max_inflight_messages": str(WINDOW)}
        broker = mosquitto.start(folder / "broker", settings=settings)
        stack.callback(broker.stop)
        engines = []
        for name, slots in (("sending", 1), ("reading", 2)):
            engine_options = engine_settings(folder / name, CHECKPOINT_S)
            options = [*engine_options.java_options, *HEAP]
            engine_options = replace(engine_options, slots=slots, java_options=options)
            engines.append(flink.start(engine_options))
            stack.callback(engines[-1].stop)
        yield Lab(folder, broker, *engines)


# --- the result -----------------------------------------------------------------------------


def summarise(rows: Sequence[JsonObject], selection: Sequence[Variant]) -> list[JsonObject]:
    """A line for each variant, beside the plain way of the same records."""
    by_key: dict[str, list[JsonObject]] = {}
    for row in rows:
        by_key.setdefault(row["variant"], []).append(row)
    summaries = []
    for variant in selection:
        own, plain = by_key[variant.key], by_key[variant.plain.key]
        summaries.append(
            {
                **asdict(variant),
                "variant": variant.key,
                "records_per_s": interval([row["records_per_s"] for row in own]),
                "all_that_was_fed": _median(own, "records_per_s") >= NEAR * variant.most_per_s,
                "link_bytes_per_record": interval([row["link_bytes_per_record"] for row in own]),
                "bytes_of_a_record": own[0]["bytes_of_a_record"],
                "p50_ms": interval(_list_known(own, "p50_ms")),
                "p99_ms": interval(_list_known(own, "p99_ms")),
                "added_p50_ms": _measure_added(own, plain, "p50_ms"),
                "added_p99_ms": _measure_added(own, plain, "p99_ms"),
                "speed_to_plain": round(
                    _median(own, "records_per_s") / _median(plain, "records_per_s"), 2
                ),
                "bytes_to_plain": round(
                    _median(own, "link_bytes_per_record") / _median(plain, "link_bytes_per_record"),
                    3,
                ),
                "lost": sum(row["lost"] for row in own),
                "repeated": sum(row["repeated"] for row in own),
            }
        )
    return summaries


def _median(rows: Sequence[JsonObject], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def _list_known(rows: Sequence[JsonObject], name: str) -> list[float]:
    return [row[name] for row in rows if row[name] is not None]


def _measure_added(
    own: Sequence[JsonObject], plain: Sequence[JsonObject], name: str
) -> float | None:
    """The increase against single records, over the runs with the figure; None without any."""
    more, less = _list_known(own, name), _list_known(plain, name)
    return statistics.median(more) - statistics.median(less) if more and less else None


def checks(summaries: Sequence[JsonObject]) -> list[Check]:
    """The checks of one variant at 100 B under each delivery: of those that save the bytes, the
    fastest."""
    verdicts = []
    for delivery in (AT_LEAST, EXACTLY):
        batched = [
            each
            for each in summaries
            if (each["size"], each["delivery"], each["links"]) == (100, delivery, 1)
            and each["batch_records"] > 1
        ]
        small = [each for each in batched if each["bytes_to_plain"] <= WANTED_BYTES]
        best = max(small or batched, key=lambda each: float(each["speed_to_plain"]))
        speed, share = best["speed_to_plain"], best["bytes_to_plain"]
        fed = ", all that was fed" if best["all_that_was_fed"] else ""
        verdicts += [
            Check(
                f"records/s at 100 B, {delivery}",
                f">= {WANTED_SPEED:g} times one by one",
                f"{speed} times ({best['variant']}{fed})",
                speed >= WANTED_SPEED,
            ),
            Check(
                f"bytes a record on the link at 100 B, {delivery}",
                f"<= {WANTED_BYTES:.0%} of one by one",
                f"{share:.1%} ({best['variant']})",
                share <= WANTED_BYTES,
            ),
        ]
    lost = sum(each["lost"] + each["repeated"] for each in summaries)
    return [*verdicts, Check("lost and repeated records", "0", lost, lost == 0, always=True)]


def _first_ones(selection: Sequence[Variant]) -> list[Variant]:
    """To warm up with: under each delivery, one by one and compressed batches."""
    some = [v for v in selection if v.size == 100 and v.links == 1]
    plain = [v for v in some if v.batch_records == 1]
    return plain + [
        next(v for v in some if v.plain == p and v.compression == "zstd") for p in plain
    ]


def main() -> int:
    selection = variants()
    experiment = Experiment(
        "link_batching",
        {
            "rounds": ROUNDS,
            "full_s": FULL_S,
            "pause_s": PAUSE_S,
            "rated_s": RATED_S,
            "rate_per_s": RATE,
            "linger_ms": LINGER_MS,
            "checkpoint_interval_s": CHECKPOINT_S,
            "most_per_s": MOST_PER_S,
            "sink_window": WINDOW,
            "receive_maximum": RECEIVE_MAXIMUM,
            "trace_rows": ROWS,
            "cores": machine()["cores"],
        },
        simulated=[
            "Sender, broker and reader share one machine and its cores; there is no WAN between"
            " them, so bytes are those of TCP's payload, without its headers."
        ],
    )
    keys = [(f"{v.key}/{n}", v) for n in range(1, ROUNDS + 1) for v in selection]
    with lab() as running:
        if not {key for key, _ in keys} <= {row["key"] for row in experiment.rows}:
            for variant in selection[:2] if QUICK else _first_ones(selection):
                running.warm_up(variant)
        for key, variant in keys:  # taking turns, so that what disturbs hits all
            row = experiment.row(key, lambda variant=variant: running.measure(variant))
            say(
                f"  {row['records_per_s']}/s, {row['link_bytes_per_record']} B a record on the"
                f" link, p50 {row['p50_ms']} p99 {row['p99_ms']} ms"
            )
    summaries = summarise(experiment.rows, selection)
    return experiment.finish({"variants": summaries}, checks(summaries))


if __name__ == "__main__":
    time_began = time.monotonic()
    status = main()
    say(f"{time.monotonic() - time_began:.0f} s")
    raise SystemExit(status)
