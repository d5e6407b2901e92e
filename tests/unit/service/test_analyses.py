"""Analyses as the service runs them: real processes of the analyzer, over memory sites."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from speck.analyzer.process import SparkApplication
from speck.errors import ConflictError, InvalidError, NotFoundError
from speck.model.analysis import AnalysisHead, AnalysisState, Progress
from speck.model.shown import render
from speck.service import Service
from speck.service.analyses import Analyses
from speck.service.analysis_runs import WAITING, AnalysisRequest
from tests.analyses import analysis, as_result, describe_measured
from tests.samples_by_hand import dataset, plan, running, site
from tests.service_helpers import DONE, composition, job_body, reopened
from tests.waiting import wait_for

RUN_S = 300.0


def start(service: Service, **options: object) -> str:
    return service.analyses.start(replace(AnalysisRequest(), **options)).id


def pid_of(service: Service, analysis_id: str) -> int:
    run = service.analyses.runs.find(analysis_id)
    assert run is not None
    return wait_for(lambda: run.application is not None and run.application.pid)


def analyse(service: Service, **options: object) -> Any:
    """An analysis that is over."""
    analysis_id = start(service, **options)
    service.analyses.wait(analysis_id, RUN_S)
    return service.analyses.get(analysis_id)


def warm_pid(service: Service) -> int:
    application = service.analyses.runs.application.current
    assert application is not None
    pid = application.pid
    assert pid is not None
    return pid


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid)


@pytest.mark.long
def test_an_analysis_runs_and_is_kept_over_a_restart(service: Service) -> None:
    dataset(service.config.metrics, running(), [plan()], [*site("edge-a"), *site("cloud")])

    started = service.analyses.start(AnalysisRequest(composition="c", master="local[2]"))

    service.analyses.wait(started.id, RUN_S)
    analysis = service.analyses.get(started.id)
    assert (analysis.state, analysis.error) == ("done", None)
    assert analysis.result is not None
    assert analysis.result.jobs[0].core_s_per_record == pytest.approx(0.002)
    assert service.analyses.newest("c") == analysis
    assert service.analyses.newest("other") is None
    again = reopened(service)
    try:
        assert again.analyses.get(started.id) == analysis
    finally:
        again.close()


@pytest.mark.long
def test_spark_stays_up_for_the_next_one_until_it_is_idle_for_long(service: Service) -> None:
    dataset(service.config.metrics, running(), [plan()], [*site("edge-a"), *site("cloud")])
    cold = analyse(service)
    pid = warm_pid(service)

    warm = analyse(service, composition="c")

    assert (cold.warm, warm.warm) == (False, True)
    assert warm.result is not None and cold.result is not None
    assert warm.result.jobs == cold.result.jobs != ()
    assert warm_pid(service) == pid
    service.analyses.runs.idle_s = 0.0
    analyse(service)
    wait_for(lambda: is_gone(pid))
    assert analyse(service).warm is False


@pytest.mark.long
def test_an_analysis_whose_spark_dies_begins_again(service: Service) -> None:
    dataset(service.config.metrics, running(), [plan()], [*site("edge-a"), *site("cloud")])
    analyse(service)
    pid = warm_pid(service)
    os.kill(pid, signal.SIGSTOP)  # the next analysis cannot come to its end before the kill
    analysis_id = start(service)
    run = service.analyses.runs.find(analysis_id)
    assert run is not None
    wait_for(lambda: run.head.warm)

    os.killpg(pid, signal.SIGKILL)

    service.analyses.wait(analysis_id, RUN_S)
    analysis = service.analyses.get(analysis_id)
    assert (analysis.state, analysis.error, analysis.warm) == ("done", None, False)
    assert warm_pid(service) != pid


@pytest.mark.long
def test_spark_that_takes_too_much_memory_is_ended(service: Service) -> None:
    dataset(service.config.metrics, running(), [plan()], [*site("edge-a"), *site("cloud")])
    application = service.analyses.runs.application.take("local[*]")
    application.measure_memory = lambda: 1 << 40  # type: ignore[method-assign]

    assert analyse(service).state == "done"

    assert application.pid is not None
    assert is_gone(application.pid)
    assert service.analyses.runs.application.current is None


@pytest.mark.long
def test_the_first_analysis_finds_spark_ready_once_a_job_ran(service: Service) -> None:
    dataset(service.config.metrics, running(), [plan()], [*site("edge-a"), *site("cloud")])
    service.analyses._warms_up = True

    service.analyses.warm_up()

    wait_for(lambda: (it := service.analyses.runs.application.current) is not None and it.is_warm)
    pid = warm_pid(service)
    analysis = analyse(service)
    assert (analysis.state, analysis.warm) == ("done", True)
    assert warm_pid(service) == pid


def test_nothing_is_started_early_where_that_is_off_memory_is_scarce_or_for_a_cluster(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = psutil.virtual_memory()
    cluster = {"spark_masters": ("spark://127.0.0.1:1",), "spark_secret_file": tmp_path / "secret"}
    cases: list[tuple[dict[str, Any], int]] = [
        ({"analyzer_warm": False}, 8 << 30),
        ({"analyzer_warm": True}, (2 << 30) - 1),
        ({"analyzer_warm": True, **cluster}, 8 << 30),
    ]
    for options, available in cases:
        monkeypatch.setattr(psutil, "virtual_memory", partial(free._replace, available=available))
        config = replace(service.config, **options)
        analyses = Analyses(config, service.storage, service.records, service.clock, lambda: None)

        analyses.warm_up()

        assert analyses.runs.idle


def test_more_rows_than_the_jvm_holds_are_analysed_by_another_one(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes, applications = [("outgrown", ""), ("done", "")], []

    def ask(application: SparkApplication, *_: object) -> tuple[str, str]:
        applications.append(application)
        return outcomes.pop(0)

    monkeypatch.setattr(SparkApplication, "ask", ask)
    (service.config.metrics / "tasks" / "day=2026-01-01" / "composition=c").mkdir(parents=True)

    assert analyse(service).state == "done"
    assert len(set(map(id, applications))) == 2


def test_progress_is_shown_while_it_runs(service: Service) -> None:
    analysis_id = start(service, ahead_s=60.0)
    pid = pid_of(service, analysis_id)

    def read_progress() -> Any:
        return service.analyses.get(analysis_id).progress

    assert wait_for(read_progress) == Progress("starting Spark", 0, 5)
    service.analyses.cancel(analysis_id)
    assert read_progress() is None
    assert is_gone(pid)


def test_a_composition_of_which_nothing_is_known_is_refused_at_once(service: Service) -> None:
    with pytest.raises(NotFoundError, match="there is no such composition, and there are no samp"):
        start(service, composition="traffik")
    (service.config.metrics / "tasks" / "day=2026-01-01" / "composition=old").mkdir(parents=True)
    service.analyses.cancel(start(service, composition="old"))


def test_spark_that_cannot_be_started_says_why(service: Service, tmp_path: Path) -> None:
    master = "spark://127.0.0.1:1"
    config = replace(
        service.config, spark_masters=(master,), spark_secret_file=tmp_path / "missing"
    )
    analyses = Analyses(config, service.storage, service.records, service.clock, lambda: None)
    started = analyses.start(AnalysisRequest())

    analyses.wait(started.id, RUN_S)

    analysis = analyses.get(started.id)
    analyses.close()
    assert analysis.state == "failed"
    assert analysis.error.startswith(f"cannot read the secret of {master}: ")


@pytest.mark.long
def test_without_samples_it_fails_and_says_what_to_do(service: Service) -> None:
    analysis_id = start(service)
    service.analyses.wait(analysis_id, RUN_S)

    analysis = service.analyses.get(analysis_id)

    assert analysis.state == "failed"
    assert analysis.error.startswith("cannot analyse")
    assert "let the service collect metrics for a while" in analysis.error
    assert service.analyses.newest("c") is None


def test_a_cancelled_one_ends_with_its_process_and_those_that_wait_are_not_begun(
    service: Service,
) -> None:
    first, second = start(service), start(service)
    pid = pid_of(service, first)
    assert service.analyses.get(second).waits_for == first
    assert service.analyses.get(first).waits_for is None

    assert service.analyses.cancel(second).state == "cancelled"
    assert service.analyses.cancel(first).state == "cancelled"

    assert is_gone(pid)
    assert service.analyses.cancel(first).state == "cancelled"


def test_a_stop_of_the_service_ends_it(service: Service) -> None:
    analysis_id = start(service)
    pid = pid_of(service, analysis_id)

    again = reopened(service)

    try:
        assert is_gone(pid)
        analysis = again.analyses.get(analysis_id)
        assert (analysis.state, analysis.error) == ("failed", "the service stopped")
    finally:
        again.close()


def test_a_service_that_was_killed_left_one_that_failed(service: Service) -> None:
    head = AnalysisHead("a", AnalysisState.RUNNING, None, "", None, None, "local")
    service.records.write(service.records.analyses.put(head))

    again = reopened(service)

    try:
        assert again.analyses.get("a").error == "the service stopped"
    finally:
        again.close()


def test_only_so_many_wait(service: Service) -> None:
    running_now = [start(service) for _ in range(WAITING + 1)]
    with pytest.raises(ConflictError, match=running_now[0]):
        start(service)
    for analysis_id in reversed(running_now):
        service.analyses.cancel(analysis_id)


def test_what_cannot_be_is_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(InvalidError, match="is not a Spark master"):
        start(service, master="mesos")
    with pytest.raises(NotFoundError):
        service.analyses.cancel("nothing")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(InvalidError, match="there is no Java"):
        start(service)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, "the service has no secret of that cluster"),
        ({"spark_secret_file": Path("secret")}, "set SPECK_SPARK_DRIVER_HOST to this machine's"),
    ],
)
def test_a_cluster_needs_a_secret_and_a_way_to_the_driver(
    service: Service, more: dict[str, Any], says: str
) -> None:
    config = replace(service.config, spark_masters=("big=spark://10.0.0.5:7077",), **more)
    analyses = Analyses(config, service.storage, service.records, service.clock, lambda: None)
    with pytest.raises(InvalidError, match=says):
        analyses.start(AnalysisRequest(master="big"))


def keep(service: Service, analysis_id: str, text: str) -> Path:
    """An analysis that is done, with this file of its result."""
    head = AnalysisHead(analysis_id, AnalysisState.DONE, "c", "", None, None, "local[1]")
    service.records.write(service.records.analyses.put(head))
    file = service.config.home / "analyses" / f"{analysis_id}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def tables() -> Any:
    return render(as_result(analysis([describe_measured("clean", "edge-a")])))


def test_a_result_with_columns_of_another_version_is_named_with_what_to_do(
    service: Service,
) -> None:
    (site, *_) = tables()["sites"]
    del site["core_speed"]
    file = keep(service, "a1", json.dumps({**tables(), "sites": [{**site, "pace": 1.0}]}))

    read = service.analyses.get("a1")

    assert read.state == "done"
    assert read.result is None
    assert read.error is not None
    assert str(file) in read.error
    assert "sites[0].core_speed: is missing" in read.error
    assert "sites[0]: no such field: pace" in read.error
    assert "delete the file, and run `speck analyze` again" in read.error
    file.unlink()
    assert service.analyses.get("a1").result is None
    assert service.analyses.get("a1").error is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"jobs": {}}', '"text"', "null", "[" * 100_000, '{"window": NaN}', "\0"],
)
def test_a_damaged_result_is_named(service: Service, text: str) -> None:
    file = keep(service, "a1", text)
    error = service.analyses.get("a1").error
    assert error is not None
    assert error.startswith(f"cannot read the result of analysis a1 in {file}: ")


WRONG = {
    "window.from": {"window": {"from": 5, "to": None, "seconds": 1.0}},
    "window.to": {"window": {"from": None, "to": {}, "seconds": 1.0}},
    "window.seconds": {"window": {"from": None, "to": None, "seconds": None}},
    "window.from: must be a time": {"window": {"from": "yesterday", "to": None, "seconds": 1.0}},
    "window.to: must be a time": {
        "window": {"from": None, "to": "2026-01-31T12:00:00", "seconds": 1.0}
    },
    "bottlenecks[0].name": {"bottlenecks": [{"kind": "", "name": [], "value": 1.0, "why": ""}]},
    "bottlenecks[0].why": {"bottlenecks": [{"kind": "", "name": "", "value": 1.0, "why": None}]},
    "samples.rows": {"samples": {"rows": True}},
    "samples.damaged_files[1]": {"samples": {"damaged_files": ["", 1]}},
    "forecast[0].at": {"forecast": [{"at": "soon"}]},
}


@pytest.mark.parametrize(("place", "wrong"), WRONG.items(), ids=WRONG)
def test_a_value_of_another_type_is_named(service: Service, place: str, wrong: Any) -> None:
    if "samples" in wrong:
        wrong = {"samples": {**tables()["samples"], **wrong["samples"]}}
    if "forecast" in wrong:
        figures = dict.fromkeys(("rate", "low", "high"), 1.0)
        link = {"site": None, "topic": "t", "method": "m", "mape": None, **figures}
        wrong = {"forecast": [{**link, **each} for each in wrong["forecast"]]}
    keep(service, "a1", json.dumps({**tables(), **wrong}))
    error = service.analyses.get("a1").error
    assert error is not None
    assert place in error


def test_a_file_that_cannot_be_opened_is_named(service: Service) -> None:
    file = keep(service, "a1", "")
    file.unlink()
    file.mkdir()
    error = service.analyses.get("a1").error
    assert error is not None
    assert str(file) in error


def test_the_newest_that_can_be_read_is_taken_and_those_passed_over_are_warned_of(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    keep(service, "a1", json.dumps(tables()))
    keep(service, "a2", "{")
    newest = service.analyses.newest("c")
    assert newest is not None
    assert newest.id == "a1"
    assert "cannot read the result of analysis a2" in caplog.text


def test_where_none_can_be_read_that_is_why_nothing_is_placed(service: Service) -> None:
    service.compositions.apply(composition(job_body("A")), DONE)
    keep(service, "a1", "{")
    assert service.analyses.newest("c") is None
    with pytest.raises(ConflictError, match="cannot read the result of analysis a1"):
        service.placements.make("c")
    assert service.placements.make("c", "all-cloud", move_unmeasured=True).analysis is None
