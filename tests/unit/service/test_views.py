"""The views of the API while sites are slow or silent, and of jobs that are being removed."""

from __future__ import annotations

import threading
from collections.abc import Set

import pytest

from speck.errors import EngineRefusedError, NotFoundError, TransientError, UnreachableError
from speck.model.composition import CompositionDescription
from speck.monitor.judge import JobFinding
from speck.service import Service
from speck.service.composition_views import DriftEntry
from speck.service.compositions import ApplyRequest
from tests.service_helpers import (
    DONE,
    LIMIT_S,
    broker,
    composition,
    engine,
    job,
    job_body,
    reopened,
    states,
)
from tests.waiting import wait_for

A, B = job_body("A"), job_body("B", "cloud")


SITES = ("cloud", "edge-a", "edge-b", "edge-c")


def calls() -> int:
    """How many calls all engines and brokers have got."""
    return sum(len(engine(site).calls) + len(broker(site).calls) for site in SITES)


def test_reading_asks_no_site(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    before = calls()
    assert states(service) == {"A": "running", "B": "running"}
    assert service.jobs.count_states() == {"running": 2}
    assert service.jobs.get("A") == service.composition_views.get("c").jobs[0]
    assert service.composition_views.drift("c") == []
    assert [site.name for site in service.sites.all(state="up")] == list(SITES)
    assert service.sites.get("cloud").state == "up"
    assert calls() == before


def test_a_state_is_as_old_as_the_last_poll_unless_a_fresh_one_is_wanted(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    service.jobs.refresh()
    engine("cloud").fail(engine("cloud").running()[0].id, "no such sensor")
    service.jobs.refresh(lambda name: name == "A")
    assert states(service) == {"A": "running", "B": "running"}

    service.jobs.refresh(lambda name: name == "B")

    assert states(service) == {"A": "running", "B": "failed"}


def test_a_fresh_state_is_none_of_a_poll_that_was_under_way_already(service: Service) -> None:
    service.compositions.apply(composition(B), DONE)
    running = engine("cloud").running()[0].id
    looking, go_on = threading.Event(), threading.Event()

    def hold(kind: str, subject: str) -> None:
        if kind == "view" and not looking.is_set():
            looking.set()
            assert go_on.wait(LIMIT_S)

    engine("cloud").before = hold
    service.polls.engines.ask(["cloud"], fresh_s=0.0)
    assert looking.wait(LIMIT_S)
    refresh = threading.Thread(target=service.jobs.refresh)
    refresh.start()
    engine("cloud").fail(running, "no such sensor")
    go_on.set()
    refresh.join(LIMIT_S)
    assert states(service) == {"B": "failed"}


def test_what_a_change_has_started_runs_before_its_site_was_polled(service: Service) -> None:
    service.jobs.post(job("B", "cloud"), LIMIT_S)
    service.polls.forget("cloud")
    assert states(service) == {"B": "running"}


def test_a_poll_from_before_a_job_came_does_not_make_it_lost(service: Service) -> None:
    service.sites.refresh()
    assert service.jobs.post(job("B", "cloud"), LIMIT_S).created
    assert states(service) == {"B": "running"}


def test_what_a_failed_change_left_is_known_when_its_end_is(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    (running,) = engine("cloud").running()

    def fail(kind: str, subject: str) -> None:
        if kind == "cancel":
            engine("cloud").fail(running.id, "bad")

    engine("cloud").before = fail
    engine("cloud").refuse("cancel", 1, EngineRefusedError("cannot cancel B: not now"))

    assert service.compositions.apply(composition(A), DONE).state == "failed"

    assert states(service) == {"A": "running", "B": "failed"}


def test_a_cancelled_start_is_shown_as_its_engine_has_it(service: Service) -> None:
    service.sites.refresh()
    engine("cloud").hold_starts = True
    change = service.compositions.apply(composition(B), ApplyRequest()).change
    wait_for(lambda: engine("cloud").jobs)
    assert states(service) == {"B": "deploying"}
    service.runner.cancel(change)
    assert service.changes.await_end(change, LIMIT_S)
    known = states(service)
    service.jobs.refresh()
    assert states(service) == known


def test_a_stalled_job_stays_so_while_a_change_is_at_work_on_another(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    finding = JobFinding(service.jobs.get("A").engine_job_id, stall="no checkpoint completed")
    service.board.publish({("c", "A"): finding}, {}, {})
    engine("cloud").hold_starts = True
    changed = composition(A, job_body("B", "cloud", args=["x"]))
    change = service.compositions.apply(changed, ApplyRequest()).change
    wait_for(lambda: states(service)["B"] == "updating")
    assert states(service) == {"A": "stalled", "B": "updating"}
    engine("cloud").let_go()
    assert service.changes.await_end(change, LIMIT_S)
    assert states(service) == {"A": "stalled", "B": "running"}


def test_after_a_restart_states_are_unknown_until_the_first_poll(service: Service) -> None:
    stopped = job_body("C", "cloud", state="stopped")
    service.compositions.apply(composition(A, B, stopped), DONE)
    again = reopened(service)
    for site in SITES:
        again.polls.forget(site)  # of the start, which looks for newer incarnations
    try:
        assert states(again) == {"A": "unknown", "B": "unknown", "C": "stopped"}
        assert {site.state for site in again.sites.all()} == {"unknown"}
        assert again.composition_views.drift("c") == []
        again.watch.poll()
        assert states(again) == {"A": "running", "B": "running", "C": "stopped"}
        assert {site.state for site in again.sites.all()} == {"up"}
    finally:
        again.close()


def test_a_slow_site_holds_up_nobody_for_long(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    looking, go_on = threading.Event(), threading.Event()

    def hold(kind: str, subject: str) -> None:
        if kind == "view":
            looking.set()
            assert go_on.wait(LIMIT_S)

    engine("cloud").before = hold
    service.jobs.refresh()  # it waits for a moment, and leaves the last state
    assert looking.is_set()
    assert states(service) == {"A": "running", "B": "running"}
    engine("cloud").before = None
    go_on.set()


@pytest.mark.parametrize("part", ["engine", "broker"])
def test_a_site_of_which_one_half_answers_is_degraded(service: Service, part: str) -> None:
    assert service.sites.get("edge-a").state == "up"
    assert service.sites.get("edge-a").error is None
    half = engine("edge-a") if part == "engine" else broker("edge-a")
    half.unreachable = True
    service.sites.refresh(["edge-a"])
    site = service.sites.get("edge-a")
    assert site.state == "degraded"
    assert site.error.startswith(f"{part}: cannot reach ")
    assert [s.name for s in service.sites.all(state="degraded")] == ["edge-a"]
    assert (service.sites.get("edge-a").slots.total is None) == (part == "engine")


def test_a_site_whose_broker_accepts_connections_and_answers_nothing_is_degraded(
    service: Service,
) -> None:
    assert service.sites.get("edge-a").state == "up"
    broker("edge-a").refuse("view", 2, UnreachableError("cannot read: no answer in time"))
    service.polls.broker_numbers.poll(["edge-a"], fresh_s=0.0)
    for _ in range(2):
        site = service.sites.get("edge-a")
        assert (site.state, site.error) == (
            "degraded",
            "broker: cannot read: no answer in time",
        )
        service.sites.refresh(["edge-a"])
    assert service.sites.get("edge-a").state == "up"


def test_a_job_on_its_way_out_is_shown_as_stopping(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    holding, go_on = threading.Event(), threading.Event()

    def hold(kind: str, subject: str) -> None:
        if kind == "cancel":
            holding.set()
            assert go_on.wait(LIMIT_S)

    engine("cloud").before = hold
    service.compositions.apply(composition(A), ApplyRequest())
    assert holding.wait(LIMIT_S)
    body = {j.job_name: j.state for j in service.jobs.all()}
    assert body == {"A": "running", "B": "stopping"}
    assert service.jobs.get("B").site == "cloud"
    engine("cloud").before = None
    go_on.set()
    wait_for(lambda: service.changes.under_way("c") is None)
    with pytest.raises(NotFoundError):
        service.jobs.get("B")


def test_a_job_whose_removal_failed_is_shown_and_drifts(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    engine("cloud").refuse("cancel", 1, EngineRefusedError("cannot cancel B: not now"))
    failed = service.compositions.apply(composition(A), DONE)
    assert failed.state == "failed"
    job = service.jobs.get("B")
    assert (job.state, job.error) == ("running", "cannot cancel B: not now")
    assert job.description.job_path.startswith("artifact:")
    assert [j.job_name for j in service.composition_views.get("c").jobs] == ["A", "B"]
    assert service.composition_views.drift("c") == [
        DriftEntry("B", "leftover", expected="removed", observed="cannot cancel B: not now")
    ]
    assert service.compositions.apply(composition(A), DONE).state == "done"
    assert service.composition_views.drift("c") == []


def test_a_single_job_whose_removal_failed_tells_why(service: Service) -> None:
    service.jobs.post(job("B", "cloud"), LIMIT_S)
    engine("cloud").refuse("cancel", 1, EngineRefusedError("cannot cancel B: not now"))
    with pytest.raises(EngineRefusedError):
        service.jobs.delete("B", LIMIT_S)
    body = service.jobs.get("B")
    assert (body.state, body.error) == ("running", "cannot cancel B: not now")


def test_jobs_that_a_deletion_has_done_with_are_not_shown_as_pending(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    engine("cloud").unreachable = True
    service.compositions.delete("c", 0)
    wait_for(lambda: service.records.incarnations.get("c", "A") is None)
    assert [j.job_name for j in service.jobs.all()] == ["B"]
    engine("cloud").unreachable = False
    wait_for(lambda: service.changes.under_way("c") is None)


def shown_at_writes(service: Service, description: CompositionDescription) -> list[str]:
    """The states that B goes through while a composition is applied, as seen before each write."""
    seen: list[str] = []
    write = service.records.store.write

    def look(*args: object, **options: object) -> None:
        state = states(service).get("B", "gone")
        seen.extend([state] if seen[-1:] != [state] else [])
        write(*args, **options)

    service.records.store.write = look
    assert service.compositions.apply(description, DONE).state == "done"
    service.records.store.write = write
    state = states(service).get("B", "gone")
    return [*seen, *([state] if seen[-1:] != [state] else [])]


def test_a_job_is_at_work_until_what_has_become_of_it_is_stored(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    stopped = job_body("B", "cloud", state="stopped")
    for body, expected in (
        (stopped, ["running", "updating", "stopped"]),
        (B, ["stopped", "updating", "running"]),
        (job_body("B", "edge-b"), ["running", "moving", "running"]),
        (job_body("B", "edge-b", args=["x"]), ["running", "updating", "running"]),
    ):
        assert shown_at_writes(service, composition(A, body)) == expected
    assert shown_at_writes(service, composition(A)) == ["running", "stopping", "gone"]


def test_the_end_of_a_failed_change_is_told_once_its_sites_were_polled(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    engine("cloud").refuse("cancel", 1, EngineRefusedError("cannot cancel B: not now"))
    seen: list[tuple[str, bool]] = []
    refresh = service.polls.refresh

    def has_event() -> bool:
        return any("of c failed" in event.message for event in service.records.events.after())

    def look(sites: Set[str]) -> None:
        seen.append((list(service.records.changes.heads())[-1].state, has_event()))
        refresh(sites)

    service.polls.refresh = look
    assert service.compositions.apply(composition(A), DONE).state == "failed"
    assert seen == [("running", False)]
    assert has_event()


@pytest.mark.parametrize("error", [TransientError("cannot poll sites: it stops"), ValueError("x")])
def test_a_change_ends_though_its_sites_cannot_be_polled(
    service: Service, error: Exception
) -> None:
    service.compositions.apply(composition(A, B), DONE)
    engine("cloud").refuse("cancel", 1, EngineRefusedError("cannot cancel B: not now"))

    def refuse(sites: Set[str]) -> None:
        raise error

    service.polls.refresh = refuse
    assert service.compositions.apply(composition(A), DONE).state == "failed"
    assert list(service.records.changes.heads())[-1].state == "failed"


def test_jobs_whose_sites_were_never_polled_are_known_when_a_change_ends(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    again = reopened(service)
    for site in SITES:
        again.polls.forget(site)
    try:
        more = composition(A, B, job_body("C", "edge-b"))
        assert again.compositions.apply(more, DONE).state == "done"
        assert states(again) == {"A": "running", "B": "running", "C": "running"}
        for site in SITES:
            again.polls.forget(site)
        assert again.compositions.apply(more, DONE).state == "done"
        assert states(again) == {"A": "running", "B": "running", "C": "running"}
    finally:
        again.close()


def test_a_state_says_how_old_it_is(service: Service) -> None:
    assert service.sites.get("cloud").polled_at is not None
    service.compositions.apply(composition(A, job_body("B", "cloud", state="stopped")), DONE)
    assert service.jobs.get("B").polled_at is None, "no engine knows it"
    service.jobs.refresh()
    before = service.jobs.get("A").polled_at
    assert before is not None
    engine("edge-a").unreachable = True
    service.jobs.refresh()
    after = service.jobs.get("A")
    assert after.state == "unreachable"
    assert after.polled_at > before
    service.polls.forget("edge-a")
    assert service.jobs.get("A").polled_at is None
    assert service.sites.get("edge-a").polled_at is None


def test_of_one_site_only_its_engine_is_polled_for_a_fresh_list(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    before = engine("edge-a").count("view"), engine("cloud").count("view")
    service.jobs.refresh(site="cloud")
    after = engine("edge-a").count("view"), engine("cloud").count("view")
    assert after == (before[0], before[1] + 1)


def test_a_site_whose_engine_does_not_measure_is_not_silent_for_the_watch(
    service: Service,
) -> None:
    engine("cloud").refuse("measure", 1, UnreachableError("cannot read metrics"))
    service.sampler.poll()
    wait_for(lambda: service.scheduler.silent == {("measures of engine", "cloud")})


def test_nothing_is_remembered_of_jobs_and_sites_that_are_gone(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    engine("edge-c").unreachable = True
    service.sites.refresh()
    wait_for(lambda: service.scheduler.silent == {("engine", "edge-c")})
    service.sites.delete("edge-c")
    service.polls.engines.poll(["edge-c"], urgent=False)  # by a round that had begun before
    service.forgetting.composition("c", force=True)
    service.watch.poll()
    assert service.board.reported == frozenset()
    assert service.polls.engines.known == {"cloud", "edge-a", "edge-b"}

    def knows_no_silent_site() -> bool:
        service.watch.poll()  # the last poll may note it just after it has answered
        return not service.scheduler.silent

    wait_for(knows_no_silent_site)
