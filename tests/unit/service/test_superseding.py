"""Changes that are blocked, and those that take their place; starts without an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.errors import EngineRefusedError, InvalidError, UnreachableError
from speck.model.accepted import Accepted
from speck.model.change import ChangeState
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import DONE, LIMIT_S, broker, composition, engine, job_body, states
from tests.waiting import wait_for

A, B = job_body("A"), job_body("B", "cloud")


def change_is(service: Service, change: str, state: ChangeState) -> bool:
    return bool(service.changes.get(change).state == state)


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
