"""bench.engines: the same jobs on each kind of engine, over each kind of broker."""

from __future__ import annotations

from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Plot, Section
from bench.page.words import number, table

_NAMES = {"flink": "Flink", "process": "process", "spark": "Spark"}
_BROKERS = {"mqtt": "Mosquitto", "kafka": "Kafka"}
_JOBS = {"filter": "filter", "windows": "windowed count"}
_FIGURES = ("records_per_s", "p50_ms", "p99_ms", "memory_mb", "move_gap_s", "recovery_s")
_COUNTED = ("lost", "repeated")
_HEADS = (
    *("job", "over", "engine", ">records/s", ">p50, ms", ">p99, ms", ">memory, MB"),
    *(">silence of a move, s", ">recovery, s", ">lost", ">repeated"),
)


def _figures(result: Result) -> str:
    rows = [
        (
            _JOBS[row["job"]],
            _BROKERS[row["broker"]],
            _NAMES[row["engine"]],
            *(number(row[key]) for key in (*_FIGURES, *_COUNTED)),
        )
        for row in sorted(result["rows"], key=_order)
    ]
    text = (
        f"`exactly_once`, a checkpoint every {number(result['settings']['checkpoint_interval_s'])}"
        f" s, latencies at {result['settings']['rate_per_s']} records a second. Memory is the PSS"
        " of the job's processes, of Flink that of the engine with its one job."
    )
    return f"{text}\n\n{table(_HEADS, rows)}\n\n{_compare(result)}"


def _order(row: Result) -> tuple[int, ...]:
    orders = (_JOBS, row["job"]), (_BROKERS, row["broker"]), (_NAMES, row["engine"])
    return tuple(list(names).index(name) for names, name in orders)


def _compare(result: Result) -> str:
    """The two comparisons in words."""
    parts = []
    if relay := result["summary"]["kafka_to_relay"]:
        rates = relay["records_per_s"]
        parts.append(
            f"A job of Flink that passes records of {relay['bytes']} B from Kafka to Kafka carries"
            f" {number(rates['job'])} a second under `{relay['delivery']}`, a bare relay with"
            " Kafka's own client and the same acknowledgements"
            f" {number(rates['relay'])}: {number(relay['ratio'])} of it."
        )
    if change := result["summary"]["connector_before_after"]:
        rates = change["msgs_per_s"]
        parts.append(
            f"The Flink connector over MQTT carried {number(rates['before'])} messages a second"
            f" before its link core was one for all engines, and {number(rates['after'])} with it:"
            f" {number(change['ratio'])} of it."
        )
    return " ".join(parts)


def _draw(result: Result) -> Any:
    figure, axes = style.figure(columns=2, height=3.4)
    rows = sorted(result["rows"], key=_order, reverse=True)
    names = [
        f"{_JOBS[row['job']]}, {_NAMES[row['engine']]}, {_BROKERS[row['broker']]}" for row in rows
    ]
    colors = {"flink": style.BLUE, "process": style.GREEN, "spark": style.ORANGE}
    for place, row in enumerate(rows):
        color = colors[row["engine"]]
        axes[0].barh(place, row["records_per_s"], color=color)
        axes[1].plot([row["p50_ms"], row["p99_ms"]], [place, place], color=color, linewidth=4)
        axes[1].plot(row["p50_ms"], place, "o", color=color, markersize=7)
    axes[0].set_yticks(range(len(names)), names)
    axes[1].set_yticks(range(len(names)), [""] * len(names))
    for each in axes:
        each.grid(visible=False, axis="y")
        each.set_xlim(left=0)
    axes[0].set_xlabel("records/s at most")
    axes[1].set_xlabel("latency, ms (dot: median, bar: to p99)")
    return figure


SECTION = Section(
    name="engines",
    title="Engines and brokers",
    question="What do the same jobs reach on Flink, on Spark and as a process, over Mosquitto and"
    " over Kafka?",
    set_up="A filter and a windowed count of detections, each between two links of one broker, on"
    " real engines and brokers on plain loopback; two cores play all parts.",
    target="engines",
    figures=_figures,
    plots=[Plot("engines", "Highest rate and latency of the same jobs on three engines", _draw)],
)
