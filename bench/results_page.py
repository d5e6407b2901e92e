"""docs/results.md, a page and the plots of each experiment, made of bench/results/*.json: `make
results`.

The same results give the same bytes. Each plot carries a mark of the result it was drawn from,
so that a test sees one that is out of date.

    python -m bench.results_page [--png FOLDER]     (--png: pictures to look at, nothing else)
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.common import RESULTS, say
from bench.page import moves_engines, small
from bench.page.result import Result, fingerprint, load
from bench.page.section import MADE, Section, claims_of, made_of, markdown
from bench.page.words import table
from speck.errors import PermanentError

README = Path(__file__).parents[1] / "README.md"
DOCS = Path(__file__).parents[1] / "docs"
NAMES = (
    "traffic",
    "fig8",
    "edge_server",
    "in_action",
    "policies",
    "ramp",
    "link_batching",
    "engines",
    "fig6",
    "scale",
    "moves",
    "moves_kafka",
    "moves_process",
    "moves_spark",
    "rewire",
    "faults",
    "crash",
    "exactly_once",
    "connector",
    "tls",
    "collector",
    "analyzer",
    "placement",
    "truth",
    "store",
    "overload",
    "state",
)
"""The sections in their order; each is a module of bench/page, or one of `_few`."""

SHOWN = ("traffic", "edge_server", "in_action")
"""What the README shows a plot of: the first of each."""
IN_TABLE = (*SHOWN, "rewire", "state")
"""What the README's table holds."""
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"

LIMITS = """\
What to bear in mind: one machine with few cores plays all parts; how fast those cores are was not
recorded, and differs from day to day. Engines, brokers, feeds, readers and the control plane share
its cores, so a figure is about this code beside its floor in the same run, not about what a real
fog of Raspberry Pis and a data centre reaches. Where a run used so much of the machine that its
figures say nothing, it is marked and not judged. What was simulated is said with each experiment.
Intervals are 95 % confidence intervals of the mean (Student's t) over repeated runs; of fewer than
three runs none is given."""


def load_sections() -> list[Section]:
    """All of them, in the page's order."""
    few = _few()
    return [
        few.get(name) or importlib.import_module(f"bench.page.{name}").SECTION for name in NAMES
    ]


def _few() -> dict[str, Section]:
    """Those that share a module with others."""
    from bench.page import moves  # which draws: matplotlib is not for everyone who asks for names

    sections = (*small.SECTIONS, moves.KAFKA, *moves_engines.SECTIONS)
    return {section.name: section for section in sections}


def load_results(sections: Sequence[Section], folder: Path = RESULTS) -> dict[str, Result]:
    """The existing results, by name."""
    files = {section.name: folder / f"{section.name}.json" for section in sections}
    return {name: load(file) for name, file in files.items() if file.exists()}


def render_pages(sections: Sequence[Section], results: dict[str, Result]) -> dict[str, str]:
    """All pages, by their names below docs: the overview, and one for each experiment."""
    parts = [
        "# Results",
        MADE,
        "What speck does, measured. `make bench` repeats all of it, `make bench QUICK=1` tries all"
        " of it (its figures prove nothing and are kept apart), `make results`"
        " makes these pages.",
        _machines(results),
        LIMITS,
        _overview(sections, results),
        _list_failed(sections, results),
    ]
    pages = {section.page: markdown(section, results.get(section.name)) for section in sections}
    return {name: text + "\n" for name, text in {"results.md": "\n\n".join(parts), **pages}.items()}


def render_readme(text: str, sections: Sequence[Section], results: dict[str, Result]) -> str:
    """The README with the results between its marks."""
    by_name = {section.name: section for section in sections}
    rows = [row for name in IN_TABLE for row in _rows(by_name[name], results.get(name))]
    parts = [table(("measured", "result"), rows)]
    parts += [_plot(by_name[name]) for name in SHOWN if name in results]
    before, rest = text.split(BEGIN)
    body = "\n\n".join(parts)
    return f"{before}{BEGIN}\n{body}\n{END}{rest.split(END)[1]}"


def _rows(section: Section, result: Result | None) -> Sequence[tuple[str, str]]:
    if result is None or section.headline is None:
        return [(section.title, f"not measured yet (`make bench-{section.target}`)")]
    return section.headline(result)


