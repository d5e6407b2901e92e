"""docs/placement.md: its snippets print what it says, it names all policies, and its figures."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from bench.placement import page_with
from speck.placement.names import list_policies

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "placement.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```\nprints\n```text\n(.*?)```", TEXT, re.DOTALL)


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) == TEXT.count("```python") == 2


@pytest.mark.parametrize(("code", "printed"), SNIPPETS)
def test_a_snippet_prints_what_stands_below_it(code: str, printed: str) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "docs/placement.md", "exec"), {})
    assert out.getvalue() == printed


def test_every_policy_has_a_row() -> None:
    table = TEXT.split("## Policies\n")[1].split("### RoLBTS")[0]
    assert set(re.findall(r"`([a-z-]+)`", table)) >= set(list_policies())


def test_the_figures_are_those_that_were_measured() -> None:
    result = json.loads((ROOT / "bench" / "results" / "placement.json").read_text())
    assert page_with(TEXT, result) == TEXT
