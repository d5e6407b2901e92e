"""Starts that fail: they end as soon as the engine has said why, and hold nothing afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.binding import JobException
from speck.deploy.operations.coming_up import count_equal
from speck.model.accepted import Accepted
from speck.model.observation import RunState
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.memory_fog import HASTY
from tests.service_helpers import DONE, composition, engine, look_anew
from tests.service_helpers import job_body as job
from tests.waiting import wait_for

GONE = "NoClassDefFoundError: lib/Gone"


@pytest.fixture(autouse=True)
def patient(service: Service) -> None:
    service.executions.patience = replace(HASTY, start_s=1000.0)


def apply(service: Service, *jobs: JsonObject) -> Accepted:
    return service.compositions.apply(composition(*jobs), DONE)


def states() -> list[RunState]:
    return [each.state for each in engine("edge-a").jobs.values()]


def test_a_first_start_that_fails_again_and_again_says_why_and_holds_no_slot(
    service: Service,
) -> None:
    engine("edge-a").crashing["A"] = GONE
    body = apply(service, job("A"))

    assert body.state == "failed"
    look_anew(service)
    shown = service.jobs.get("A")
    assert shown.state == "failed"
    assert shown.error == f"cannot start A: it fails again and again (3x): {GONE}"
    assert states() == [RunState.CANCELED]
    assert engine("edge-a").free == engine("edge-a").total


def test_the_former_version_comes_back(service: Service) -> None:
    apply(service, job("A"))
    engine("edge-a").crashing["--2"] = GONE
    change = apply(service, job("A", args=["--2"])).change

    errors = [str(o.error) for o in service.changes.get(change).operations if o.error]
    assert any(GONE in error for error in errors)
    look_anew(service)
    assert service.jobs.get("A").state == "running"
    assert states()[-1] is RunState.RUNNING


def test_the_cause_is_shown_while_the_start_waits(service: Service) -> None:
    engine("edge-a").hold_starts = True
    change = service.compositions.apply(composition(job("A")), ApplyRequest(wait_s=0.05)).change
    wait_for(lambda: bool(engine("edge-a").jobs))
    (starting,) = engine("edge-a").jobs.values()
    engine("edge-a").crash(starting.id, GONE)

    wait_for(lambda: service.jobs.get("A").error == f"it failed: {GONE}")
    starting.state = RunState.STARTING
    engine("edge-a").let_go()
    wait_for(lambda: service.changes.get(change).state == "done")
    look_anew(service)
    assert service.jobs.get("A").error is None


def test_a_first_start_that_gets_no_slots_gives_up_those_that_it_holds(service: Service) -> None:
    service.executions.patience = replace(HASTY, start_s=0.05)
    engine("edge-a").hold_starts = True
    assert apply(service, job("A")).state == "failed"
    assert states() == [RunState.CANCELED]


def test_failures_are_equal_whatever_numbers_they_hold() -> None:
    failures = [failure(f"cannot read record {n} of Table@{n}fa{n} at 2026") for n in range(3)]
    assert count_equal(failures) == 3
    assert count_equal([failure("other"), *failures]) == 1


def test_failures_from_one_line_are_equal_whatever_they_say() -> None:
    hosts = [failure(f"cannot ask host-{name}") for name in "xyz"]
    assert count_equal(hosts) == 1
    placed = [replace(each, place="IOException at Ask.open(Ask.java:7)") for each in hosts]
    assert count_equal(placed) == 3
    elsewhere = replace(failure("cannot ask host-w"), place="IOException at Ask.open(Ask.java:8)")
    assert count_equal([elsewhere, *placed]) == 1


def test_failures_that_may_pass_do_not_count() -> None:
    assert count_equal([replace(failure("Connection refused"), transient=True)] * 4) == 0
    assert count_equal([]) == 0


def failure(reason: str) -> JobException:
    return JobException(0, "RuntimeException", reason, reason=reason)
