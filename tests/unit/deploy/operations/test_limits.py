"""Limits of time are those of an engine's binder, unless the service is given others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binders.memory import MemoryEngine
from speck.binding import EngineLimits, engine_limits, kinds
from speck.deploy.operations import Patience
from speck.service import Service
from tests.memory_fog import HASTY
from tests.service_helpers import DONE, composition, engine
from tests.service_helpers import job_body as job

OWN = EngineLimits(start_s=0.05, stop_idle_s=0.05)


@pytest.fixture(params=["the binder's", "the service's"])
def service_with_limits(
    request: pytest.FixtureRequest, service: Service, monkeypatch: pytest.MonkeyPatch
) -> Service:
    patience = replace(HASTY, start_s=None, stop_idle_s=None)
    if request.param == "the binder's":
        monkeypatch.setattr(MemoryEngine, "limits", OWN, raising=False)
    else:
        patience = replace(HASTY, start_s=OWN.start_s, stop_idle_s=OWN.stop_idle_s)
    service.executions.patience = patience
    return service


def test_a_start_that_takes_longer_fails(service_with_limits: Service) -> None:
    engine("edge-a").hold_starts = True
    accepted = service_with_limits.compositions.apply(composition(job("A")), DONE)
    assert accepted.state == "failed"


def test_a_stop_that_makes_no_progress_for_longer_is_given_up(service_with_limits: Service) -> None:
    service = service_with_limits
    assert service.compositions.apply(composition(job("A")), DONE).state == "done"
    engine("edge-a").hold_savepoints = True
    changed = composition(job("A", args=["--2"]))
    assert service.compositions.apply(changed, DONE).state == "done"
    (event,) = [e.message for e in service.records.events.after() if "cancelled" in e.message]
    assert event.startswith(
        "A was cancelled, since its savepoint could not finish: it made no progress for 0 s"
    )


def test_those_of_spark_are_longer_and_all_others_are_flinks() -> None:
    assert (Patience().start_s, Patience().stop_idle_s) == (None, None)
    limits = {kind: engine_limits(kind) for kind in kinds("speck.engines")}
    assert limits.pop("spark") == EngineLimits(start_s=600.0, stop_idle_s=120.0)
    assert set(limits.values()) == {EngineLimits(start_s=180.0, stop_idle_s=30.0)}
