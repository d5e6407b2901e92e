"""Jobs posted alone."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from binders.memory import World
from speck.deploy.deployer import PreparedPlan
from speck.errors import (
    ConflictError,
    EngineRefusedError,
    InvalidError,
    NotFoundError,
    UnreachableError,
)
from speck.model.composition import composition_of_one
from speck.service import Service
from speck.service.jobs import JobOutcome
from tests.memory_fog import make_jar
from tests.service_helpers import (
    DONE,
    LIMIT_S,
    broker,
    composition,
    engine,
    everything,
    job,
    job_body,
    look_anew,
    reopened,
)
from tests.waiting import wait_for


def test_a_posted_job_runs_under_the_engine_s_id(service: Service) -> None:
    answer = service.jobs.post(job("A"), LIMIT_S)
    assert answer.created
    assert answer.job.state == "running"
    assert answer.job.composition is None
    assert answer.job.revision == 1
    assert answer.job.attempt == 1
    assert list(engine("edge-a").jobs) == [answer.job.engine_job_id]


def test_the_same_post_again_is_200_and_starts_nothing(service: Service) -> None:
    first = service.jobs.post(job("A"), LIMIT_S)
    again = service.jobs.post(job("A"), LIMIT_S)
    assert again.job is not None
    assert again.job == first.job
    assert engine("edge-a").count("submit") == 1


def test_a_job_that_reads_the_batches_of_another_in_its_own_way_is_warned_of(
    service: Service,
) -> None:
    service.jobs.post(job("A", link={"batch_records": 10}), LIMIT_S)
    reader = job_body("B", source_topic="A-out", args=["{source_topic}"])
    warnings = service.compositions.apply(composition(reader), DONE).warnings
    assert ["A-out" in warning for warning in warnings if "sends batches" in warning] == [True]


def test_another_job_of_the_same_name_is_refused(service: Service) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    with pytest.raises(ConflictError) as error:
        service.jobs.post(job("A", args=["--x"]), LIMIT_S)
    assert str(error.value) == (
        "cannot add job 'A': another of that name is there; change it with PUT /jobs/A"
    )


def test_a_job_that_its_engine_does_not_list_has_no_counters(service: Service) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    assert service.jobs.metrics("A").metrics
    engine("edge-a").forget_jobs()
    answer = service.jobs.metrics("A")
    assert (answer.job_name, answer.site, answer.metrics) == ("A", "edge-a", {})


def test_a_job_that_does_not_run_in_time_is_202_with_its_change(service: Service) -> None:
    engine("edge-a").hold_starts = True
    answer = service.jobs.post(job("A"), 0)
    assert answer.under_way is not None
    assert service.jobs.get("A").state in ("pending", "deploying")
    with pytest.raises(ConflictError) as error:
        service.jobs.delete("A", 0)
    assert error.value.change == answer.under_way.id
    engine("edge-a").let_go()
    wait_for(lambda: service.jobs.get("A").state == "running")


def test_what_the_engine_refuses_names_the_site_and_leaves_nothing_behind(
    service: Service,
) -> None:
    before = everything(service)
    engine("edge-a").refuse("submit", 1, EngineRefusedError("cannot start A: no such option --x"))
    with pytest.raises(EngineRefusedError, match=r"no such option --x.*edge-a"):
        service.jobs.post(job("A"), LIMIT_S)
    assert everything(service) == before
    assert broker("edge-a").sessions == {}
    with pytest.raises(NotFoundError):
        service.jobs.get("A")
    assert service.jobs.post(job("A"), LIMIT_S).created


def test_a_job_that_fails_at_once_leaves_nothing_behind(service: Service) -> None:
    def fail(kind: str, subject: str) -> None:
        if kind == "view" and engine("edge-a").running():
            engine("edge-a").fail(engine("edge-a").running()[0].id, "division by zero")

    before = everything(service)
    engine("edge-a").before = fail
    with pytest.raises(Exception, match="cannot start A: it is failed: division by zero"):
        service.jobs.post(job("A"), LIMIT_S)
    engine("edge-a").before = None
    assert everything(service) == before
    assert engine("edge-a").running() == []


def test_a_faulty_description_is_refused_before_anything_moves(service: Service) -> None:
    before = everything(service)
    with pytest.raises(InvalidError) as error:
        service.jobs.post(job("A", site="nowhere"), LIMIT_S)
    assert [problem.path for problem in error.value.problems] == ["site"]
    assert everything(service) == before
    assert {kind for kind, _ in engine("edge-a").calls} <= {"view"}


def test_a_lost_answer_to_the_start_adopts_the_incarnation(service: Service) -> None:
    lost = UnreachableError("cannot reach edge-a: the answer was lost")
    engine("edge-a").refuse("submit", 1, lost, after=True)
    answer = service.jobs.post(job("A"), LIMIT_S)
    assert answer.created
    assert list(engine("edge-a").jobs) == [answer.job.engine_job_id]


def test_put_moves_a_job_with_its_state_and_its_session(service: Service) -> None:
    service.jobs.post(job("A", source_site="cloud", sink_site="cloud"), LIMIT_S)
    moved = job("A", "edge-b", source_site="cloud", sink_site="cloud")
    answer = service.jobs.put("A", moved, LIMIT_S)
    assert answer.job is not None
    assert (answer.job.site, answer.job.state) == ("edge-b", "running")
    assert answer.job.revision == 2
    assert engine("edge-a").running() == []
    (incarnation,) = engine("edge-b").running()
    assert incarnation.submission.state is not None
    assert broker("cloud").count("reserve") == 1
    assert broker("cloud").count("release") == 0
    assert broker("cloud").thrown_out == []


def test_put_updates_in_place(service: Service) -> None:
    first = service.jobs.post(job("A"), LIMIT_S).job
    second = service.jobs.put("A", job("A", args=["--x"]), LIMIT_S).job
    assert second.attempt == 2
    assert second.engine_job_id != first.engine_job_id
    assert second.description.args == ("--x",)
    assert len(engine("edge-a").running()) == 1


def test_an_update_that_the_new_main_refuses_leaves_the_old_running(service: Service) -> None:
    first = service.jobs.post(job("A"), LIMIT_S).job
    engine("edge-a").refuse("try_main", 1, EngineRefusedError("cannot try A: unknown option"))
    with pytest.raises(EngineRefusedError, match=r"unknown option.*edge-a"):
        service.jobs.put("A", job("A", args=["--x"]), LIMIT_S)
    (incarnation,) = engine("edge-a").running()
    assert incarnation.id == first.engine_job_id
    assert service.jobs.put("A", job("A", args=["--y"]), LIMIT_S).job is not None


def test_state_does_not_travel_between_sites_without_shared_storage(service: Service) -> None:
    service.jobs.post(job("A", source_site="cloud", sink_site="cloud"), LIMIT_S)
    before = everything(service)
    moved = job("A", "edge-c", source_site="cloud", sink_site="cloud")
    with pytest.raises(InvalidError) as error:
        service.jobs.put("A", moved, LIMIT_S)
    assert [problem.message for problem in error.value.problems] == [
        "cannot move A with its state from edge-a to edge-c: the two share no storage, and"
        " no agent runs at edge-a to carry it; run `speck agent` at both, or give both the same"
        " label state_uri, or set upgrade: stateless"
    ]
    assert everything(service) == before
    assert len(engine("edge-a").running()) == 1
    stateless = job("A", "edge-c", source_site="cloud", sink_site="cloud", upgrade="stateless")
    assert service.jobs.put("A", stateless, LIMIT_S).job.site == "edge-c"


def test_put_of_an_unknown_job_says_how_to_add_it(service: Service) -> None:
    with pytest.raises(NotFoundError, match="cannot find job 'A'; add it with POST /jobs"):
        service.jobs.put("A", job("A"), LIMIT_S)


def test_delete_takes_away_the_job_its_session_and_its_record(service: Service) -> None:
    before = everything(service)
    service.jobs.post(job("A"), LIMIT_S)
    assert service.jobs.delete("A", LIMIT_S) == JobOutcome()
    assert everything(service) == before
    assert engine("edge-a").running() == []
    assert broker("edge-a").sessions == {}
    with pytest.raises(NotFoundError, match="cannot find job 'A'"):
        service.jobs.delete("A", LIMIT_S)


def test_an_engine_never_sees_an_id_twice(service: Service) -> None:
    ids = set()
    for _ in range(3):
        ids.add(service.jobs.post(job("A"), LIMIT_S).job.engine_job_id)
        service.jobs.delete("A", LIMIT_S)
    assert len(ids) == 3


def test_a_composition_s_job_is_not_changed_alone(service: Service) -> None:
    service.compositions.apply(composition(job_body("A")), DONE)
    sentence = "cannot change job 'A' alone: composition 'c' owns it; apply a new version of that"
    for call in (
        lambda: service.jobs.put("A", job("A", args=["--x"]), LIMIT_S),
        lambda: service.jobs.delete("A", LIMIT_S),
        lambda: service.jobs.post(job("A"), LIMIT_S),
    ):
        with pytest.raises(ConflictError) as error:
            call()
        assert str(error.value) == sentence


def test_a_rebuilt_jar_is_a_change_even_under_the_same_path(
    service: Service, tmp_path: Path
) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    make_jar(tmp_path / "jars", content=b"2")
    assert service.jobs.put("A", job("A"), LIMIT_S).job.attempt == 2


def test_a_job_survives_a_restart_of_the_service(service: Service) -> None:
    before = service.jobs.post(job("A"), LIMIT_S).job
    again = reopened(service)
    try:
        assert again.jobs.get("A") == before
        assert again.jobs.put("A", job("A"), LIMIT_S).job.attempt == 1
    finally:
        again.close()


def test_a_lost_job_is_told_from_one_whose_site_is_silent(service: Service) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    engine("edge-a").unreachable = True
    look_anew(service)
    assert service.jobs.get("A").state == "unreachable"
    engine("edge-a").unreachable = False
    engine("edge-a").forget_jobs()
    look_anew(service)
    assert service.jobs.get("A").state == "lost"


def test_lists_can_be_narrowed(service: Service) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    service.jobs.post(job("B", "cloud"), LIMIT_S)
    service.jobs.post(job("C", "cloud", state="stopped"), LIMIT_S)
    names = [
        [j.job_name for j in names]
        for names in (
            service.jobs.all(),
            service.jobs.all(site="cloud"),
            service.jobs.all(state="running"),
            service.jobs.all(site="cloud", state="stopped"),
        )
    ]
    assert names == [["A", "B", "C"], ["B", "C"], ["A", "B"], ["C"]]


def test_a_savepoint_is_taken_of_a_job_that_goes_on(service: Service) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    answer = service.jobs.savepoint("A", LIMIT_S)
    assert (answer.location or "").startswith("memory:/state/savepoints/A/")
    assert service.jobs.get("A").state == "running"


def test_jobs_posted_at_the_same_time_do_not_wait_for_each_other(service: Service) -> None:
    meeting = threading.Barrier(2)

    def meet(kind: str, subject: str) -> None:
        if kind == "upload":
            meeting.wait(LIMIT_S)

    engine("edge-a").before = engine("cloud").before = meet
    answers = []
    threads = [
        threading.Thread(target=lambda d=d: answers.append(service.jobs.post(d, LIMIT_S)))
        for d in (job("A"), job("B", "cloud"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert all(answer.created for answer in answers)


def failed_after_202(service: Service) -> None:
    """A job whose start the engine refused after the request had stopped waiting."""
    engine("edge-a").refuse("submit", 1, EngineRefusedError("cannot start A: no memory"))
    assert service.jobs.post(job("A"), 0).under_way is not None
    wait_for(lambda: not service.changes.all_under_way())
    assert service.jobs.get("A").state == "failed"


def test_the_same_post_after_a_failure_tries_again(service: Service) -> None:
    failed_after_202(service)
    again = service.jobs.post(job("A"), LIMIT_S)
    assert (again.created, again.job.state) == (True, "running")
    assert again.job.revision == 1
    assert service.jobs.post(job("A"), LIMIT_S).job is not None


def test_a_retry_that_fails_takes_nothing_away(service: Service) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    World.current().feed("tcp://edge-a.test:1883", "A-in", [b"1"], "sensor")
    World.current().pump()
    (running,) = engine("edge-a").running()
    engine("edge-a").fail(running.id, "division by zero")
    look_anew(service)
    engine("edge-a").refuse("submit", 1, EngineRefusedError("cannot start A: no memory"))
    with pytest.raises(EngineRefusedError):
        service.jobs.post(job("A"), LIMIT_S)
    assert service.jobs.get("A").state == "failed"
    assert len(broker("edge-a").sessions) == 1


def test_the_same_post_while_it_is_under_way_is_202_with_its_change(service: Service) -> None:
    engine("edge-a").hold_starts = True
    first = service.jobs.post(job("A"), 0)
    again = service.jobs.post(job("A"), 0)
    assert again.under_way is not None
    assert again.under_way.id == first.under_way.id
    with pytest.raises(ConflictError, match="change it with PUT /jobs/A"):
        service.jobs.post(job("A", args=["--x"]), 0)
    engine("edge-a").let_go()
    waited = service.jobs.post(job("A"), LIMIT_S)
    assert waited.job is not None
    assert engine("edge-a").count("submit") == 1


def test_the_same_post_with_a_rebuilt_jar_is_refused(service: Service, tmp_path: Path) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    make_jar(tmp_path / "jars", content=b"2")
    with pytest.raises(ConflictError) as error:
        service.jobs.post(job("A"), LIMIT_S)
    assert str(error.value) == (
        "cannot add job 'A': it is there with another file at the same path;"
        " change it with PUT /jobs/A"
    )


def test_a_refused_move_is_told_by_the_path_and_line_of_what_was_sent(service: Service) -> None:
    service.jobs.post(job("A", source_site="cloud", sink_site="cloud"), LIMIT_S)
    moved = job("A", "edge-c", source_site="cloud", sink_site="cloud")
    with pytest.raises(InvalidError) as error:
        service.jobs.put("A", moved, LIMIT_S, {"site": 7}.get)
    (problem,) = error.value.problems
    assert (problem.path, problem.line) == ("site", 7)
    by_address = job(
        "A",
        site=None,
        spe_address="http://edge-c.test:8081",
        source_site="cloud",
        sink_site="cloud",
    )
    with pytest.raises(InvalidError) as error:
        service.jobs.put("A", by_address, LIMIT_S)
    assert [problem.path for problem in error.value.problems] == ["spe_address"]


def blocked(service: Service) -> str:
    """The change of a new job at edge-a, which is silent."""
    engine("edge-a").unreachable = True
    change = str(service.jobs.post(job("A"), 0).under_way.id)
    wait_for(lambda: service.changes.get(change).state == "blocked")
    return change


def test_put_supersedes_a_blocked_change(service: Service) -> None:
    first = blocked(service)
    moved = service.jobs.put("A", job("A", "cloud"), LIMIT_S, drop_queues=True)
    assert (moved.created, moved.job.site) == (False, "cloud")
    old = service.changes.get(first)
    assert old.state == "cancelled"
    assert old.superseded_by == service.changes.all()[0].id
    engine("edge-a").unreachable = False
    assert engine("edge-a").running() == []
    assert broker("edge-a").sessions == {}


def test_delete_supersedes_a_blocked_change(service: Service) -> None:
    first = blocked(service)
    engine("edge-a").refuse("upload", 10**6, UnreachableError("cannot reach edge-a"))
    engine("edge-a").unreachable = False
    before = service.changes.under_way(composition_of_one("A"))
    assert service.jobs.delete("A", LIMIT_S, drop_queues=True) == JobOutcome()
    if before is not None:  # or edge-a was quicker
        assert service.changes.get(first).superseded_by is not None
    assert service.jobs.all() == []
    assert broker("edge-a").sessions == {}


def test_what_is_refused_does_not_end_the_blocked_change(service: Service) -> None:
    first = blocked(service)
    with pytest.raises(InvalidError):
        service.jobs.put("A", job("A", "nowhere"), LIMIT_S)
    assert service.changes.get(first).state == "blocked"


def test_who_waits_for_a_superseded_post_leaves_its_successor_alone(service: Service) -> None:
    engine("edge-a").unreachable = True
    refusals: list[Exception] = []

    def post() -> None:
        try:
            service.jobs.post(job("A"), LIMIT_S)
        except ConflictError as error:
            refusals.append(error)

    waiting = threading.Thread(target=post)
    waiting.start()
    wait_for(lambda: any(r.change.state == "blocked" for r in service.changes.all_under_way()))
    moved = service.jobs.put("A", job("A", "cloud"), LIMIT_S, drop_queues=True)
    assert moved.job.state == "running"
    waiting.join(LIMIT_S)
    assert len(refusals) == 1
    wait_for(lambda: not service.changes.all_under_way())
    assert service.jobs.get("A").state == "running"


def taken_in(service: Service, monkeypatch: pytest.MonkeyPatch, prepares: str) -> None:
    """A composition takes A in just after a change of A alone was planned."""
    deployer = service.compositions._deployer
    prepare = getattr(deployer, prepares)

    def prepared(*arguments: Any, **more: Any) -> PreparedPlan:
        plan: PreparedPlan = prepare(*arguments, **more)
        if plan.scope == composition_of_one("A"):
            adopting = replace(DONE, adopt=True)
            service.compositions.apply(composition(job_body("A")), adopting)
        return plan

    monkeypatch.setattr(deployer, prepares, prepared)


def test_a_repair_of_a_job_that_was_taken_in_meanwhile_is_none(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    World.current().pump()
    [running] = engine("edge-a").running()
    engine("edge-a").fail(running.id, "bad")
    taken_in(service, monkeypatch, "prepare")

    assert service.repairs.repair(composition_of_one("A")) is None

    assert len(engine("edge-a").running()) == 1
    assert service.jobs.get("A").composition == "c"


def test_nor_is_a_job_removed_that_was_taken_in_meanwhile(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    taken_in(service, monkeypatch, "prepare_removal")

    with pytest.raises(ConflictError, match="composition 'c' owns it"):
        service.jobs.delete("A", LIMIT_S)

    assert len(engine("edge-a").running()) == 1
    assert service.jobs.get("A").composition == "c"


def test_a_list_that_began_before_a_job_was_removed_or_replaced_goes_on(service: Service) -> None:
    """Heads are read as of one moment, revisions afterwards: by then they may be gone."""
    jobs = service.composition_views._jobs
    service.jobs.post(job("A"), LIMIT_S)
    head = service.records.compositions.head(composition_of_one("A"))
    assert head is not None
    service.jobs.put("A", job("A", args=["--x"]), LIMIT_S)
    jobs._read.clear()
    assert [view.description.args for view in jobs.of_composition(head)] == [("--x",)]
    service.jobs.delete("A", LIMIT_S)
    jobs._read.clear()
    assert jobs.of_composition(head) == []
