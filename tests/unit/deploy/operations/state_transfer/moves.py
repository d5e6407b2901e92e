"""A job that moves between memory sites that share no storage."""

from __future__ import annotations

from typing import Any

from binders.memory import World
from speck.model.change import ChangeReport
from speck.model.plan_outline import OperationOutcome
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import DONE, composition, engine
from tests.service_helpers import job_body as job
from tests.waiting import wait_for

SOON = ApplyRequest(wait_s=0.05)
SITES = ("edge-a", "edge-b", "cloud")


def at(site: str, **more: Any) -> JsonObject:
    """A at a site, with its links at edge-a."""
    return job("A", site, source_site="edge-a", sink_site="edge-a", **more)


def apply(service: Service, *jobs: JsonObject, state: str = "done") -> ChangeReport:
    body = service.compositions.apply(composition(*jobs), DONE)
    assert body.change is not None
    change = service.changes.get(body.change)
    assert change.state == state, change
    return change


def begin(service: Service, body: JsonObject) -> str:
    """Apply a job without waiting for its end; the change."""
    change: str = service.compositions.apply(composition(body), SOON).change
    return change


def await_state(service: Service, change: str, state: str) -> None:
    wait_for(lambda: service.changes.get(change).state == state, f"{change} to be {state}")


def feed(*payloads: bytes) -> None:
    World.current().feed("tcp://edge-a.test:1883", "A-in", payloads, "sensor")
    World.current().pump()


def running() -> dict[str, Any]:
    """The one incarnation of A, by its site."""
    jobs = [(site, job) for site in SITES for job in engine(site).running()]
    assert len(jobs) == 1
    return dict(jobs)


def deployed(service: Service) -> Any:
    return service.records.inventory("c").jobs["A"]


def operation(service: Service, change: str, kind: str) -> OperationOutcome:
    (outcome,) = (o for o in service.changes.get(change).operations if o.kind == kind)
    return outcome
