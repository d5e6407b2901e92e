"""bench.rewire: a composition that is rewired under load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.page.result import Result
from bench.page.section import Claim, Section
from bench.page.words import number, table

_COUNTS = ("lost", "repeated", "repeated_outside", "bytes_resent", "two_copies")


def _modes(result: Result) -> dict[str, Result]:
    """Each series by its name."""
    modes = {
        "exactly_once": result,
        "at_least_once": result["at_least_once"],
        "at_most_once": result["at_most_once"],
        "exactly_once, with kills": result["with_kills"],
    }
    if "absent_readers" in result:
        modes["exactly_once, brokers killed, readers away"] = result["absent_readers"]
    if "with_cancels" in result:
        modes["at_least_once, cancelled and superseded"] = result["with_cancels"]
    return modes


def _describe_absent_readers(result: Result) -> str:
    if "absent_readers" not in result:
        return (
            " Not measured yet: the same with kills of brokers while each output has a second"
            " reader that comes only at the end."
        )
    killed = number(result["absent_readers"]["killed"]["broker"])
    return (
        f" Readers away: {killed} kills of brokers, while each output has a second reader, whose"
        " session is reserved and which comes only at the end; what reached it is counted, too."
    )


def _describe_cancels(result: Result) -> str:
    if "with_cancels" not in result:
        return (
            " Not measured yet: chains, with a third of the changes cancelled or superseded at a"
            " random moment."
        )
    ends = result["with_cancels"]["ends"]
    interrupted = number(ends.get("cancelled", 0)), number(ends.get("superseded", 0))
    return (
        " Cancelled and superseded: chains of one to three jobs at one site, 50 records a second;"
        f" {interrupted[0]} changes were cancelled and {interrupted[1]} superseded at a random"
        " moment, and the next one was to another wiring."
    )


def _figures(result: Result) -> str:
    rows = [
        (
            mode,
            series["changes"],
            series["published"],
            *(series[key] for key in _COUNTS),
            *(series["gap_s"][key] for key in ("p50", "p95", "max")),
        )
        for mode, series in _modes(result).items()
    ]
    killed = result["with_kills"]["killed"]
    text = (
        f"{number(result['rate_per_s'])} records a second, a checkpoint every"
        f" {number(result['checkpoint_interval_s'])} s. Lost and repeated are counted at both"
        " outputs by the publisher's numbers, for a reader that drops repeats by their stamps;"
        " repeated outside: messages that come there twice under one stamp; bytes sent again: on"
        " all links, of messages that were published before under the same stamp. The silence is"
        " the longest of each change at the end of the chain. With kills, an"
        " engine, a broker or the service is killed within 2 s after each change was asked for"
        f" ({killed['engine']}, {killed['broker']} and {killed['service']} times); brokers and"
        " sinks then send again what may not have been kept, those that have left a link as well"
        " as those that run ([how](../guarantees.md#links))."
        " `at_most_once` promises nothing."
    )
    text += _describe_absent_readers(result) + _describe_cancels(result)
    heads = ["delivery", ">changes", ">published", ">lost", ">repeated", ">repeated outside"]
    heads += [">bytes sent again", ">two copies", ">silence p50, s", ">p95, s", ">max, s"]
    return f"{text}\n\n{table(heads, rows)}"


def _claims(result: Result) -> Sequence[Claim]:
    claims = []
    for mode, series in _modes(result).items():
        expected = result[_wanted_key(result, series)]
        changes = series["changes"]
        claims.append(
            Claim(f"changes done, {mode}", expected, changes, changes == expected, series["fault"])
        )
        of = f"of {series['published']:,} published"
        for key in list_promised(series):
            name = f"{key.replace('_', ' ')}, {mode}"
            claims.append(Claim(name, "0", series[key], series[key] == 0, of))
    return claims


def _wanted_key(result: Result, series: Result) -> str:
    if series is result.get("absent_readers"):
        return "wanted_absent_kills"
    if series is result.get("with_cancels"):
        return "wanted_cancelling"
    return "wanted_kills" if "killed" in series else "wanted_changes"


def list_promised(series: Mapping[str, Any]) -> list[str]:
    """The counts that must be 0 in a series. `at_most_once` guarantees nothing; after a kill
    brokers and sinks may send again."""
    if series["delivery"] == "at_most_once":
        return ["two_copies"]
    if "killed" in series or "ends" in series:
        return ["lost", "repeated", "two_copies"]
    return list(_COUNTS)


def _headline(result: Result) -> list[tuple[str, str]]:
    rate = number(result["rate_per_s"])
    rows = [(f"{result['changes']} random rewirings at {rate} records/s, `exactly_once`", result)]
    if (kills := result.get("with_kills")) is not None:
        killed = sum(kills["killed"].values())
        rows.append((f"The same with {killed} kills of engines, brokers and the service", kills))
    return [
        (what, f"{of['published']:,} sent, {of['lost']:,} lost, {of['repeated']} repeated")
        for what, of in rows
    ]


SECTION = Section(
    name="rewire",
    title="Rewired under load",
    question="Is anything lost, repeated or sent twice while an application is wired anew?",
    set_up="A chain of 1 to 6 jobs with a branch, over three sites and six topics on three brokers"
    " (real Flink and Mosquitto, plain loopback), is fed with numbered records; its jobs, their"
    " order, sites, topics and brokers change at random.",
    target="rewire",
    figures=_figures,
    claims=_claims,
    headline=_headline,
)
