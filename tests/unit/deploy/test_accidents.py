"""What a plan does after an accident: lost answers, forgetful engines, sessions half ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from binders.memory import World
from binders.memory.engine import MemoryEngine
from speck.binding import Submission
from speck.errors import ConflictError, EngineRefusedError, QueuesError, UnreachableError
from speck.model.accepted import Accepted
from speck.model.composition import CompositionDescription
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import DONE, broker, composition, engine
from tests.service_helpers import job_body as job
from tests.waiting import wait_for

SOON = ApplyRequest(wait_s=0.05)
DROPPING = replace(DONE, drop_queues=True)


def apply(
    service: Service, *jobs: JsonObject, request: ApplyRequest = DONE, **more: Any
) -> Accepted:
    body = service.compositions.apply(composition(*jobs, **more), request)
    assert body.change is not None
    change = service.changes.get(body.change)
    assert change.state == "done", change.error
    return body


def left_blocked(
    service: Service, desired: CompositionDescription, request: ApplyRequest = SOON
) -> None:
    """Apply, see it blocked, cancel it."""
    change = service.compositions.apply(desired, request).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    service.runner.cancel(change)
    wait_for(lambda: not service.changes.all_under_way())


def feed(topic: str, *payloads: bytes) -> None:
    World.current().feed("tcp://edge-a.test:1883", topic, payloads, "sensor")
    World.current().pump()


P = job("P", source_topic="in", sink_topic="x")
Q = job("Q", source_topic="x", sink_topic="y")
R = job("R", source_topic="x", sink_topic="z")


# -- drains -------------------------------------------------------------------------------


def test_a_reader_that_joined_late_is_drained_when_its_queue_is_empty(service: Service) -> None:
    apply(service, P, Q)
    feed("in", b"1", b"2", b"3")
    apply(service, P, Q, R)
    assert service.compositions.delete("c", 20).done
    assert not broker("edge-a").sessions


def test_a_reader_that_lost_its_memory_is_drained_when_its_queue_is_empty(
    service: Service,
) -> None:
    apply(service, P, Q)
    feed("in", b"1", b"2", b"3")
    apply(service, P, {**Q, "args": ["--new"], "upgrade": "stateless"})
    assert service.compositions.delete("c", 20).done


def moved(body: JsonObject) -> JsonObject:
    """P, Q or R with the link between them renamed."""
    return {key: "x2" if value == "x" else value for key, value in body.items()}


def test_a_late_reader_can_be_rewired_with_the_others(service: Service) -> None:
    apply(service, P, Q)
    feed("in", b"1", b"2", b"3")
    apply(service, P, Q, R)
    apply(service, *map(moved, (P, Q, R)))
    feed("in", b"4")
    assert [m.payload for m in broker("edge-a").published["x2"]] == [b"4"]


OUT = {"outputs": [{"site": "edge-a", "topic": "y", "client_id": "out"}]}


def stuck(service: Service) -> None:
    """Q has three messages in its queue and can pass on none."""
    apply(service, P, Q, **OUT)
    del broker("edge-a").sessions["out"]
    feed("in", b"1", b"2", b"3")


def test_a_drain_that_fails_does_not_keep_the_producer_down(service: Service) -> None:
    stuck(service)
    desired = composition(moved(P), moved(Q), **OUT)
    body = service.compositions.apply(desired, DONE)
    assert body.state == "failed"
    running = {i.submission.job_name: i.submission.args for i in engine("edge-a").running()}
    assert sorted(running) == ["P", "Q"]
    assert "x2" in running["P"]


def test_what_a_failed_drain_waited_for_is_still_drained_next_time(service: Service) -> None:
    stuck(service)
    desired = composition(moved(P), moved(Q), **OUT)
    service.compositions.apply(desired, DONE)
    feed("in", b"4")
    again = service.compositions.apply(desired, ApplyRequest(dry_run=True)).plan.text
    assert "drain edge-a/x for Q: left from before" in again
    broker("edge-a").subscribe("out", "y")
    apply(service, moved(P), moved(Q), **OUT)
    World.current().pump()
    assert broker("edge-a").take("out") == [b"1", b"2", b"3", b"4"]
    assert not any(broker("edge-a").abandoned.values())


def test_a_producer_that_stopped_before_is_drained_too(service: Service) -> None:
    apply(service, P, Q)
    world = World.current()
    world.auto_pump = False
    world.feed("tcp://edge-a.test:1883", "in", [b"1", b"2", b"3"], "sensor")
    (producer,) = [i for i in engine("edge-a").running() if i.submission.job_name == "P"]
    producer.work()
    apply(service, {**P, "state": "stopped"}, Q)
    engine("edge-a").before = once("try_main", lambda: setattr(world, "auto_pump", True))
    apply(service, {**P, "state": "stopped"}, {**Q, "source_topic": "elsewhere"})
    assert not any(broker("edge-a").abandoned.values())


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_what_a_producer_leaves_behind_is_drained_when_its_reader_goes_later(
    service: Service, how: str
) -> None:
    out = {"outputs": [{"site": "edge-a", "topic": "y", "client_id": "out"}]}
    rest = [{**P, "sink_topic": "x2"}] if how == "moved" else []
    apply(service, P, Q, **out)
    world = World.current()
    world.auto_pump = False
    world.feed("tcp://edge-a.test:1883", "in", [b"1", b"2", b"3"], "sensor")
    (producer,) = [i for i in engine("edge-a").running() if i.submission.job_name == "P"]
    producer.work()
    apply(service, *rest, Q, **out)
    assert not broker("edge-a").take("out")
    world.auto_pump = True
    desired = composition(job("Z"), **out)
    body = service.compositions.apply(desired, ApplyRequest(wait_s=20, force=True))
    assert "drain edge-a/x for Q: left from before" in body.plan.text
    assert body.state == "done"
    assert broker("edge-a").take("out") == [b"1", b"2", b"3"]
    assert not any(broker("edge-a").abandoned.values())


# -- starts whose answer was lost ---------------------------------------------------------


class Late:
    """The first submission of A is on its way; nothing is heard of it until `arrive`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._submit = MemoryEngine.submit
        self._first: tuple[MemoryEngine, Submission] | None = None
        self.here = False
        patch.setattr(MemoryEngine, "submit", lambda binder, s: self._called(binder, s))

    def _called(self, binder: MemoryEngine, submission: Submission) -> None:
        if self._first is None and submission.job_name == "A":
            self._first = (binder, submission)
        first = self._first[1].engine_job_id if self._first else None
        if submission.engine_job_id == first and not self.here:
            raise UnreachableError("cannot reach edge-a: no answer in time")
        self._submit(binder, submission)

    def arrive(self) -> None:
        assert self._first is not None
        self.here = True
        self._submit(*self._first)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Late:
    return Late(monkeypatch)


