"""Jobs posted alone that a composition takes in; who owns a name."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from speck.errors import ConflictError, InvalidError
from speck.model.composition import composition_of_one
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.service.jobs import JobOutcome
from tests.service_helpers import (
    DONE,
    LIMIT_S,
    broker,
    composition,
    engine,
    everything,
    job,
    job_body,
)
from tests.waiting import wait_for

A, B = job_body("A"), job_body("B", "cloud")


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
