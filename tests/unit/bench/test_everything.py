"""All experiments run, whatever the outcome of one."""

from __future__ import annotations

import importlib.util
import json
import re
import threading
from pathlib import Path

import pytest

from bench import everything
from bench.everything import MEASURED, MISSING, NOT_RUN, Outcome, is_measured, run, run_all, table
from bench.page.section import Section
from bench.results_page import DOCS, load_sections


def _section(name: str, root: bool = False) -> Section:
    return Section(name, name, "?", "", name, figures=lambda result: "", root=root)


def test_one_that_fails_hides_no_other() -> None:
    statuses = {"one": 0, "two": 3, "three": 0}
    sections = [_section(name) for name in statuses]
    outcomes = run_all(sections, lambda name: Outcome(name, 1.0, statuses[name]), root=True)
    assert [(it.name, it.failed) for it in outcomes] == [
        ("one", False),
        ("two", True),
        ("three", False),
    ]
    lines = table(outcomes, 2.0).splitlines()
    assert lines[1].split() == ["two", "1", "s", "failed", "(status", "3)"]
    assert lines[-1].split() == ["all", "2", "s", "1", "of", "3", "failed"]


def test_what_needs_root_is_said_and_no_failure() -> None:
    outcomes = run_all([_section("one", root=True)], lambda name: Outcome(name, 1, 1), root=False)
    assert [(it.why, it.failed) for it in outcomes] == [(NOT_RUN, False)]
    assert NOT_RUN in table(outcomes, 0.0)


def test_what_was_measured_from_this_code_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(everything, "RESULTS", tmp_path)
    (tmp_path / "one.json").write_text(json.dumps({"code": "abc"}))
    (tmp_path / "two.json").write_text(json.dumps({"made": {"code": "abc"}}))
    (tmp_path / "three.json").write_text(json.dumps({"made": {"code": "older"}}))
    (tmp_path / "rewire.json").write_text(json.dumps({"made": {"code": "abc"}}))
    sections = [_section(name) for name in ("one", "two", "three", "four", "rewire")]
    outcomes = run_all(
        sections,
        lambda name: Outcome(name, 1.0, 0),
        root=True,
        is_done=lambda name: is_measured(name, "abc"),
    )
    assert [it.why == MEASURED for it in outcomes] == [True, True, False, False, False]
    assert "2 measured before: --again repeats them" in table(outcomes, 1.0)
    assert not is_measured("one", "abc+")


def test_a_trial_runs_two_at_a_time_and_tells_of_them_in_order() -> None:
    together = threading.Barrier(2, timeout=20)

    def run(name: str) -> Outcome:
        together.wait()
        return Outcome(name, 1.0, 0)

    sections = [_section(name) for name in ("one", "two", "three", "four")]
    outcomes = run_all(sections, run, root=True, at_once=2)
    assert [it.name for it in outcomes] == ["one", "two", "three", "four"]


def test_an_experiment_that_is_not_there_is_a_failure() -> None:
    outcome = run("no_such_thing")
    assert (outcome.why, outcome.failed) == (MISSING, True)


@pytest.mark.parametrize("section", load_sections(), ids=lambda it: it.name)
def test_every_experiment_of_the_page_can_be_run(section: Section) -> None:
    assert importlib.util.find_spec(f"bench.{section.name}") is not None
    makefile = (DOCS.parent / "Makefile").read_text()
    assert f"\nbench-{section.target}: setup ## " in makefile
    assert re.search(rf"-m bench\.{section.name}\s", makefile)