def test_a_start_that_may_still_arrive_is_sent_again_under_its_id(
    service: Service, late: Late
) -> None:
    left_blocked(service, composition(job("A")))
    late.here = True
    apply(service, job("A"))
    with pytest.raises(EngineRefusedError):
        late.arrive()
    assert len(engine("edge-a").running()) == 1
    assert service.records.inventory("c").attempts == {"A": 1}


@pytest.mark.parametrize("arrives", ["before", "after"])
def test_a_start_that_may_still_arrive_is_settled_before_another(
    service: Service, late: Late, arrives: str
) -> None:
    left_blocked(service, composition(job("A")))
    desired = composition(job("A", args=["--new"]))
    text = service.compositions.apply(desired, ApplyRequest(dry_run=True)).plan.text
    assert "fence A on edge-a: args changed" in text
    if arrives == "before":
        engine("edge-a").before = once("status", late.arrive)
    assert service.compositions.apply(desired, DONE).state == "done"
    if arrives == "after":
        with pytest.raises(EngineRefusedError):
            late.arrive()
    (running,) = engine("edge-a").running()
    assert "--new" in running.submission.args


def once(kind: str, act: Callable[[], None]) -> Callable[[str, str], None]:
    """A hook that acts before the first call of a kind."""
    calls: list[bool] = []

    def hook(called: str, subject: str) -> None:
        if called == kind and not calls:
            calls.append(True)
            act()

    return hook


