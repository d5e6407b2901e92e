"""Metrics and logs."""

from __future__ import annotations

from pathlib import Path

from tests.services.flink.site import Site
from tests.waiting import wait_for


def test_only_the_operators_own_counters_count_in_a_chained_job(site: Site) -> None:
    job = site.run("--chained")
    metrics = wait_for(
        lambda: (
            metrics
            if (metrics := site.engine.metrics(job)).get("Source__numbers.numRecordsOut")
            else None
        ),
        "counters",
    )
    vertices = site.server.get(f"/jobs/{job}").json()["vertices"]
    assert [vertex["metrics"]["write-records"] for vertex in vertices] == [0]
    assert metrics["nothing__Writer.numRecordsIn"] > 0
    assert metrics["nothing__Writer.numRecordsSend"] == 0, "the writer itself must count"
    busy = [name for name in metrics if name.endswith(".accumulateBusyTimeMs")]
    assert busy == [f"{vertices[0]['id']}.accumulateBusyTimeMs"]
    assert not [name for name in metrics if "PerSecond" in name or "Watermark" in name]


def test_one_unknown_name_empties_an_aggregated_answer(site: Site) -> None:
    job = site.run()
    vertex = f"/jobs/{job}/vertices/{site.engine.job_plan(job)[0].id}"
    known, unknown = "numRecordsIn", "numRecordsNever"
    wait_for(lambda: site.server.get(f"{vertex}/metrics").json(), "metrics")
    every = site.server.get(f"{vertex}/subtasks/metrics", get=f"{known},{unknown}", agg="sum")
    assert every.json() == []
    each = site.server.get(f"{vertex}/metrics", get=f"0.{known},0.{unknown}").json()
    assert [metric["id"] for metric in each] == [f"0.{known}"]


def test_a_task_tells_its_busy_time_once_its_operators_are_open(site: Site, tmp_path: Path) -> None:
    """Until then it may not have all its metrics: the binder goes on asking for their names."""
    hold = tmp_path / "hold"
    hold.touch()
    job = site.start("--hold-open", str(hold))
    wait_for(lambda: site.engine.view().jobs[job].tasks_total == 2, "a plan")

    def busy() -> list[float | None]:
        measures = site.engine.measure([job]).jobs.get(job)
        return [task.busy_ms for task in measures.tasks] if measures is not None else []

    wait_for(lambda: [it is None for it in busy()] == [False, True], "the source's task alone")
    hold.unlink()
    wait_for(lambda: len(times := busy()) == 2 and None not in times, "both tasks")


def test_a_wide_job_has_more_metrics_than_one_request_takes(site: Site) -> None:
    job = site.run(width=8)
    names = ("Source__numbers.numRecordsOut", "count.numRecordsIn", "nothing__Writer.numRecordsIn")
    wait_for(lambda: set(names) <= set(site.engine.metrics(job)), "all")


def test_the_metaspace_is_measured(site: Site) -> None:
    share = wait_for(lambda: site.engine.measure([]).metaspace_share, "the metaspace")
    assert 0.01 < share < 0.8  # less with an archive of classes, which are not in it


def test_what_a_job_prints_is_in_the_rotated_log(site: Site) -> None:
    log = site.server.engine.log
    job = site.run("--print")
    wait_for(lambda: "printed printed" in log.read_text(errors="replace"), "its words")
    site.engine.cancel(job)
    assert "printed" not in log.with_suffix(".out").read_text()
