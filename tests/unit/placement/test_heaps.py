"""What is free at sites, and what jobs will need, from an analysis."""

from __future__ import annotations

import pytest

from speck.model.values import JsonObject
from speck.placement.heaps import Heaps
from speck.placement.model import Load
from tests.analyses import analysis, as_result, describe_measured, site_told

MB = 1e6
OWN = Load("A", site="edge-a")


def heaps(*jobs: JsonObject, used: float | None = 100 * MB, limit: float = 500 * MB) -> Heaps:
    """An analysis of 600 s with one site of so much heap."""
    body = analysis(jobs)
    return Heaps(
        as_result({**body, "sites": [site_told("edge-a", heap_bytes=used, heap_max_bytes=limit)]})
    )


def job(
    name: str = "A", heap: float | None = 40 * MB, grows: float = 0.0, **more: object
) -> JsonObject:
    return describe_measured(name, "edge-a", heap_bytes=heap, heap_bytes_per_s=grows, **more)  # type: ignore[arg-type]


def test_a_job_needs_what_it_uses_and_what_it_grows_by_in_another_window() -> None:
    assert heaps(job()).foresee("c", "A", 1) == 40 * MB
    assert heaps(job(grows=10_000.0)).foresee("c", "A", 1) == 46 * MB
    assert heaps(job(grows=-10_000.0)).foresee("c", "A", 1) == 40 * MB
    assert heaps(job(heap=None)).foresee("c", "A", 1) is None
    assert heaps().foresee("c", "A", 1) is None


def test_more_subtasks_than_were_measured_need_more() -> None:
    assert heaps(job()).foresee("c", "A", 3) == (40 + 2 * 10) * MB
    assert heaps(job(subtasks=3)).foresee("c", "A", 1) == (40 - 2 * 10) * MB
    site = site_told("edge-a", heap_bytes_per_subtask=25 * MB)
    measured = Heaps(as_result({**analysis([job()]), "sites": [site]}))
    assert measured.foresee("c", "A", 3) == (40 + 2 * 25) * MB


def test_free_is_most_of_the_heap_less_what_is_used_by_others() -> None:
    assert heaps(job()).count_available("c", [OWN], "edge-a") == (400 - 100 + 40) * MB
    assert heaps(job()).count_available("c", [], "edge-a") == 300 * MB
    others = job("B", composition="other", grows=10_000.0)
    assert heaps(job(), others).count_available("c", [OWN], "edge-a") == (340 - 6) * MB


def test_a_job_that_moved_since_or_was_not_seen() -> None:
    """It uses no heap where it was not measured; one that nothing is known of is as large as an
    unmeasured one is assumed to be, so that it may stay."""
    moved = {**job(), "site": "cloud"}
    assert heaps(moved).count_available("c", [OWN], "edge-a") == 300 * MB
    assert heaps().count_available("c", [Load("A", site="edge-a", slots=2)], "edge-a") == 320 * MB


def test_without_figures_of_the_heap_there_is_no_limit() -> None:
    assert heaps(job(), used=None).count_available("c", [OWN], "edge-a") is None
    assert heaps(job()).count_available("c", [OWN], "elsewhere") is None


def test_jobs_do_not_use_more_than_their_engine_does() -> None:
    """Two estimates of 80 MB in a heap of 100 MB are 50 MB each."""
    both = heaps(job(heap=80 * MB), job("B", heap=80 * MB))
    assert both.foresee("c", "A", 1) == pytest.approx(50 * MB)
    own = [OWN, Load("B", site="edge-a")]
    assert both.count_available("c", own, "edge-a") == pytest.approx(400 * MB)


def test_a_job_that_is_a_process_of_its_own_needs_nothing_of_the_heap() -> None:
    """Nor is anything free for others when it goes, or taken by its growth."""
    body = analysis([job(), job("B", grows=10_000.0), job("C", composition="d", grows=10_000.0)])
    site = site_told("edge-a", heap_bytes=100 * MB, heap_max_bytes=500 * MB)
    apart = Heaps(as_result({**body, "sites": [site]}), frozenset({"B", "C"}))
    assert apart.foresee("c", "B", 3) == 0.0
    assert apart.foresee("c", "A", 1) == 40 * MB
    own = [OWN, Load("B", site="edge-a")]
    assert apart.count_available("c", own, "edge-a") == (400 - 100 + 40) * MB
