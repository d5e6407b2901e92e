"""Every section writes its figures and draws its plots from a small result."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.page.section import markdown
from bench.page.style import save
from bench.results_page import load_sections
from tests.unit.bench.page.small import SUMMARIES, write_small_result

BY_NAME = {section.name: section for section in load_sections()}


@pytest.mark.parametrize("name", SUMMARIES)
def test_figures_are_written_and_plots_drawn(name: str, tmp_path: Path) -> None:
    section, result = BY_NAME[name], write_small_result(name, SUMMARIES[name](), tmp_path)
    text = markdown(section, result)
    assert f"# {section.title}" in text and "Simulated: All of it." in text
    assert "\n| " in text
    assert section.plots
    if section.headline is not None:
        rows = section.headline(result)
        assert rows and all(what and measured for what, measured in rows)
    for plot in section.plots:
        assert f"](../plots/{plot.name}.svg)" in text
        drawing = tmp_path / f"{plot.name}.svg"
        save(plot.draw(result), drawing, "small.json 0123")
        assert "small.json 0123" in drawing.read_text()
