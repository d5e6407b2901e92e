"""Short words for what tests of the use cases say often."""

from __future__ import annotations

from typing import Any

from binders.memory import World
from binders.memory.queues import Queues
from binders.memory.slots import SlotPool
from speck.model.composition import CompositionDescription, Head, visible_name
from speck.model.finding import PartFinding
from speck.model.job import JobDescription
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.schema import composition_from_data, job_from_data
from speck.store.records import Records
from tests.memory_fog import FAST, HASTY

LIMIT_S = 120.0
DONE = ApplyRequest(wait_s=LIMIT_S)


def engine(site: str) -> SlotPool:
    return World.current().engine(f"http://{site}.test:8081")


def broker(site: str) -> Queues:
    return World.current().broker(f"tcp://{site}.test:1883")


def job_body(name: str, site: str = "edge-a", **more: Any) -> JsonObject:
    """A job that reads `<name>-in` and writes `<name>-out` at its own site."""
    return {
        "job_name": name,
        "site": site,
        "source_topic": f"{name}-in",
        "sink_topic": f"{name}-out",
        "entry_class": "package.ExampleJob",
        "job_path": "test-1.jar",
        **more,
    }


def job(name: str, site: str = "edge-a", **more: Any) -> JobDescription:
    return job_from_data(job_body(name, site, **more))


def composition(*jobs: JsonObject, name: str = "c", **more: Any) -> CompositionDescription:
    return composition_from_data({"name": name, "jobs": list(jobs), **more})


def states(service: Service) -> dict[str, str]:
    """The state of each job, by its name."""
    return {job.job_name: job.state for job in service.jobs.all()}


def findings_but_of_tls(service: Service, site: str) -> list[PartFinding]:
    """The findings of a check; sites in memory are plain, and that is not what is tested."""
    findings = service.sites.check(site)
    return [finding for finding in findings if finding.setting != "TLS"]


def reopened(service: Service) -> Service:
    """The service after a stop and a new start."""
    service.close()
    return Service(service.config, bounds=FAST, patience=HASTY)


def everything(service: Service) -> dict[str, JsonObject]:
    """All records but the trail: events, changes, and the numbers that only grow."""
    trail = ("event/", "change/", "op/", "att/", "artifact/")
    heads = service.records.compositions.last_heads()
    numbers = {f"head/{head.name}" for head in heads if _is_gone(head)}
    return {
        key: record
        for key, record in service.records.store.scan("")
        if not key.startswith(trail) and key not in numbers
    }


def list_stored_jobs(records: Records) -> set[str]:
    """Engine ids of the incarnations that are written down, with those before them."""
    names: set[str] = set()
    for deployed in records.incarnations.all().values():
        before = deployed
        while before is not None:
            names.add(before.engine_job_id)
            before = before.base
    return names


def _is_gone(head: Head) -> bool:
    """Whether nothing is left of a job posted alone but the number of its last revision."""
    return head.deleted and visible_name(head.name) is None


def look_anew(service: Service) -> None:
    """Poll all engines, and let these polls expire, as they do a second later."""
    poll_engines(service)
    service.changes.touch()


def poll_engines(service: Service) -> None:
    """Poll all engines now, however often: callers of the API have to wait for a second."""
    service.polls.engines.poll(service.records.sites.all(), fresh_s=0.0)
