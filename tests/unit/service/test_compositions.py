"""Compositions: desired state in, change out."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from binders.memory import World
from speck.deploy.deployer import Deployer, PreparedPlan
from speck.errors import (
    ConflictError,
    EngineRefusedError,
    InvalidError,
    NotFoundError,
    StaleRevisionError,
    UnreachableError,
)
from speck.model.accepted import Accepted
from speck.model.change import ChangeState
from speck.model.composition import composition_of_one
from speck.service import Service
from speck.service.composition_views import DriftEntry
from speck.service.compositions import ApplyRequest
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

A, B = job_body("A"), job_body("B", "cloud")


def states(service: Service) -> dict[str, str]:
    return {job.job_name: job.state for job in service.jobs.all()}


def change_is(service: Service, change: str, state: ChangeState) -> bool:
    return bool(service.changes.get(change).state == state)


def test_apply_makes_the_composition_true(service: Service) -> None:
    answer = service.compositions.apply(composition(A, B), DONE)
    assert not answer.under_way
    assert answer.state == "done"
    assert answer.revision == 1
    assert states(service) == {"A": "running", "B": "running"}
    body = service.composition_views.get("c")
    assert body.head.revision == body.head.deployed_revision == 1


def test_applying_the_same_again_does_nothing_and_is_no_new_revision(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    again = service.compositions.apply(composition(B, A), DONE)
    assert again.plan.operations == ()
    assert engine("edge-a").count("submit") == 1
    third = service.compositions.apply(composition(B, A), DONE)
    assert third.revision == again.revision


def test_a_dry_run_tells_the_plan_and_changes_nothing(service: Service) -> None:
    before = everything(service)
    answer = service.compositions.apply(composition(A), ApplyRequest(dry_run=True))
    assert not answer.under_way
    assert answer.change is None
    assert answer.plan.summary["add"] == 1
    assert everything(service) == before
    assert engine("edge-a").running() == []
    service.compositions.apply(composition(A), DONE)
    assert everything(service) != before
    assert len(engine("edge-a").running()) == 1


def test_while_a_change_runs_another_is_refused_with_its_id(service: Service) -> None:
    engine("edge-a").hold_starts = True
    first = service.compositions.apply(composition(A), ApplyRequest())
    assert first.under_way
    for call in (
        lambda: service.compositions.apply(composition(A, B), DONE),
        lambda: service.compositions.delete("c", LIMIT_S),
    ):
        with pytest.raises(ConflictError) as error:
            call()
        assert error.value.change == first.change
        change = first.change
        assert str(error.value) == (
            f"cannot change composition 'c': change {change} is under way"
            f" (`speck history {change}` shows it, `speck cancel {change}` ends it)"
        )
    engine("edge-a").let_go()


def test_an_apply_that_waits_keeps_nobody_else_waiting(service: Service) -> None:
    engine("edge-a").hold_starts = True
    waiting = threading.Thread(target=service.compositions.apply, args=(composition(A), DONE))
    waiting.start()
    wait_for(lambda: engine("edge-a").count("submit") == 1)
    other = service.compositions.apply(composition(B, name="other"), DONE)
    assert other.state == "done"
    with pytest.raises(ConflictError, match="is under way"):
        service.compositions.apply(composition(A), DONE)
    engine("edge-a").let_go()
    waiting.join(LIMIT_S)
    assert states(service) == {"A": "running", "B": "running"}


def blocked(service: Service) -> Accepted:
    """A change of `c` that waits for edge-a, which is silent."""
    engine("edge-a").unreachable = True
    body = service.compositions.apply(composition(A), ApplyRequest())
    wait_for(lambda: change_is(service, body.change, ChangeState.BLOCKED))
    return body


def test_a_blocked_change_goes_on_when_its_site_answers(service: Service) -> None:
    body = blocked(service)
    (job_body,) = service.jobs.all()
    assert job_body.state == "unreachable"
    assert job_body.error == "cannot reach http://edge-a.test:8081: made unreachable by a test"
    engine("edge-a").unreachable = False
    wait_for(lambda: change_is(service, body.change, ChangeState.DONE))
    assert states(service) == {"A": "running"}


def test_a_blocked_change_is_superseded_and_the_new_one_inherits(service: Service) -> None:
    first = blocked(service)
    dropping = replace(DONE, drop_queues=True)
    second = service.compositions.apply(composition(B), dropping)
    assert second.state == "done"
    old = service.changes.get(first.change)
    assert old.state == "cancelled"
    assert old.superseded_by == second.change
    assert states(service) == {"B": "running"}
    assert broker("edge-a").sessions == {}


def test_what_a_superseded_change_had_stopped_comes_back_when_it_cannot_start(
    service: Service,
) -> None:
    service.compositions.apply(composition(A), DONE)
    engine("cloud").refuse("submit", 10**6, UnreachableError("cannot reach cloud"))
    moved = composition(job_body("A", "cloud", source_site="edge-a", sink_site="edge-a"))
    first = service.compositions.apply(moved, ApplyRequest()).change
    wait_for(lambda: change_is(service, first, ChangeState.BLOCKED))
    assert service.changes.get(first).operations != ()
    engine("edge-b").refuse("submit", 10**6, EngineRefusedError("cannot start A: no"))
    elsewhere = composition(job_body("A", "edge-b", source_site="edge-a", sink_site="edge-a"))
    second = service.compositions.apply(elsewhere, DONE)
    assert service.changes.get(second.change).state == "failed"
    wait_for(lambda: states(service) == {"A": "running"})
    assert service.jobs.get("A").engine_job_id in engine("edge-a").jobs


def test_a_deletion_supersedes_a_blocked_change(service: Service) -> None:
    first = blocked(service)
    engine("edge-a").unreachable = False
    engine("edge-a").refuse("upload", 10**6, UnreachableError("cannot reach edge-a"))
    service.compositions.delete("c", LIMIT_S, drop_queues=True)
    old = service.changes.get(first.change)
    if old.state == "cancelled":  # or edge-a was quicker
        assert old.superseded_by is not None
    assert states(service) == {}


def test_what_is_refused_does_not_end_the_blocked_change(service: Service) -> None:
    first = blocked(service)
    with pytest.raises(InvalidError):
        service.compositions.apply(composition(job_body("A", "nowhere")), DONE)
    assert change_is(service, first.change, ChangeState.BLOCKED)


def test_if_match_of_another_revision_is_stale(service: Service) -> None:
    service.compositions.apply(composition(A), DONE)
    service.compositions.apply(composition(A, B), ApplyRequest(wait_s=LIMIT_S, if_match=1))
    with pytest.raises(StaleRevisionError) as error:
        service.compositions.apply(composition(A), ApplyRequest(if_match=1))
    assert str(error.value) == (
        "cannot change composition 'c': its newest revision is 2, not 1 as in If-Match;"
        " it was changed meanwhile: plan and apply again"
    )
    assert states(service) == {"A": "running", "B": "running"}


def test_an_idempotency_key_replays_the_first_answer(service: Service) -> None:
    request = ApplyRequest(wait_s=LIMIT_S, idempotency_key="k-1")
    first = service.compositions.apply(composition(A), request)
    service.compositions.apply(composition(A, B), DONE)
    again = service.compositions.apply(composition(A), request)
    assert again.done
    assert again.change == first.change
    unwaited = service.compositions.apply(composition(A), ApplyRequest(idempotency_key="k-1"))
    assert unwaited.under_way
    assert unwaited.change == first.change
    assert states(service) == {"A": "running", "B": "running"}


def test_a_replay_waits_for_the_change_that_it_names(service: Service) -> None:
    engine("edge-a").hold_starts = True
    first = service.compositions.apply(composition(A), ApplyRequest(idempotency_key="k-1"))
    answers: list[Accepted] = []
    request = ApplyRequest(wait_s=LIMIT_S, idempotency_key="k-1")
    waiting = threading.Thread(
        target=lambda: answers.append(service.compositions.apply(composition(A), request))
    )
    waiting.start()
    wait_for(lambda: engine("edge-a").count("submit") == 1)
    engine("edge-a").let_go()
    waiting.join(LIMIT_S)
    (again,) = answers
    assert again.done
    assert again.change == first.change


def test_an_idempotency_key_is_kept_for_a_day(service: Service) -> None:
    request = ApplyRequest(wait_s=LIMIT_S, idempotency_key="k-1")
    first = service.compositions.apply(composition(A), request)
    ((key, record),) = service.records.store.scan("idem/")
    service.records.write({key: {**record, "at": "2020-01-01T00:00:00.000Z"}})
    service.compositions.apply(composition(A, B), DONE)
    again = service.compositions.apply(composition(A), request)
    assert again.revision == 3
    assert again.change != first.change


def test_to_apply_what_is_there_makes_no_change(service: Service) -> None:
    first = service.compositions.apply(composition(A), DONE)
    request = ApplyRequest(idempotency_key="k-1")
    again = service.compositions.apply(composition(A), request)
    assert again.done
    assert again.change == first.change
    assert len(service.changes.all()) == 1
    service.compositions.apply(composition(A, B), DONE)
    late = service.compositions.apply(composition(A), request)  # it was carried out before
    assert late.change == first.change
    assert states(service) == {"A": "running", "B": "running"}
    other = composition(A, B, inputs=[{"site": "edge-a", "topic": "A-in"}])
    assert service.compositions.apply(other, DONE).revision == 3


def test_an_idempotency_key_with_another_body_is_refused(service: Service) -> None:
    service.compositions.apply(composition(A), ApplyRequest(wait_s=LIMIT_S, idempotency_key="k-1"))
    with pytest.raises(ConflictError) as error:
        service.compositions.apply(composition(B), ApplyRequest(idempotency_key="k-1"))
    assert str(error.value) == "cannot use Idempotency-Key 'k-1': it came with another body"


def test_a_job_posted_alone_is_taken_in_only_when_told_to(service: Service) -> None:
    alone = service.jobs.post(job("A"), LIMIT_S).job
    with pytest.raises(ConflictError) as error:
        service.compositions.apply(composition(A), DONE)
    assert str(error.value) == (
        "cannot apply composition 'c': job 'A' was posted alone; apply with ?adopt=true to take"
        " it in"
    )
    answer = service.compositions.apply(composition(A), ApplyRequest(wait_s=LIMIT_S, adopt=True))
    assert answer.plan.operations == ()
    adopted = service.jobs.get("A")
    assert adopted.engine_job_id == alone.engine_job_id
    assert adopted.composition == "c"
    service.compositions.delete("c", LIMIT_S)
    assert engine("edge-a").running() == []
    assert broker("edge-a").sessions == {}


def test_an_adoption_takes_sessions_in_as_whoever_writes_them_leaves_them(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has read a record to write it does so before it moves to the composition."""
    service.jobs.post(job("A"), LIMIT_S)
    sessions, alone = service.records.sessions, composition_of_one("A")
    [before] = sessions.of_scope(alone)
    locks = service.changes.session_locks.writing
    wanted, all_of = threading.Event(), locks.all_of

    def announce(names: Iterable[str]) -> AbstractContextManager[None]:
        names = list(names)
        if before.client_id in names:
            wanted.set()
        return all_of(names)

    monkeypatch.setattr(locks, "all_of", announce)
    adopting = ApplyRequest(wait_s=LIMIT_S, adopt=True)
    with ThreadPoolExecutor(1) as pool:
        with locks[before.client_id]:
            answer = pool.submit(service.compositions.apply, composition(A), adopting)
            assert wanted.wait(LIMIT_S)
            service.records.write(sessions.put(alone, replace(before, holes=7)))
        assert answer.result().state == "done"
    assert sessions.of_scope(alone) == []
    assert [each.holes for each in sessions.of_scope("c")] == [7]


