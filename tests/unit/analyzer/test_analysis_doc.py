"""docs/analysis.md names the fields that an analysis has, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from speck.analyzer.features import JOB_FIELDS
from speck.analyzer.forecast import FORECASTS
from speck.analyzer.links import LINK_FIELDS
from speck.analyzer.ranking import RANK_FIELDS
from speck.analyzer.result import INTERNAL
from speck.analyzer.sites import SITE_FIELDS
from speck.api.shapes.analyses import AnalysisShape

DOC = (Path(__file__).parents[3] / "docs" / "analysis.md").read_text()
FIELDS = {
    "jobs": {*JOB_FIELDS, "source", "sink"} - {*INTERNAL},
    "links": {*LINK_FIELDS},
    "sites": {*SITE_FIELDS, "name", "load"} - {"site", "last_at"},
    "ranking": {*RANK_FIELDS},
    "forecast": {*FORECASTS.columns},
}


def fields_in(section: str) -> list[str]:
    """The names in the first cells of a section's table."""
    cells = re.findall(r"^\| (`.*?) \|", section, re.M)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


@pytest.mark.parametrize("part", FIELDS)
def test_every_field_is_described_once(part: str) -> None:
    (section,) = re.findall(rf"## {part}\n(.*?)(?=\n## |\Z)", DOC, re.S)
    assert sorted(fields_in(section)) == sorted(FIELDS[part])


def test_the_parts_of_the_document_are_those_of_the_api() -> None:
    parts = {*fields_in(DOC.split("## jobs")[0])}
    heads = {"id", "composition", "started", "ended", "error", "master"}
    assert parts == {*AnalysisShape().fields} - heads
