"""The section on rewiring shows each series and judges what each promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.page.result import Result, ResultError, load
from bench.page.rewire import SECTION
from bench.page.section import claims_of, markdown
from speck.model.values import JsonObject


def _series(delivery: str, **more: object) -> JsonObject:
    return {
        "changes": 200,
        "bytes_resent": 0,
        "published": 2_000_000,
        "lost": 0,
        "repeated": 0,
        "repeated_outside": 0,
        "two_copies": 0,
        "gap_s": {"p50": 0.9, "p95": 2.5, "max": 4.0, "of": 200},
        "delivery": delivery,
        "fault": "",
        **more,
    }


def _load_small(folder: Path, **more: object) -> Result:
    killed = {"engine": 30, "broker": 31, "service": 39}
    content = {
        **_series("exactly_once"),
        "at_least_once": _series("at_least_once"),
        "at_most_once": _series("at_most_once", lost=12),
        "with_kills": _series("exactly_once", changes=100, bytes_resent=999, killed=killed),
        "wanted_changes": 200,
        "wanted_kills": 100,
        "rate_per_s": 1000,
        "checkpoint_interval_s": 1.0,
        **more,
    }
    file = folder / "rewire.json"
    file.write_text(json.dumps(content))
    return load(file)


def test_it_is_shown(tmp_path: Path) -> None:
    text = markdown(SECTION, _load_small(tmp_path))
    row = "| at_most_once | 200 | 2,000,000 | 12 | 0 | 0 | 0 | 0 | 0.9 | 2.5 | 4 |"
    assert row in text
    assert "(30, 31 and 39 times)" in text
    assert "NOT" not in text


def test_what_is_not_as_wanted_stands_out(tmp_path: Path) -> None:
    bad = _series("at_least_once", changes=7, repeated=3, fault="change 8 is failed")
    claims = claims_of(SECTION, _load_small(tmp_path, lost=1, at_least_once=bad))
    assert [(it.name, it.note) for it in claims if it.ok is False] == [
        ("lost, exactly_once", "of 2,000,000 published"),
        ("changes done, at_least_once", "change 8 is failed"),
        ("repeated, at_least_once", "of 2,000,000 published"),
    ]


def test_what_was_not_counted_is_no_zero(tmp_path: Path) -> None:
    """Without taps bytes are not counted."""
    claims = claims_of(SECTION, _load_small(tmp_path, bytes_resent=None))
    assert [it.name for it in claims if it.ok is False] == ["bytes resent, exactly_once"]


def test_without_a_result_it_is_missing_and_half_a_one_is_an_error(tmp_path: Path) -> None:
    assert "**Missing: not measured yet.** `make bench-rewire`" in markdown(SECTION, None)
    result = _load_small(tmp_path)
    del result["with_kills"]
    with pytest.raises(ResultError, match="no 'with_kills'"):
        markdown(SECTION, result)
