"""Restoring the accepted state without another request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from binders.memory import World
from speck.errors import ConflictError, EngineRefusedError, TransientError, UnreachableError
from speck.model.change import ChangeReport
from speck.model.composition import composition_of_one
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import DONE, broker, composition, engine, job, reopened
from tests.service_helpers import job_body as body
from tests.waiting import wait_for

A, B = body("A"), body("B", "cloud")
SOON = ApplyRequest()


def repair_composition(
    service: Service, leave: frozenset[str] = frozenset()
) -> ChangeReport | None:
    """The repair once it is over; None when there was none."""
    running = service.repairs.repair("c", leave)
    if running is None:
        return None
    assert running.wait_for_end(20)
    return service.changes.get(running.change.id)


def running_jobs(site: str) -> list[str]:
    return [i.submission.job_name for i in engine(site).running()]


def lost(service: Service) -> None:
    """A and B run, and their engines forget them."""
    service.compositions.apply(composition(A, B), DONE)
    World.current().pump()
    for site in ("edge-a", "cloud"):
        for engine_job_id in list(engine(site).jobs):
            engine(site).fail(engine_job_id, "no memory")


def test_what_failed_comes_back(service: Service) -> None:
    lost(service)
    repair = repair_composition(service)
    assert repair is not None
    assert (repair.cause, repair.state, repair.revision) == ("repair", "done", 1)
    assert running_jobs("edge-a") == ["A"] and running_jobs("cloud") == ["B"]
    messages = [e.message for e in service.records.events.after() if e.change == repair.id]
    assert messages[0] == "repair of c accepted"
    assert repair_composition(service) is None, "nothing is to be done any more"


def test_a_job_that_is_left_alone_stays_as_it_is(service: Service) -> None:
    lost(service)
    repair = repair_composition(service, frozenset({"A"}))
    assert repair is not None and repair.leave == ("A",)
    assert running_jobs("edge-a") == [] and running_jobs("cloud") == ["B"]
    assert repair_composition(service, frozenset({"A"})) is None
    assert repair_composition(service) is not None
    assert running_jobs("edge-a") == ["A"]


def test_nothing_is_repaired_while_a_change_is_under_way_or_after_it_was_cancelled(
    service: Service,
) -> None:
    engine("edge-a").hold_starts = True
    change = service.compositions.apply(composition(A), SOON).change
    assert service.repairs.repair("c") is None
    wait_for(lambda: engine("edge-a").count("submit") == 1)
    service.runner.cancel(change)
    engine("edge-a").let_go()
    wait_for(lambda: not service.changes.all_under_way())
    service.compositions.apply(composition(A), DONE)
    engine("edge-a").unreachable = True
    change = service.compositions.apply(composition(A, B, body("C")), SOON).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    service.runner.cancel(change)
    wait_for(lambda: not service.changes.all_under_way())
    engine("edge-a").unreachable = False
    assert service.repairs.repair("c") is None


def test_what_is_being_removed_is_not_brought_back(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    engine("edge-a").unreachable = True
    change = service.compositions.delete("c", 0).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    service.runner.cancel(change)
    wait_for(lambda: not service.changes.all_under_way())
    engine("edge-a").unreachable = False
    assert service.repairs.repair("c") is None
    service.compositions.apply(composition(A, B), DONE)
    assert running_jobs("cloud") == ["B"], "another apply takes the removal back"


def test_a_newer_wish_ends_a_repair(service: Service) -> None:
    lost(service)
    engine("edge-a").hold_starts = True
    submitted = engine("edge-a").count("submit")
    repair = service.repairs.repair("c")
    assert repair is not None
    wait_for(lambda: engine("edge-a").count("submit") > submitted)
    engine("edge-a").let_go()
    answer = service.compositions.apply(composition(A, B, body("C")), DONE)
    assert answer.state == "done"
    assert repair.over.is_set()
    head = service.changes.get(repair.change.id)
    assert head.state == "done" or head.superseded_by == answer.change
    assert sorted(running_jobs("edge-a")) == ["A", "C"]


def test_a_removal_ends_a_repair_that_is_blocked(service: Service) -> None:
    lost(service)
    silent = UnreachableError("cannot reach edge-a")
    engine("edge-a").refuse("submit", 100_000, silent)
    repair = service.repairs.repair("c")
    assert repair is not None
    wait_for(lambda: repair.change.state == "blocked")
    removal = service.compositions.delete("c", 0, drop_queues=True).change
    assert service.changes.get(repair.change.id).superseded_by == removal
    wait_for(lambda: not service.changes.all_under_way())
    assert service.changes.get(removal).state == "done"


def test_a_repair_goes_on_after_a_stop_and_still_leaves_alone(service: Service) -> None:
    lost(service)
    silent = UnreachableError("cannot reach cloud")
    engine("cloud").refuse("submit", 100_000, silent)
    repair = service.repairs.repair("c", frozenset({"A"}))
    assert repair is not None
    wait_for(lambda: repair.change.state == "blocked")
    again = reopened(service)
    try:
        engine("cloud")._refusals.clear()
        wait_for(lambda: not again.changes.all_under_way())
        outcome = again.changes.get(repair.change.id)
        assert (outcome.state, outcome.leave) == ("done", ("A",))
        assert running_jobs("edge-a") == [] and running_jobs("cloud") == ["B"]
    finally:
        again.close()


def blocked_by_edge_a(service: Service) -> str:
    """A and B run; a change of A waits for edge-a, and B fails meanwhile."""
    service.compositions.apply(composition(A, B), DONE)
    World.current().pump()
    engine("edge-a").unreachable = True
    changed = composition(body("A", args=["x"]), B)
    change: str = service.compositions.apply(changed, SOON).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    [running] = engine("cloud").running()
    engine("cloud").fail(running.id, "no memory")
    return change


def test_a_change_that_is_blocked_does_what_breaks_meanwhile(service: Service) -> None:
    change = blocked_by_edge_a(service)

    assert service.repairs.repair("c", frozenset({"A"})) is None
    wait_for(lambda: running_jobs("cloud") == ["B"])
    wait_for(lambda: service.changes.get(change).state == "blocked")
    engine("edge-a").unreachable = False

    outcome = service.changes.await_end(change, 20)
    assert outcome is not None and outcome.state == "done"
    assert running_jobs("edge-a") == ["A"]
    assert service.composition_views.get("c").head.deployed_revision == 2
    stored = service.records.changes.get(change)
    assert stored == outcome
    assert {o.state for o in outcome.operations} <= {"done", "cancelled", "skipped"}


def test_it_can_be_cancelled_while_it_is_planned_anew(service: Service) -> None:
    change = blocked_by_edge_a(service)
    service.repairs.repair("c", frozenset({"A"}))

    service.runner.cancel(change)

    outcome = service.changes.await_end(change, 20)
    assert outcome is not None and outcome.state == "cancelled"
    assert not service.changes.all_under_way()


def test_what_cannot_be_planned_leaves_the_blocked_change_as_it_is(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = blocked_by_edge_a(service)

    def refuse(*_: object, **__: object) -> None:
        raise TransientError("cannot plan now")

    monkeypatch.setattr(service.compositions._deployer, "prepare", refuse)

    with pytest.raises(TransientError):
        service.repairs.repair("c", frozenset({"A"}))

    assert service.changes.get(change).state == "blocked"
    service.runner.cancel(change)


def test_a_repair_that_is_blocked_does_what_breaks_meanwhile(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    World.current().pump()
    [running] = engine("edge-a").running()
    engine("edge-a").fail(running.id, "no memory")
    engine("edge-a").refuse("submit", 100_000, UnreachableError("cannot reach edge-a"))
    repair = service.repairs.repair("c", frozenset({"B"}))
    assert repair is not None
    wait_for(lambda: repair.change.state == "blocked")
    [running] = engine("cloud").running()
    engine("cloud").fail(running.id, "no memory")

    service.repairs.repair("c", frozenset({"A"}))

    wait_for(lambda: running_jobs("cloud") == ["B"])
    engine("edge-a")._refusals.clear()
    assert repair.wait_for_end(20) and repair.change.state == "done"
    assert running_jobs("edge-a") == ["A"]


def test_a_job_posted_alone_comes_back(service: Service) -> None:
    service.jobs.post(job("A"), 20)
    assert service.repairs.repair(composition_of_one("A")) is None
    engine("edge-a").fail(next(iter(engine("edge-a").jobs)), "no memory")
    repair = service.repairs.repair(composition_of_one("A"))
    assert repair is not None and repair.wait_for_end(20)
    assert running_jobs("edge-a") == ["A"]
    assert service.repairs.repair(composition_of_one("B")) is None


def test_a_job_that_its_engine_brought_back_meanwhile_gets_no_second_incarnation(
    service: Service,
) -> None:
    service.compositions.apply(composition(A), DONE)
    World.current().pump()
    here = engine("edge-a")
    jobs = dict(here.jobs)
    here.jobs.clear()  # its master was restarted, and has not read yet what ran

    def back(kind: str, _: str) -> None:
        if kind == "upload":
            here.jobs.update(jobs)

    here.before = back
    repair = repair_composition(service)
    assert repair is not None and repair.state == "failed"
    assert repair.error == ("cannot start A: its attempt 1 is running at edge-a again; apply again")
    assert running_jobs("edge-a") == ["A"]
    assert service.repairs.repair("c") is None


ADOPT = ApplyRequest(wait_s=20, adopt=True)


def _at_the_next_look(service: Service, does: Callable[[], object]) -> None:
    """Let something happen while the next plan is made."""
    here = engine("edge-a")

    def looked(kind: str, _: str) -> None:
        if kind == "view":
            here.before = None
            does()

    here.before = looked


def test_a_repair_of_a_job_that_is_adopted_meanwhile_is_off(service: Service) -> None:
    service.jobs.post(job("A"), 20)
    World.current().pump()
    engine("edge-a").fail(engine("edge-a").running()[0].id, "no memory")
    _at_the_next_look(service, lambda: service.compositions.apply(composition(A), ADOPT))
    assert service.repairs.repair(composition_of_one("A")) is None
    assert running_jobs("edge-a") == ["A"]
    assert service.jobs.get("A").composition == "c"


def test_the_removal_of_a_job_that_is_adopted_meanwhile_is_refused(service: Service) -> None:
    service.jobs.post(job("A"), 20)
    _at_the_next_look(service, lambda: service.compositions.apply(composition(A), ADOPT))
    with pytest.raises(ConflictError, match="composition 'c' owns it"):
        service.jobs.delete("A", 20)
    assert running_jobs("edge-a") == ["A"]
    assert broker("edge-a").sessions


def test_a_job_that_is_changed_meanwhile_is_not_adopted(service: Service) -> None:
    service.jobs.post(job("A"), 20)
    changed = job("A", args=["--x"])
    _at_the_next_look(service, lambda: service.jobs.put("A", changed, 20))
    with pytest.raises(ConflictError, match="was changed meanwhile; apply again"):
        service.compositions.apply(composition(A), ADOPT)
    assert service.jobs.get("A").attempt == 2


def test_what_came_back_is_brought_back_again_when_the_newest_revision_still_fails(
    service: Service,
) -> None:
    here = engine("edge-a")
    service.compositions.apply(composition(A), DONE)
    World.current().feed("tcp://edge-a.test:1883", "A-in", [b"1"], "sensor")
    World.current().pump()
    for _ in range(2):
        here.refuse("submit", 1, EngineRefusedError("cannot start A: no such option"))
        if here.count("submit") == 1:
            service.compositions.apply(composition(body("A", args=["--bad"])), DONE)
        else:
            here.fail(here.running()[0].id, "its broker was away")
            repair = repair_composition(service)
            assert repair is not None and repair.state == "failed"
        (back,) = here.running()
        assert "--bad" not in back.submission.args
        assert back.ledger.messages == 1
