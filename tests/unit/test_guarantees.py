"""docs/guarantees.md shows the measurements."""

from __future__ import annotations

import json

from bench.common import RESULTS
from bench.faults import PAGE, with_table


def test_the_table_is_made_from_the_results() -> None:
    rows = json.loads((RESULTS / "faults.json").read_text())["faults"]
    page = PAGE.read_text()
    assert with_table(page, rows) == page
