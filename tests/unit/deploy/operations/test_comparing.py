"""What a jar's `main` decides against its description is reported, or refused before anything
stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.binding import Trial
from speck.model.accepted import Accepted
from speck.model.observation import RunState
from speck.model.values import JsonObject
from speck.service import Service
from tests.memory_fog import HASTY
from tests.service_helpers import DONE, composition, engine, look_anew
from tests.service_helpers import job_body as job
from tests.waiting import wait_for

WIDE = "its main sets parallelism 40 itself, and the description says 1"


@pytest.fixture(autouse=True)
def patient(service: Service) -> None:
    service.executions.patience = replace(HASTY, start_s=1000.0)


def apply(service: Service, *jobs: JsonObject) -> Accepted:
    return service.compositions.apply(composition(*jobs), DONE)


def list_messages(service: Service) -> list[str]:
    return [e.message for e in service.records.events.after() if e.kind == "job"]


def test_an_update_that_would_never_get_its_slots_is_refused_before_anything_stops(
    service: Service,
) -> None:
    apply(service, job("A"))
    change = apply(service, job("A", args=["--parallelism", "40"]))
    assert change.state == "failed"
    total = engine("edge-a").total
    operations = service.changes.get(change.change).operations
    errors = [o.error for o in operations if o.state == "failed"]
    assert errors == [
        f"cannot start A: {WIDE}, and edge-a has {total} slots; leave the parallelism to the"
        " description"
    ]
    assert [each.state for each in engine("edge-a").jobs.values()] == [RunState.RUNNING]


def test_a_new_job_that_would_never_get_its_slots_fails_at_once_and_holds_none(
    service: Service,
) -> None:
    assert apply(service, job("A", args=["--parallelism", "40"])).state == "failed"
    look_anew(service)
    assert WIDE in service.jobs.get("A").error
    assert engine("edge-a").free == engine("edge-a").total
    assert apply(service, job("A")).state == "done"


def test_another_parallelism_that_fits_is_an_event(service: Service) -> None:
    assert apply(service, job("A", args=["--parallelism", "2"])).state == "done"
    wanted = "A: its main sets parallelism 2 itself, and the description says 1; describe it so"
    wait_for(lambda: wanted in list_messages(service))


def test_the_trial_is_no_stricter_than_the_start(service: Service) -> None:
    apply(service, job("A"))
    engine("edge-a").trial = Trial(has_built=False)
    assert apply(service, job("A", args=["--2"])).state == "done"
    assert any("built no job when it was tried" in each for each in list_messages(service))


def test_a_main_that_fails_after_its_start_is_an_event(service: Service) -> None:
    engine("edge-a").late_failure = "Cannot have more than one execute()"
    assert apply(service, job("A")).state == "done"
    (event,) = [each for each in list_messages(service) if "failed after" in each]
    assert "Cannot have more than one execute(); a second job" in event


def test_a_job_that_takes_no_checkpoints_is_reported(service: Service) -> None:
    engine("edge-a").interval_s = None
    assert apply(service, job("A")).state == "done"
    (told,) = (each for each in list_messages(service) if "checkpoints" in each)
    assert told.startswith("A: it takes no checkpoints: its input is never acknowledged")
    assert told.endswith("enable them in its main, or at edge-a")
    engine("edge-a").interval_s = 1.0
    apply(service, job("A", args=["--2"]))
    assert len([each for each in list_messages(service) if "no checkpoints" in each]) == 1
