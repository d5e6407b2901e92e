"""bench.moves: jobs that move and change under load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Plot, Section
from bench.page.words import number, table

_KINDS = {
    "gap_stateless_s": "stateless job moves",
    "gap_stateful_s": "stateful job moves",
    "gap_at_rest_s": "nothing moves",
}


def _figures(result: Result) -> str:
    rows = [
        (mode, kind, gaps["of"], number(gaps["p50"]), number(gaps["p95"]), number(gaps["max"]))
        for mode, of_mode in result["summary"].items()
        for key, kind in _KINDS.items()
        for gaps in [of_mode[key]]
    ]
    settings = result["settings"]
    moves = max(of_mode["moves"] for of_mode in result["summary"].values())
    text = (
        f"{moves} moves and updates in each mode, {settings['rate_per_s']} records a"
        f" second, a checkpoint every {number(settings['checkpoint_interval_s'])} s. Silence at the"
        " far end of the chain while one job of it moves, from the request on; under"
        " `exactly_once` results wait for a checkpoint also when nothing moves, and jobs near one"
        " that changes are asked for checkpoints in quick succession."
    )
    heads = ["delivery", "what", ">of", ">p50, s", ">p95, s", ">max, s"]
    return f"{text}\n\n{table(heads, rows)}"


def _draw(result: Result) -> Any:
    figure, (axes,) = style.figure(height=2.9)
    rows = [(mode, key) for mode in result["summary"] for key in _KINDS]
    styles = {"exactly_once": (style.BLUE, "s"), "at_least_once": (style.RED, "o")}
    for place, (mode, key) in enumerate(reversed(rows)):
        gaps = result["summary"][mode][key]
        color, marker = styles[mode]
        axes.plot([gaps["p50"], gaps["max"]], [place, place], color=color, linewidth=1)
        axes.plot([gaps["p50"], gaps["p95"]], [place, place], color=color, linewidth=5, alpha=0.4)
        axes.plot(gaps["p50"], place, marker, color=color, markersize=7)
        axes.plot(gaps["max"], place, "|", color=color, markersize=9)
    axes.set_yticks(range(len(rows)), [f"{_KINDS[key]}, {mode}" for mode, key in reversed(rows)])
    axes.grid(visible=False, axis="y")
    axes.set_xlim(left=0)
    axes.set_xlabel("silence at the far end, s (dot: median, bar: to p95, line: to the longest)")
    return figure


SECTION = Section(
    name="moves",
    title="Moves under load",
    question="How long is an application silent while a job of it moves, and is anything lost?",
    set_up="A chain of jobs on three sites (real Flink and Mosquitto, plain loopback) is fed with"
    " numbered records; jobs move and change at random.",
    target="moves",
    figures=_figures,
    plots=[Plot("moves-gaps", "Silence at the far end while a job moves", _draw)],
)

KAFKA = replace(
    SECTION,
    name="moves_kafka",
    title="Moves under load, over Kafka",
    question="The same with links over Kafka in the cloud.",
    set_up="A chain of jobs on three sites (real Flink, Mosquitto at the edges, Kafka in the cloud,"
    " plain loopback) is fed with numbered records; jobs move and change at random.",
    target="moves-kafka",
    plots=[Plot("moves-kafka-gaps", "Silence at the far end while a job moves, over Kafka", _draw)],
)