def test_a_start_that_has_arrived_publishes_nothing_twice_when_it_is_settled(
    service: Service, late: Late
) -> None:
    """It runs, and has published since its last checkpoint."""
    World.current().auto_pump = False
    left_blocked(service, composition(job("A")))

    def arrive() -> None:
        late.arrive()
        World.current().feed("tcp://edge-a.test:1883", "A-in", (b"1", b"2"), "sensor")
        World.current().pump(checkpoint=False)

    engine("edge-a").before = once("status", arrive)
    apply(service, job("A", args=["--new"]))
    World.current().pump()
    assert [each.payload for each in broker("edge-a").published["A-out"]] == [b"1", b"2"]


@pytest.mark.parametrize("wish", ["stopped", "removed"])
def test_a_start_that_may_still_arrive_is_settled_when_it_is_not_wanted(
    service: Service, late: Late, wish: str
) -> None:
    left_blocked(service, composition(job("A"), job("B", site="cloud")))
    jobs = [job("B", site="cloud")] + ([job("A", state="stopped")] if wish == "stopped" else [])
    apply(service, *jobs, request=DROPPING)
    with pytest.raises(EngineRefusedError):
        late.arrive()
    assert not engine("edge-a").running()
    again = service.compositions.apply(composition(*jobs), ApplyRequest(dry_run=True)).plan
    assert again.operations == ()


def test_a_settled_start_leaves_the_state_before_it_to_the_next(service: Service) -> None:
    apply(service, job("A"))
    feed("A-in", b"1")
    engine("edge-a").refuse("submit", 100_000, UnreachableError("cannot reach edge-a"))
    left_blocked(service, composition(job("A", args=["--2"])))
    engine("edge-a")._refusals.clear()
    apply(service, job("A", args=["--3"]))
    (running,) = engine("edge-a").running()
    assert running.submission.state is not None
    assert running.ledger.messages == 1


# -- newest state only --------------------------------------------------------------------


def test_state_before_a_start_that_was_taken_on_is_never_gone_back_to(service: Service) -> None:
    apply(service, job("A"))
    feed("A-in", b"1")
    engine("edge-a").hold_starts = True
    desired = composition(job("A", args=["--2"]))
    change = service.compositions.apply(desired, SOON).change
    wait_for(lambda: len(engine("edge-a").jobs) == 2)
    wait_for(lambda: bool(deployed(service).accepted))
    engine("edge-a").unreachable = True
    wait_for(lambda: service.changes.get(change).state == "blocked")
    service.runner.cancel(change)
    wait_for(lambda: not service.changes.all_under_way())
    engine("edge-a").unreachable = False
    engine("edge-a").let_go()
    feed("A-in", b"2", b"3")
    engine("edge-a").forget_jobs()
    body = service.compositions.apply(desired, DONE)
    assert body.state == "failed"
    assert "cannot be established" in service.changes.get(body.change).error
    assert not engine("edge-a").running()


def deployed(service: Service) -> Any:
    return service.records.inventory("c").jobs["A"]


def test_an_id_that_the_engine_refused_is_remembered_as_such(service: Service) -> None:
    apply(service, job("A"))
    feed("A-in", b"1")
    engine("edge-a").refuse("submit", 2, EngineRefusedError("cannot start A: no"))
    desired = composition(job("A", args=["--2"]))
    assert service.compositions.apply(desired, DONE).state == "failed"
    assert deployed(service).void
    apply(service, job("A", args=["--2"]))
    assert engine("edge-a").running()[0].ledger.messages == 1


def test_a_stateless_update_that_fails_leaves_the_way_back(service: Service) -> None:
    apply(service, job("A"))
    feed("A-in", b"1", b"2")
    engine("edge-a").refuse("submit", 2, EngineRefusedError("cannot start A: no"))
    desired = composition(job("A", args=["--2"], upgrade="stateless"))
    assert service.compositions.apply(desired, DONE).state == "failed"
    assert service.compositions.rollback("c", 1, DONE).state == "done"
    assert engine("edge-a").running()[0].ledger.messages == 2


def test_a_stateless_start_that_ran_and_failed_leaves_the_way_back(service: Service) -> None:
    apply(service, job("A"))
    feed("A-in", b"1", b"2")
    engine("edge-a").hold_starts = True
    desired = composition(job("A", args=["--2"], upgrade="stateless"))
    change = service.compositions.apply(desired, SOON).change
    wait_for(lambda: len(engine("edge-a").jobs) == 2)
    engine("edge-a").fail(list(engine("edge-a").jobs)[-1], "no memory")
    wait_for(lambda: not service.changes.all_under_way())
    assert service.changes.get(change).state == "failed"
    engine("edge-a").let_go()
    assert service.compositions.rollback("c", 1, DONE).state == "done"
    assert engine("edge-a").running()[0].ledger.messages == 2


