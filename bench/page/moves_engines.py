"""bench.moves_engines: jobs on other engines that move, change and are killed, beside Flink."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.page.result import Result
from bench.page.section import Section
from bench.page.words import number, table

_TIMES = {
    "stop_s": "a stop",
    "start_s": "a start",
    "change_s": "a change as a whole",
    "move_gap_s": "silence of a move",
    "update_gap_s": "silence of an update",
    "at_rest_s": "silence at rest",
}
_KILLS = {
    "program": "recovery from a kill of the {}",
    "runner": "recovery from a kill of the runner",
    "agent": "recovery from a kill of the agent",
}


def _figures(other: str, program: str) -> Callable[[Result], str]:
    """`other` is the engine beside Flink, `program` what is killed of it."""

    def write(result: Result) -> str:
        heads = ["what", *(f">{name}: {it}" for name in ("Flink", other) for it in _COLUMNS)]
        by_engine = result["summary"]
        flink, beside = (
            by_engine["flink"],
            next(of_engine for name, of_engine in by_engine.items() if name != "flink"),
        )
        rows = [(what, *_cells(flink[key]), *_cells(beside[key])) for key, what in _TIMES.items()]
        for key, what in _KILLS.items():
            name = what.format(f"engine or of the {program}")
            pairs = (_cells(of_engine["recovery_s"].get(key)) for of_engine in (flink, beside))
            rows.append((name, *(cell for pair in pairs for cell in pair)))
        return f"{_say(result, other, flink, beside)}\n\n{table(heads, rows)}"

    return write


_COLUMNS = ("median, s", "longest, s")


def _cells(spread: Result | None) -> Sequence[str]:
    if spread is None:
        return (number(None), number(None))
    return (number(spread["p50"]), number(spread["max"]))


def _say(result: Result, other: str, flink: Result, beside: Result) -> str:
    """The times in words."""
    settings = result["settings"]

    def middle(of_engine: Result, *keys: str) -> str:
        value: Result = of_engine
        for key in keys:
            value = value[key]
        return f"{number(value['p50'])} s"

    recovery = ("recovery_s", "program")
    return (
        f"{beside['moves']} moves and updates on each engine under `{beside['delivery']}`,"
        f" {settings['rate_per_s']} records a second, a checkpoint every"
        f" {number(settings['checkpoint_interval_s'])} s; then {settings['kills']} kills of each"
        f" kind. A stop takes {middle(beside, 'stop_s')} on {other} and"
        f" {middle(flink, 'stop_s')} on Flink (medians), a move keeps the far end of the chain"
        f" silent for {middle(beside, 'move_gap_s')} and {middle(flink, 'move_gap_s')}, and after"
        f" a kill results are back after {middle(beside, *recovery)} and"
        f" {middle(flink, *recovery)}."
    )


_SET_UP = (
    "A chain of two jobs between Mosquittos on plain loopback is fed with numbered records; jobs"
    " move and change at random, then what runs the second one is killed and started again. The"
    " same jobs on Flink take their turn on the same fog."
)

SECTIONS = (
    Section(
        name="moves_process",
        title="Moves of programs",
        question="How long do a stop, a move and a recovery of jobs take that are Python programs,"
        " beside Flink's, and is anything lost?",
        set_up=_SET_UP,
        target="moves-process",
        figures=_figures("processes", "job's program"),
    ),
    Section(
        name="moves_spark",
        title="Moves of jobs in PySpark",
        question="How long do a stop, a move and a recovery of a job in PySpark take, beside"
        " Flink's, and is anything lost or repeated?",
        set_up=_SET_UP + " The first job stays on Flink; the second one counts by key, in PySpark"
        " at one of two clouds.",
        target="moves-spark",
        figures=_figures("Spark", "job's program"),
    ),
)