def test_a_dry_run_of_an_adoption_plans_as_the_real_one(service: Service) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    before = everything(service)
    dry = service.compositions.apply(composition(A), ApplyRequest(dry_run=True, adopt=True))
    assert dry.plan.operations == ()
    assert everything(service) == before


def test_an_adoption_that_is_refused_leaves_the_job_alone(service: Service) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    before = everything(service)
    with pytest.raises(InvalidError):
        faulty = composition(A, job_body("B", "nowhere"))
        service.compositions.apply(faulty, ApplyRequest(adopt=True))
    assert everything(service) == before
    assert service.jobs.delete("A", LIMIT_S) == JobOutcome()


def test_an_adopted_job_never_gets_an_id_that_was_used(service: Service) -> None:
    adopting = ApplyRequest(wait_s=LIMIT_S, adopt=True)
    for args in ([], ["--x"], ["--y"]):
        service.compositions.apply(composition({**A, "args": args}), DONE)
    service.compositions.delete("c", LIMIT_S)
    service.jobs.post(job("A"), LIMIT_S)
    service.compositions.apply(composition(A), adopting)
    answer = service.compositions.apply(composition({**A, "args": ["--z"]}), DONE)
    assert answer.state == "done"
    assert service.jobs.get("A").attempt == 4


def test_a_job_name_belongs_to_one_composition(service: Service) -> None:
    service.compositions.apply(composition(A), DONE)
    with pytest.raises(ConflictError) as error:
        service.compositions.apply(composition(A, name="other"), DONE)
    assert str(error.value) == (
        "cannot apply composition 'other': composition 'c' owns job 'A'; choose another name"
    )


