"""The files that the documentation names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = "speck|binders|policies|traffic|tests|bench|tools|docs"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]+\.(?:py|md|sh))`")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_file_that_a_page_names_exists(page: Path) -> None:
    named = set(PATH.findall(page.read_text()))
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