# -- sessions of outsiders ----------------------------------------------------------------


def dashboard(topic: str, site: str = "edge-a") -> JsonObject:
    return {"outputs": [{"site": site, "topic": topic, "client_id": "dashboard"}]}


def test_an_outsider_keeps_its_session_when_its_topic_changes(service: Service) -> None:
    apply(service, job("A", sink_topic="t1"), **dashboard("t1"))
    apply(service, job("A", sink_topic="t2"), **dashboard("t2"))
    assert broker("edge-a").sessions["dashboard"].topics == {"t2"}
    feed("A-in", b"1")
    assert broker("edge-a").take("dashboard") == [b"1"]
    assert service.composition_views.plan("c").operations == ()


def test_an_outsider_gets_a_session_at_its_new_site(service: Service) -> None:
    apply(service, job("A", sink_topic="t"), **dashboard("t"))
    apply(service, job("A", sink_topic="t", sink_site="cloud"), **dashboard("t", "cloud"))
    assert "dashboard" not in broker("edge-a").sessions
    assert "dashboard" in broker("cloud").sessions
    assert service.composition_views.plan("c").operations == ()
    service.compositions.delete("c", 20)
    assert "dashboard" not in broker("cloud").sessions


def test_two_compositions_cannot_hold_the_session_of_one_outsider(service: Service) -> None:
    apply(service, job("A", sink_topic="t"), **dashboard("t"))
    other = composition(job("B", sink_topic="u"), name="c2", **dashboard("u"))
    with pytest.raises(ConflictError, match=r"^cannot reserve .*dashboard.* 'c' has it"):
        service.compositions.apply(other, DONE)
    elsewhere = composition(
        job("B", sink_topic="u", sink_site="cloud"), name="c2", **dashboard("u", "cloud")
    )
    assert service.compositions.apply(elsewhere, DONE).state == "done"


def test_a_release_cut_short_is_not_taken_for_a_session_that_is_there(service: Service) -> None:
    first, second = job("A", source_topic="l1"), job("A", source_topic="l2")
    apply(service, first)
    lost = UnreachableError("cannot reach edge-a")
    broker("edge-a").refuse("release", 100_000, lost, after=True)
    change = service.compositions.apply(composition(second), SOON).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    plan = service.compositions.apply(composition(first), ApplyRequest(dry_run=True)).plan
    assert "reserve edge-a/l1 for A" in plan.text


def test_a_removal_that_is_taken_back_at_its_last_step_keeps_the_state(service: Service) -> None:
    far = {**Q, "site": "cloud", "source_site": "edge-a"}
    apply(service, P, far)
    feed("in", b"1", b"2")
    broker("edge-a").refuse("release", 10_000, UnreachableError("silent"))
    left_blocked(service, composition(P), replace(SOON, force=True))
    assert {each.job_name for each in service.jobs.all()} == {"P", "Q"}
    broker("edge-a").forgive()
    apply(service, P, far)
    (running,) = engine("cloud").running()
    assert running.submission.state


def test_a_job_that_was_edited_while_stopped_is_an_update(service: Service) -> None:
    apply(service, job("A"))
    apply(service, job("A", state="stopped"))
    feed("A-in", b"1")
    edited = job("A", state="stopped", source_topic="other")
    with pytest.raises(QueuesError, match=r"drops the queue of A at edge-a/A-in"):
        apply(service, edited)
    body = apply(service, edited, request=DROPPING)
    assert body.plan.summary["update"] == 1
    assert body.plan.jobs[0].reason == ("source edge-a/A-in -> edge-a/other; stopped, as wanted")


# -- jars of others -----------------------------------------------------------------------


def test_what_a_foreign_jar_has_not_taken_is_not_called_nothing(service: Service) -> None:
    foreign = {**P, "args": ["--in={source_topic}"]}
    body = apply(service, foreign, Q)
    assert any("P" in warning and "numbers" in warning for warning in body.warnings)
    plan = service.compositions._deployer.prepare_removal("c").plan
    assert "release edge-a/x of Q: left; abandons what is queued (number not known)" in str(plan)
    assert service.compositions.delete("c", 20).done