def test_a_name_is_free_again_only_when_its_job_is_gone(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    engine("edge-a").unreachable = True
    service.compositions.apply(composition(B), ApplyRequest())
    with pytest.raises(ConflictError, match="composition 'c' owns job 'A'"):
        service.compositions.apply(composition(A, name="other"), DONE)
    engine("edge-a").unreachable = False
    wait_for(lambda: service.changes.under_way("c") is None)
    answer = service.compositions.apply(composition(A, name="other"), DONE)
    assert answer.state == "done"


def test_what_fails_stops_its_branch_and_applying_again_finishes(service: Service) -> None:
    engine("edge-a").refuse("submit", 1, EngineRefusedError("cannot start A: no memory"))
    failed = service.compositions.apply(composition(A, B), DONE)
    assert failed.state == "failed"
    change = service.changes.get(failed.change)
    outcomes = {(o.kind, o.job_name): o.state for o in change.operations}
    assert outcomes["start", "A"] == "failed"
    assert outcomes["start", "B"] == "done"
    assert change.error == "cannot start A: no memory"
    assert states(service) == {"A": "failed", "B": "running"}
    assert service.composition_views.get("c").head.deployed_revision is None

    again = service.compositions.apply(composition(A, B), DONE)
    assert again.state == "done"
    assert {o.job_name for o in again.plan.operations} == {None, "A"}
    assert states(service) == {"A": "running", "B": "running"}
    assert service.composition_views.get("c").head.deployed_revision == 1


def test_a_jar_that_cannot_be_sent_fails_the_jobs_that_need_it(service: Service) -> None:
    engine("edge-a").refuse("upload", 1, EngineRefusedError("cannot upload: no space"))
    service.compositions.apply(composition(A, B), DONE)
    body = {job.job_name: (job.state, job.error) for job in service.jobs.all()}
    assert body["A"][0] == "failed"
    assert str(body["A"][1]).endswith("failed: cannot upload: no space")
    assert body["B"] == ("running", None)


def test_an_update_that_fails_goes_on_from_the_old_state_when_applied_again(
    service: Service,
) -> None:
    service.compositions.apply(composition(A), DONE)
    # the start, the return of what ran before, and the start of the second apply
    engine("edge-a").refuse("submit", 3, EngineRefusedError("cannot start A: no memory"))
    updated = composition({**A, "args": ["--x"]})
    for _ in range(2):
        assert service.compositions.apply(updated, DONE).state == "failed"
    assert service.compositions.apply(updated, DONE).state == "done"
    (incarnation,) = engine("edge-a").running()
    assert incarnation.submission.state is not None


def test_a_jar_goes_to_a_site_once_however_many_jobs_use_it(service: Service) -> None:
    jobs = [job_body(name, site) for name, site in zip("ABCD", ["edge-a", "cloud"] * 2)]  # noqa: B905
    service.compositions.apply(composition(*jobs), DONE)
    assert engine("edge-a").count("upload") == engine("cloud").count("upload") == 1


def test_a_cancelled_change_ends_at_a_safe_point_and_can_be_gone_on_with(
    service: Service,
) -> None:
    engine("edge-a").hold_starts = True
    updated = composition(A, {**B, "source_topic": "A-out", "source_site": "edge-a"})
    change = service.compositions.apply(updated, ApplyRequest()).change
    wait_for(lambda: engine("edge-a").count("submit") == 1)
    threading.Thread(target=service.runner.cancel, args=(change,)).start()
    engine("edge-a").let_go()
    wait_for(lambda: service.changes.under_way("c") is None)
    assert service.changes.get(change).state in ("cancelled", "done")
    assert service.compositions.apply(updated, DONE).state == "done"
    assert all(len(engine(site).running()) == 1 for site in ("edge-a", "cloud"))
    with pytest.raises(ConflictError, match=f"cannot cancel change {change}: it is"):
        service.runner.cancel(change)


def test_drift_is_what_differs_though_nobody_asked(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    assert service.composition_views.drift("c") == []
    World.current().pump()  # a first checkpoint: without any, speck would not start it again
    (incarnation,) = engine("cloud").running()
    engine("cloud").fail(incarnation.id, "division by zero")
    look_anew(service)
    assert service.composition_views.drift("c") == [
        DriftEntry("B", kind="failed", expected="running", observed="failed")
    ]
    plan = service.composition_views.plan("c")
    assert [j.action for j in plan.jobs] == ["unchanged", "update"]
    assert service.compositions.apply(composition(A, B), DONE).state == "done"
    assert service.composition_views.drift("c") == []


def test_rollback_applies_an_earlier_revision_as_a_new_one(service: Service) -> None:
    service.compositions.apply(composition(A), DONE)
    service.compositions.apply(composition({**A, "args": ["--x"]}, B), DONE)
    answer = service.compositions.rollback("c", 1, DONE)
    assert answer.revision == 3
    assert states(service) == {"A": "running"}
    assert service.jobs.get("A").description.args == ()
    (incarnation,) = engine("edge-a").running()
    assert incarnation.submission.state is not None
    revisions = service.composition_views.revisions("c")
    assert [r.revision for r in revisions] == [1, 2, 3]
    with pytest.raises(NotFoundError, match="cannot find revision 9 of composition 'c'"):
        service.compositions.rollback("c", 9, DONE)


def test_rollback_brings_back_the_code_that_ran(service: Service, tmp_path: Path) -> None:
    make_jar(tmp_path / "jars", content=b"1")
    service.compositions.apply(composition(A), DONE)
    (one,) = engine("edge-a").running()
    make_jar(tmp_path / "jars", content=b"2")
    rebuilt = service.compositions.apply(composition(A), DONE)
    assert rebuilt.revision == 2, "another jar is another version"
    assert service.compositions.rollback("c", 1, DONE).state == "done"
    (now,) = engine("edge-a").running()
    assert now.submission.artifact == one.submission.artifact
    assert service.composition_views.plan("c").operations == (), "the rolled back jar is desired"
    assert service.composition_views.drift("c") == []
    anew = service.compositions.apply(composition(A), DONE)
    assert anew.plan.summary["update"] == 1, "an apply looks at the file again"


def test_rollback_needs_no_file_at_the_old_path(service: Service, tmp_path: Path) -> None:
    service.compositions.apply(composition(A), DONE)
    service.compositions.apply(composition({**A, "args": ["--x"]}), DONE)
    (tmp_path / "jars" / "test-1.jar").unlink()
    assert service.compositions.rollback("c", 1, DONE).state == "done"


def test_a_stopped_job_keeps_its_session_and_comes_back_from_its_savepoint(
    service: Service,
) -> None:
    service.compositions.apply(composition(A), DONE)
    stopped = service.compositions.apply(composition({**A, "state": "stopped"}), DONE)
    assert stopped.state == "done"
    assert states(service) == {"A": "stopped"}
    assert engine("edge-a").running() == []
    assert len(broker("edge-a").sessions) == 1
    assert service.composition_views.drift("c") == []
    record = service.records.incarnations.get("c", "A")
    assert record is not None and record.savepoint is not None

    service.compositions.apply(composition(A), DONE)
    (incarnation,) = engine("edge-a").running()
    assert incarnation.submission.state == record.savepoint
    assert broker("edge-a").count("reserve") == 1


def test_compositions_survive_a_restart_and_the_plan_is_then_empty(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    body = service.composition_views.get("c")
    again = reopened(service)
    try:
        assert again.composition_views.get("c") == body
        assert again.composition_views.plan("c").operations == ()
        assert again.compositions.apply(composition(A, B), DONE).revision == 1
    finally:
        again.close()


def test_delete_removes_everything_and_the_name_can_be_used_again(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    assert service.compositions.delete("c", LIMIT_S).done
    assert states(service) == {}
    assert not broker("edge-a").sessions and not broker("cloud").sessions
    with pytest.raises(NotFoundError, match="cannot find composition 'c'"):
        service.composition_views.get("c")
    answer = service.compositions.apply(composition(A), DONE)
    assert answer.revision == 2
    assert [c.deployed_revision for c in service.composition_views.all()] == [2]


def test_state_does_not_travel_between_sites_without_shared_storage(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    moved = {**A, "site": "edge-c", "source_site": "edge-a", "sink_site": "edge-a"}
    with pytest.raises(InvalidError) as error:
        service.compositions.apply(composition(B, moved), DONE)
    (problem,) = error.value.problems
    assert problem.path == "jobs[1].site"
    assert problem.message == (
        "cannot move A with its state from edge-a to edge-c: the two share no storage, and"
        " no agent runs at edge-a to carry it; run `speck agent` at both, or give both the same"
        " label state_uri, or set upgrade: stateless"
    )


def test_two_compositions_that_name_the_same_new_job_do_not_both_get_it(
    service: Service,
) -> None:
    meeting = threading.Barrier(2)
    first_look = threading.local()

    def meet(kind: str, subject: str) -> None:
        if kind == "view" and not hasattr(first_look, "seen"):
            first_look.has_passed = True
            meeting.wait(LIMIT_S)

    engine("edge-a").before = meet
    outcomes: list[str] = []

    def apply(name: str) -> None:
        try:
            service.compositions.apply(composition(A, name=name), ApplyRequest())
            outcomes.append("accepted")
        except ConflictError:
            outcomes.append("refused")

    threads = [threading.Thread(target=apply, args=(name,)) for name in ("c", "d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert sorted(outcomes) == ["accepted", "refused"]
    engine("edge-a").before = None


def test_events_come_in_the_order_of_their_numbers(service: Service) -> None:
    ids: list[int] = []
    stop = threading.Event()

    def follow() -> None:
        while not stop.is_set():
            ids.extend(e.id for e in service.records.events.after(ids[-1] if ids else 0))

    follower = threading.Thread(target=follow)
    follower.start()
    service.compositions.apply(composition(*(job_body(n) for n in "ABCDEFGH")), DONE)
    service.compositions.delete("c", LIMIT_S)
    stop.set()
    follower.join(LIMIT_S)
    ids.extend(e.id for e in service.records.events.after(ids[-1]))
    assert ids == list(range(1, len(ids) + 1)), "a follower has missed an event"


def test_a_start_that_was_asked_of_a_silent_site_is_asked_again(service: Service) -> None:
    """What a silent site was asked to start is no job that runs, whoever applies again."""
    here = engine("edge-a")

    def silent(kind: str, _: str) -> None:
        here.unreachable = here.unreachable or kind == "submit"

    here.before = silent
    for _ in range(2):
        change = service.compositions.apply(composition(A), ApplyRequest(wait_s=0.2)).change
        wait_for(lambda change=change: service.changes.get(change).state == "blocked")
    assert service.composition_views.plan("c").text.endswith(
        "not started yet: not known to run: edge-a does not answer"
    )
    here.before = None
    here.unreachable = False
    wait_for(lambda: service.changes.get(change).state == "done")
    assert len(here.running()) == 1


def test_a_start_that_was_refused_is_not_taken_to_run_when_its_site_falls_silent(
    service: Service,
) -> None:
    engine("edge-a").refuse("submit", 1, EngineRefusedError("cannot start A: no"))
    service.compositions.apply(composition(A), DONE)
    engine("edge-a").unreachable = True
    change = service.compositions.apply(composition(A), ApplyRequest()).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    engine("edge-a").unreachable = False
    wait_for(lambda: service.changes.get(change).state == "done")
    assert len(engine("edge-a").running()) == 1


def test_descriptions_are_limited_together(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is within the limit of one."""
    monkeypatch.setattr("speck.deploy.admission.MAX_DESCRIBED_BYTES", 1_000)
    large = job_body("L", args=["x" * 600])
    service.compositions.apply(composition(large, name="large"), DONE)
    service.compositions.apply(composition(large, name="large"), DONE)  # again: no more than it was
    for dry_run in (True, False):
        with pytest.raises(InvalidError, match=r"at most 1000 are taken together") as refused:
            other = composition(job_body("M", args=["x" * 600]), name="other")
            service.compositions.apply(other, ApplyRequest(dry_run=dry_run))
        assert refused.value.status == 413
    with pytest.raises(InvalidError, match="cannot accept job 'N'"):
        service.jobs.post(job("N", args=("x" * 600,)), LIMIT_S)
    service.compositions.delete("large", LIMIT_S)
    other = composition(job_body("M", args=["x" * 600]), name="other")
    assert not service.compositions.apply(other, DONE).under_way


def test_descriptions_of_removed_jobs_are_not_remembered(service: Service) -> None:
    for number in range(70):
        service.compositions.apply(composition(job_body("A"), name=f"c{number}"), DONE)
        service.compositions.delete(f"c{number}", LIMIT_S)
    assert len(service.composition_views._jobs._read) < 70


def test_a_loop_over_a_bridge_is_refused_and_what_may_come_twice_is_a_warning(
    service: Service,
) -> None:
    for site in ("edge-a", "cloud"):
        World.current().broker(f"tcp://{site}.test:1883").bridges.add("edge-a.to-cloud")
    loop = job_body("A", source_topic="T", sink_topic="T", sink_site="cloud")
    with pytest.raises(InvalidError) as error:
        service.compositions.apply(composition(loop), ApplyRequest(dry_run=True))
    (problem,) = error.value.problems
    assert problem.path == "jobs[0].sink_topic"
    assert "the brokers of cloud, edge-a are bridged (edge-a.to-cloud)" in problem.message

    both = (
        job_body("A", source_topic="T", sink_topic="U", sink_site="edge-b"),
        job_body("B", "cloud", source_topic="T", sink_topic="U", sink_site="edge-b"),
    )
    body = service.compositions.apply(composition(*both), DONE)
    assert any("if a bridge carries T" in warning for warning in body.warnings)

    # what another composition does with it counts, too
    closing = job_body("C", "edge-b", source_topic="U", sink_topic="T", sink_site="cloud")
    with pytest.raises(InvalidError, match="closes the cycle"):
        service.compositions.apply(composition(closing, name="d"), DONE)


def test_a_loop_over_two_bridges_through_other_compositions_is_refused(service: Service) -> None:
    for number, pair in enumerate((("edge-a", "cloud"), ("edge-b", "edge-c"))):
        for site in pair:
            World.current().broker(f"tcp://{site}.test:1883").bridges.add(f"bridge-{number}")
    service.polls.broker_numbers.poll(service.records.sites.all())  # as the watch does
    one = job_body("A", source_topic="T", sink_topic="U", sink_site="edge-b")
    two = job_body("B", "edge-c", source_topic="U", sink_topic="V", sink_site="edge-a")
    service.compositions.apply(composition(one, name="one"), DONE)
    service.compositions.apply(composition(two, name="two"), DONE)
    closing = job_body("C", source_topic="V", sink_topic="T", sink_site="cloud")
    with pytest.raises(InvalidError, match="closes the cycle"):
        service.compositions.apply(composition(closing), DONE)


def test_of_two_applies_that_close_a_loop_over_a_bridge_together_only_one_is_accepted(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for site in ("edge-a", "cloud"):
        World.current().broker(f"tcp://{site}.test:1883").bridges.add("edge-a.to-cloud")
    service.polls.broker_numbers.poll(service.records.sites.all())  # as the watch does
    there = job_body("A", source_topic="T", sink_topic="U", sink_site="edge-b")
    back = job_body("C", "edge-b", source_topic="U", sink_topic="T", sink_site="cloud")
    is_planned, errors = threading.Event(), []
    accept = Deployer.accept

    def note(deployer: Deployer, prepared: PreparedPlan) -> None:
        accept(deployer, prepared)
        is_planned.set()

    def apply_back() -> None:
        try:
            service.compositions.apply(composition(back, name="d"), DONE)
        except InvalidError as error:
            errors.append(error)

    monkeypatch.setattr(Deployer, "accept", note)
    with service.compositions._locks.all_of([]):
        second = threading.Thread(target=apply_back)
        second.start()
        assert is_planned.wait(LIMIT_S)
        service.compositions.apply(composition(there), DONE)
    second.join(LIMIT_S)
    (error,) = errors
    assert "closes the cycle" in str(error.problems[0])
