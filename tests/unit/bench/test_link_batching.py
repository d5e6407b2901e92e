"""What the figures of bench.link_batching are made of, on made-up runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import link_batching
from bench.link_batching import Variant, checks, lines, rates, summarise, variants
from speck.model.values import JsonObject

RATED = round(link_batching.RATE * link_batching.RATED_S)


def word(at_ms: int, newest_ms: int, records: int, marks: int = 0, **late: int) -> JsonObject:
    histogram = {name.removeprefix("ms"): count for name, count in late.items()}
    return {
        "at_ms": at_ms,
        "newest_ms": newest_ms,
        "records": records,
        "marks": marks,
        "late": histogram,
    }


def test_a_steady_flow_is_counted_from_the_lead_to_the_mark() -> None:
    flow = [word(at, at - 5, at) for at in range(0, 5001, 250)]
    mark = word(5010, 4995, 5010, marks=1, ms5=5010)
    end = word(11_000, 10_900, 5010 + RATED, marks=2, ms5=5010, ms7=RATED - 2, ms90=2)
    result = rates([*flow, mark, end])
    assert result == {
        "records_per_s": 1000,
        "over_s": 3.76,
        "p50_ms": 7,
        "p99_ms": 7,
        "rated_records": RATED,
    }


@pytest.mark.parametrize("period_ms", [200, 1000])
def test_bursts_do_not_make_more_than_was_fed(period_ms: int) -> None:
    """1000 records/s; all of a period are counted in its 50 ms after its end."""
    words = [
        word(
            end + at, end - period_ms + at * period_ms // 50, end - period_ms + at * period_ms // 50
        )
        for end in range(period_ms, 5001, period_ms)
        for at in (0, 25, 49)
    ]
    last = word(5050, 5000, 5000, marks=1)
    end = word(12_000, 12_000, 5000 + RATED, marks=2, ms3=RATED)
    assert rates([*words, last, end])["records_per_s"] <= 1000


def test_what_waits_for_a_slow_reader_was_not_carried_when_it_was_made() -> None:
    """Made in 5 s, counted in 20."""
    words = [word(at, at // 4, at // 2) for at in range(0, 20_001, 250)]
    mark = word(20_000, 5000, 10_000, marks=1)
    end = word(21_000, 21_000, 10_000 + RATED, marks=2, ms3=RATED)
    assert rates([*words, mark, end])["records_per_s"] == 500


def test_latency_is_not_told_of_few_records() -> None:
    flow = [word(at, at, at) for at in range(0, 5001, 250)]
    mark, end = word(5000, 5000, 5000, marks=1), word(9000, 9000, 5081, marks=2, ms1975=81)
    result = rates([*flow, mark, end])
    assert (result["p50_ms"], result["p99_ms"], result["rated_records"]) == (None, None, 81)


def row(variant: Variant, per_s: float, link_bytes: float, **more: float | None) -> JsonObject:
    return {
        "variant": variant.key,
        "records_per_s": per_s,
        "link_bytes_per_record": link_bytes,
        "bytes_of_a_record": 130.0,
        "p50_ms": 5.0,
        "p99_ms": 9.0,
        "lost": 0,
        "repeated": 0,
        **more,
    }


def rows_of(**more: float | None) -> list[JsonObject]:
    """Under exactly_once batches carry all that is fed."""

    def per_s(variant: Variant) -> float:
        if variant.batch_records == 1:
            return 20_000
        return min(0.95 * variant.most_per_s, 1_000_000)

    return [row(v, per_s(v), 190 if v.batch_records == 1 else 20, **more) for v in variants()]


def test_what_is_claimed_and_what_is_only_what_was_fed() -> None:
    summaries = summarise(rows_of(), variants())
    fed = {each["delivery"] for each in summaries if each["all_that_was_fed"]}
    assert fed == {"exactly_once"}
    verdicts = {check.name: check for check in checks(summaries)}
    assert all(check.ok for check in verdicts.values())
    assert "all that was fed" in str(verdicts["records/s at 100 B, exactly_once"].measured)
    assert "all that was fed" not in str(verdicts["records/s at 100 B, at_least_once"].measured)


@pytest.mark.parametrize("what", ["lost", "repeated"])
def test_one_record_lost_or_repeated_fails_a_trial_too(what: str) -> None:
    rows = rows_of()
    rows[-1][what] = 1
    failed = [check for check in checks(summarise(rows, variants())) if check.ok is False]
    assert [(check.name, check.always) for check in failed] == [("lost and repeated records", True)]


def test_runs_without_latencies_leave_a_gap() -> None:
    rows = rows_of(p50_ms=None)
    summaries = summarise(rows, variants())
    assert summaries[0]["added_p50_ms"] is None
    assert summaries[0]["p50_ms"]["mean"] is None
    assert summaries[0]["added_p99_ms"] == 0


def test_no_line_is_twice_in_a_message() -> None:
    for size in (100, 1000):
        text_lines = lines(size)
        most = min(10_000, (1 << 20) // (len(text_lines[0]) + 30))
        batch = max(v.batch_records for v in variants() if v.size == min(size, v.size))
        assert len(text_lines) > min(batch, most)


def test_each_way_is_compared_with_the_same_records_one_by_one() -> None:
    for variant in variants():
        assert variant.plain in variants()
        assert replace(variant, batch_records=1, compression="none") == variant.plain