def _plot(section: Section) -> str:
    plot = section.plots[0]
    return f"![{plot.alt}](docs/plots/{plot.name}.svg)"


def _machines(results: dict[str, Result]) -> str:
    """The machines of the results; several machines or versions are listed separately."""
    by_machine: dict[str, list[str]] = {}
    for name, result in results.items():
        by_machine.setdefault(_measured_on(result), []).append(name)
    if len(by_machine) == 1:
        return f"Measured on: {next(iter(by_machine))}."
    lines = [f"- {what}: {', '.join(names)}" for what, names in by_machine.items() if what]
    if silent := by_machine.get(""):
        lines.append(f"- recorded without the machine: {', '.join(silent)}")
    return "Measured on:\n\n" + "\n".join(lines)


def _measured_on(result: Result) -> str:
    machine = made_of(result).get("machine") or _settings_of_first(result).get("machine")
    if not machine:
        return ""
    words = [f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}"]
    names = {"flink": "Flink", "mosquitto": "Mosquitto", "java": "Java", "spark": "Spark"}
    words += [f"{names[key]} {machine[key]}" for key in names if key in machine]
    return ", ".join([*words, f"Python {machine['python']}"])


def _settings_of_first(result: Result) -> Result:
    items = result.get("items") or [result]
    return Result(items[0].get("settings", {}), result.file)


def _overview(sections: Sequence[Section], results: dict[str, Result]) -> str:
    rows: list[Sequence[object]] = []
    for section in sections:
        link = f"[{section.title}]({section.page})"
        if section.name not in results:
            rows.append((link, section.question, "**missing**", "", ""))
            continue
        claims = claims_of(section, results[section.name])
        ok, wrong, open_ = (sum(1 for it in claims if it.ok is how) for how in (True, False, None))
        rows.append((link, section.question, ok, f"**{wrong}**" if wrong else 0, open_))
    return table(["experiment", "question", ">checks ok", ">failed", ">not judged"], rows)


def _list_failed(sections: Sequence[Section], results: dict[str, Result]) -> str:
    """All failed checks, in one place."""
    rows = [
        (f"[{section.title}]({section.page})", claim.name, claim.wanted, claim.measured)
        for section in sections
        if section.name in results
        for claim in claims_of(section, results[section.name])
        if claim.ok is False
    ]
    if not rows:
        return "No check failed."
    return "Not as wanted:\n\n" + table(["experiment", "what", ">wanted", ">measured"], rows)


def draw_plots(
    sections: Sequence[Section], results: dict[str, Result], folder: Path, kind: str
) -> Iterator[Path]:
    """Write every plot; the paths of the files."""
    from bench.page import style

    for section in sections:
        if section.name not in results:
            continue
        mark = mark_of(results[section.name].file)
        for plot in section.plots:
            path = folder / f"{plot.name}.{kind}"
            style.save(plot.draw(results[section.name]), path, mark)
            yield path


def mark_of(file: str, folder: Path = RESULTS) -> str:
    """The mark on a plot of this result."""
    return f"{file} {fingerprint(folder / file)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--png", type=Path, help="draw PNGs into this folder, and nothing else")
    options = parser.parse_args()
    sections = load_sections()
    try:
        results = load_results(sections)
        if options.png:
            for path in draw_plots(sections, results, options.png, "png"):
                print(path)
            return 0
        plots = DOCS / "plots"
        drawings = set(draw_plots(sections, results, plots, "svg"))
        for old in set(plots.glob("*.svg")) - drawings:
            old.unlink()
        pages = render_pages(sections, results)
        for old in set((DOCS / "results").glob("*.md")) - {DOCS / name for name in pages}:
            old.unlink()
        for name, text in pages.items():
            (DOCS / name).parent.mkdir(exist_ok=True)
            (DOCS / name).write_text(text)
        README.write_text(render_readme(README.read_text(), sections, results))
    except PermanentError as error:
        say(str(error))
        return 1
    missing = [section.name for section in sections if section.name not in results]
    names = ", ".join(missing) or "none"
    say(f"wrote {len(pages)} pages in {DOCS}, {len(drawings)} plots; missing: {names}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
