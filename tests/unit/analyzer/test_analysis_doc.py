"""docs/analysis.md names the fields that an analysis has, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from speck.analyzer.features import JOB_FIELDS
from speck.analyzer.forecast import FORECASTS
from speck.analyzer.links import END_FIELDS, LAG_FIELDS, join_links
from speck.analyzer.result import INTERNAL
from speck.analyzer.sites import SITE_FIELDS
from speck.api.shapes.analyses import AnalysisShape
from speck.model.analysis_result import (
    AnalysedJob,
    AnalysedLink,
    AnalysedReader,
    AnalysedSite,
    LinkForecast,
    RankedJob,
)
from speck.model.shown import render, shown_fields
from tests.rows_of_jobs import job, rank

DOC = (Path(__file__).parents[3] / "docs" / "analysis.md").read_text()
FIELDS = {
    "jobs": {*JOB_FIELDS, "source", "sink"} - {*INTERNAL},
    "links": {*render(join_links([job("any")], ())[0])},
    "sites": {*SITE_FIELDS, "name", "load"} - {"site", "last_at"},
    "ranking": {*rank([job("any")])[0]},
    "forecast": {*FORECASTS.columns},
}

RECORDS = {
    "jobs": AnalysedJob,
    "links": AnalysedLink,
    "sites": AnalysedSite,
    "ranking": RankedJob,
    "forecast": LinkForecast,
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


@pytest.mark.parametrize("part", FIELDS)
def test_the_record_of_a_row_has_its_columns(part: str) -> None:
    assert {*shown_fields(RECORDS[part])} == FIELDS[part]


def test_the_record_of_a_reader_has_its_columns() -> None:
    assert {*shown_fields(AnalysedReader)} == {*END_FIELDS, *LAG_FIELDS}
