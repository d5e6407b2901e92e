"""bench.fig6: chains are deployed, changed and deleted."""

from __future__ import annotations

from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Plot, Section
from bench.page.words import mean, number, table

_ACTIONS = {"deploy": "deploy", "modify": "modify, of the longest", "delete": "delete"}
_KINDS = {
    "argument": "another argument",
    "savepoint": "another argument, state kept",
    "move": "another site",
    "insert": "every second job inserted",
}
_WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "one_by_one_s": ("one by one", {"color": style.RED, "marker": "^", "linestyle": ":"}),
    "floor_s": ("floor: bare REST calls", {"color": style.BLACK, "marker": "s", "linestyle": "--"}),
    "speck_s": ("speck", {"color": style.BLUE, "marker": "o", "linestyle": "-"}),
}


def _figures(result: Result) -> str:
    summary = result["summary"]
    return (
        "Means, with the least and the most of the runs; one by one takes so long that it was run"
        " less often. To delete, the floor and the calls one by one cancel the jobs; speck ends"
        " their readers' sessions and clears their numbers at the brokers, too, and so does the"
        " floor of the row `delete, sessions too` with the sessions. Jobs keep no state (`upgrade:"
        " stateless`), unless it is said: speck and the floor cancel a job and start it again, or"
        " stop it with a savepoint where state is kept or a link changes. Nothing flows through"
        " these chains: what a change loses and how long it is silent is measured"
        ' under "Moves under load" and "Rewired under load".\n\nOver the WAN:'
        f"\n\n{_table(summary)}\n\nAll sites side by side, no WAN between them:"
        f"\n\n{_table(summary['near'])}"
    )


def _table(summary: Result) -> str:
    rows = []
    for action, words in {**_ACTIONS, **_KINDS}.items():
        for point in summary[action]:
            cells = [_runs(point[way]) for way in reversed(_WAYS)]
            ratio = point["ratio"]["median"] if "ratio" in point else None
            rows.append((words, point["jobs"], *cells, number(ratio)))
            if point.get("floor_released_s", {}).get("n"):
                cells[1] = _runs(point["floor_released_s"])
                ratio = point["ratio_released"]["median"]
                rows.append(("delete, sessions too", point["jobs"], *cells, number(ratio)))
    heads = ["action", ">jobs", ">speck, s", ">floor, s", ">one by one, s", ">speck to floor"]
    of = summary["of_a_deployment"]
    ratios = ", ".join(f"{_KINDS[kind]} {number(of[kind]['median'])}" for kind in of)
    jobs = summary["deploy"][-1]["jobs"]
    changes = f" Changing {jobs} jobs takes, times their deployment: {ratios}."
    return (
        f"{table(heads, rows)}\n\nSpeck to floor: the median of the rounds.{changes}"
        f" Actions that began on a busy machine: {100 * summary['restless']:.0f} %."
        f" Applying what runs already: {mean(summary['noop_s'], 's')}."
    )


def _runs(interval: Result) -> str:
    if interval["mean"] is None:
        return "–"
    runs = f"{interval['n']} run" + ("s" if interval["n"] > 1 else "")
    return f"{interval['mean']:.2f} ({interval['min']:.2f} to {interval['max']:.2f}, {runs})"


def _differences(result: Result) -> list[str]:
    summary = result["summary"]
    deploy, delete = (summary[action][-1]["speck_s"]["mean"] for action in ("deploy", "delete"))
    jobs = summary["deploy"][-1]["jobs"]
    kinds = [
        f"{words} {summary[kind][-1]['speck_s']['mean']:.2f} s"
        for kind, words in {"modify": "another argument", **_KINDS}.items()
        if kind != "argument"
    ]
    return [
        'The paper finds that "the modification of a large number of jobs is faster than its'
        " deployment: most of the time, it is better to modify the pipeline than to stop and"
        f' restart it". Here {jobs} jobs take {deploy:.2f} s to deploy and {delete:.2f} s to'
        f" delete; changed in place they take: {', '.join(kinds)}. Deleting and deploying again"
        f" takes {delete + deploy:.2f} s, and loses all state and every message that is queued"
        " between the jobs or comes meanwhile; a modification loses none. It ends each job before"
        " it starts the next one, since both are one reader to the broker: the work of a"
        " deployment, and more",
        "The paper's chains are changed in several ways at once; here each kind of change is"
        " measured by itself",
        "The other finding, that time grows with the jobs as a line, is repeated (R2 below)",
        "The paper's Flink instances have 166 to 192 task slots in all and lie in three real"
        " clusters; here six instances share one machine",
    ]


def _draw(result: Result) -> Any:
    return _draw_summary(result["summary"])


def _draw_near(result: Result) -> Any:
    return _draw_summary(result["summary"]["near"])


def _draw_summary(summary: Result) -> Any:
    figure, axes = style.figure(3, height=3.5, sharey=True)
    for each, (action, title) in zip(axes, _ACTIONS.items(), strict=True):
        points = summary[action]
        for way, (name, look) in _WAYS.items():
            style.with_error(
                each,
                [it["jobs"] for it in points],
                [it[way] for it in points],
                band=True,
                label=name,
                **look,
            )
        each.set_title(title)
        each.set_xlabel("jobs")
    style.from_zero(*axes)
    axes[0].set_ylabel("time, s")
    handles, names = axes[0].get_legend_handles_labels()
    style.legend_above(figure, handles[::-1], names[::-1])
    return figure


SECTION = Section(
    name="fig6",
    title="Deploying, changing and deleting chains (figure 6)",
    question="How long does it take to deploy, change and delete a chain of 1 to 100 jobs?",
    set_up="PassThrough jobs at random over six Flink instances in three clusters, 18.6 ms apart"
    " there and back; the control plane is in the first. The floor is the bare REST calls with the"
    " same concurrency over kept connections, for jobs with the same arguments but for topics, ids"
    " and epochs; one by one is one call after another, as the prototype of 2020 did it.",
    target="fig6",
    figures=_figures,
    plots=[
        Plot(
            "fig6",
            "Seconds to deploy, modify and delete chains over the number of jobs: speck, its floor,"
            " and one job after another. Points are means with 95 % intervals, bands least to most",
            _draw,
        ),
        Plot("fig6-near", "The same with all sites side by side, without a WAN", _draw_near),
    ],
    root=True,
    differences=_differences,
)
