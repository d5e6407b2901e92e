"""The pages of results and their plots show the latest results, and name missing ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.common import RESULTS
from bench.page.result import ResultError, load
from bench.page.section import Section
from bench.results_page import (
    DOCS,
    README,
    draw_plots,
    load_results,
    load_sections,
    mark_of,
    render_pages,
    render_readme,
)

SECTIONS = load_sections()


def test_the_pages_are_made_from_the_results() -> None:
    pages = render_pages(SECTIONS, load_results(SECTIONS))
    assert {name: (DOCS / name).read_text() for name in pages} == pages
    assert {f"results/{file.name}" for file in (DOCS / "results").iterdir()} < pages.keys()


def test_links_of_the_pages_lead_somewhere() -> None:
    for name, text in render_pages(SECTIONS, load_results(SECTIONS)).items():
        for link in re.findall(r"\]\(([^)#]+)", text):
            assert (DOCS / name).parent.joinpath(link).exists(), f"{name}: {link}"


def test_the_readme_is_made_from_the_results() -> None:
    text = README.read_text()
    assert text == render_readme(text, SECTIONS, load_results(SECTIONS))


def test_every_plot_is_there_and_drawn_from_the_newest_result() -> None:
    expected = {
        plot.name: mark_of(f"{section.name}.json")
        for section in SECTIONS
        if (RESULTS / f"{section.name}.json").exists()
        for plot in section.plots
    }
    drawings = {path.stem: path.read_text() for path in (DOCS / "plots").glob("*.svg")}
    assert set(drawings) == set(expected)
    assert [name for name, mark in expected.items() if mark not in drawings[name]] == []


QUICK = ("fig8", "ramp")


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(each, marks=() if each.name in QUICK else pytest.mark.long)
        for each in SECTIONS
        if each.plots
    ],
    ids=lambda section: section.name,
)
def test_plots_are_drawn_from_the_result(section: Section, tmp_path: Path) -> None:
    drawings = list(draw_plots([section], load_results([section]), tmp_path, "svg"))
    assert [path.stem for path in drawings] == [plot.name for plot in section.plots]
    assert all(mark_of(f"{section.name}.json") in path.read_text() for path in drawings)


def test_the_same_result_is_the_same_picture(tmp_path: Path) -> None:
    some = [section for section in SECTIONS if section.name == "moves"]
    results = load_results(some)
    first, second = (
        [path.read_bytes() for path in draw_plots(some, results, tmp_path / folder, "svg")]
        for folder in ("one", "other")
    )
    assert first == second and first


def test_every_result_has_its_section() -> None:
    names = {section.name for section in SECTIONS}
    assert {file.stem for file in RESULTS.glob("*.json")} <= names


def _section(**more: object) -> Section:
    fields: dict[str, object] = {
        "name": "speed",
        "title": "Speed",
        "question": "How fast?",
        "set_up": "One of each.",
        "target": "speed",
        "figures": lambda result: f"{result['summary']['rate_per_s']} a second",
    }
    return Section(**{**fields, **more})  # type: ignore[arg-type]


def test_what_was_not_measured_is_said_to_be_missing() -> None:
    pages = render_pages([_section()], {})
    assert "| [Speed](results/speed.md) | How fast? | **missing** |" in pages["results.md"]
    assert (
        "**Missing: not measured yet.** `make bench-speed` measures it."
        in pages["results/speed.md"]
    )


def test_a_failed_check_stands_out(tmp_path: Path) -> None:
    checks = [
        {"name": "rate", "wanted": "> 5", "measured": 3.0, "ok": False, "note": "slow"},
        {"name": "lost", "wanted": "0", "measured": 0, "ok": True, "note": ""},
        {"name": "cpu", "wanted": "< 70 %", "measured": 0.9, "ok": None, "note": "saturated"},
    ]
    file = tmp_path / "speed.json"
    file.write_text(json.dumps({"summary": {"rate_per_s": 3}, "checks": checks}))
    pages = render_pages([_section()], {"speed": load(file)})
    assert "| [Speed](results/speed.md) | How fast? | 1 | **1** | 1 |" in pages["results.md"]
    assert "| [Speed](results/speed.md) | rate | > 5 | 3 |" in pages["results.md"]
    text = pages["results/speed.md"]
    assert "> **1 of 3 checks failed:** rate." in text
    assert "| **NOT** | rate | > 5 | 3 | slow |" in text
    assert "| not judged | cpu | < 70 % | 0.9 | saturated |" in text


def test_a_missing_key_is_named_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "speed.json"
    file.write_text(json.dumps({"summary": {"rates": [{"mean": 1}]}}))
    result = load(file)
    with pytest.raises(ResultError, match=r"cannot show speed\.json: it has no 'summary\.rate_per"):
        render_pages([_section()], {"speed": result})
    with pytest.raises(ResultError, match=r"no 'summary\.rates\[0\]\.low'"):
        result["summary"]["rates"][0]["low"]


def test_a_result_that_was_cut_off_is_named(tmp_path: Path) -> None:
    file = tmp_path / "speed.json"
    file.write_text('{"summary": ')
    with pytest.raises(ResultError, match=r"cannot read .*speed\.json"):
        load(file)
