"""bench.link_batching: many records in one message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Plot, Section
from bench.page.words import mean, number, table

_COLORS = (style.BLUE, style.RED, style.GREEN, style.ORANGE, style.PINK)


def _group(variant: Mapping[str, Any]) -> str:
    size = "100 B" if variant["size"] == 100 else f"{variant['size'] / 1000:g} kB"
    links = "" if variant["links"] == 1 else f", {variant['links']} links in a row"
    return f"{size}, {variant['delivery'].replace('_', ' ')}{links}"


def _way(variant: Mapping[str, Any]) -> str:
    if variant["batch_records"] == 1:
        return "one a message"
    zipped = "" if variant["compression"] == "none" else f", {variant['compression']}"
    return f"{variant['batch_records']:,}{zipped}"


def _figures(result: Result) -> str:
    rows = [
        (
            _group(it),
            _way(it),
            it["bytes_of_a_record"],
            mean(it["records_per_s"]) + (", all that was fed" if it["all_that_was_fed"] else ""),
            f"{number(it['speed_to_plain'])} times",
            mean(it["link_bytes_per_record"], "B"),
            f"{100 * it['bytes_to_plain']:.1f} %",
            f"{number(it['p50_ms']['mean'])} / {number(it['p99_ms']['mean'])}",
            f"{number(it['added_p50_ms'])} / {number(it['added_p99_ms'])}",
            it["lost"] + it["repeated"],
        )
        for it in result["summary"]["variants"]
    ]
    heads = [
        "records",
        "in a message, at most",
        ">bytes of a record",
        ">records/s",
        ">to one by one",
        ">on the link, a record",
        ">to one by one",
        ">p50 / p99, ms",
        ">more than one by one, ms",
        ">lost, repeated",
    ]
    settings = result["settings"]
    text = (
        f"A batch is sent when it is full, after {number(settings['linger_ms'])} ms, or with a"
        f" checkpoint (every {number(settings['checkpoint_interval_s'])} s). Latency at"
        f" {number(settings['rate_per_s'])} records/s, from record to record counted, in whole"
        " milliseconds."
    )
    return f"{text}\n\n{table(heads, rows)}"


def _draw(result: Result) -> Any:
    variants = result["summary"]["variants"]
    groups = list(dict.fromkeys(_group(it) for it in variants))
    figure, (left, right) = style.figure(2, height=0.9 + 0.26 * (len(variants) + len(groups)))
    places, place, labels = [], 0.0, []
    for group in groups:
        for it in (it for it in variants if _group(it) == group):
            color = _COLORS[groups.index(group) % len(_COLORS)]
            for axes, key, scale in (
                (left, "records_per_s", 1e-3),
                (right, "link_bytes_per_record", 1 / it["bytes_of_a_record"]),
            ):
                value, errors = it[key]["mean"] * scale, style.ends([it[key]], scale)
                axes.barh(place, value, 0.8, xerr=errors, color=color, ecolor=style.BLACK)
            places.append(place)
            labels.append(_way(it))
            place += 1
        place += 0.7
    left.set_yticks(places, labels)
    right.set_yticks(places, [])
    left.set_ylabel("records in a message, at most")
    left.set_xlabel("records/s, thousands")
    right.set_xlabel("bytes on the link a byte of record")
    right.axvline(1, color=style.BLACK, linewidth=1, linestyle="--")
    for axes in (left, right):
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", labelsize=9)
        axes.xaxis.set_major_formatter(style.PLAIN)
        axes.margins(y=0.02)
    handles: list[Any] = [
        left.barh(0, 0, color=_COLORS[n % len(_COLORS)]) for n in range(len(groups))
    ]
    style.legend_above(figure, handles, groups, columns=3)
    return figure


SECTION = Section(
    name="link_batching",
    title="Batching on links",
    question="What do batching and compression on a link give?",
    set_up="A job that makes records sends them over a link to a job that counts them, each in an"
    " engine of its own, through one Mosquitto: detections of the traffic application's trace, one"
    " or eight in a record, as fast as it goes and then at a moderate rate.",
    target="link-batching",
    figures=_figures,
    plots=[
        Plot(
            "link-batching",
            "Records a second, and bytes on the link for a byte of record, for each number of"
            " records in a message, with 95 % intervals",
            _draw,
        )
    ],
)
