"""Jobs and plans of the planner's tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from speck.deploy.planner import plan as make_plan
from speck.deploy.planner.situation import Conditions, Outside
from speck.model.composition import Composition
from speck.model.ids import engine_job_id, sink_client_id, source_client_id
from speck.model.incarnation import Incarnation, Inventory, Session, StartState
from speck.model.job import Job
from speck.model.job_operations import Return, Start
from speck.model.link import Link
from speck.model.link_operations import DRAIN_LIMIT_S
from speck.model.observation import EngineJob, EngineView, Observation, RunState, Slots
from speck.model.plan import Plan
from tests.sample_job import make_job

INSTALLATION = "0123456789abcdef"
JAR = "a" * 64


def job(name: str, source: str, sink: str, site: str = "edge-a", **more: object) -> Job:
    """`source` and `sink` are `site/topic`."""
    links = [Link(s, t) for s, t in (source.split("/"), sink.split("/"))]
    values = {"entry_class": "package.ExampleJob", "artifact": JAR, **more}
    return make_job(name, links[0], links[1], site, **values)


def deployed(*jobs: Job) -> Inventory:
    """An inventory in which every job runs as its first attempt."""
    incarnations = {
        j.job_name: Incarnation(
            j, 1, engine_job_id(INSTALLATION, "c", j.job_name, 1, 1), start=StartState.CONFIRMED
        )
        for j in jobs
    }
    sessions = tuple(
        Session(
            source_client_id(INSTALLATION, j.job_name, j.source),
            j.source,
            j.source_site,
            j.job_name,
        )
        for j in jobs
    )
    return Inventory(incarnations, sessions, {j.job_name: 1 for j in jobs})


def running(inventory: Inventory, free: int = 8, **states: RunState) -> Observation:
    """Every incarnation runs, or is in the state given by its name; all sites answer."""
    sites: dict[str, dict[str, EngineJob]] = {"edge-a": {}, "edge-b": {}, "cloud": {}}
    for name, d in inventory.jobs.items():
        state = states.get(name, RunState.RUNNING)
        sites[d.job.site][d.engine_job_id] = EngineJob(d.engine_job_id, name, state, 1, 1)
    return Observation(
        {site: EngineView("2.3.0", Slots(8, free), jobs) for site, jobs in sites.items()}
    )


def plan_jobs(
    inventory: Inventory, *jobs: Job, observed: Observation | None = None, **options: Any
) -> Plan:
    return plan_composition(Composition("c", jobs), inventory, observed, **options)


def plan_composition(
    desired: Composition,
    inventory: Inventory,
    observation: Observation | None = None,
    outside: Outside = Outside(),  # noqa: B008 (frozen)
    *,
    drop_queues: bool = False,
    drain_limit_s: float = DRAIN_LIMIT_S,
    **conditions: Any,
) -> Plan:
    """The plan of a composition whose jobs run unless something else is observed."""
    observed = observation or running(inventory)
    limit_s = drain_limit_s if drop_queues else None
    asked = Conditions(limit_s, **conditions)
    return make_plan(desired, inventory, observed, INSTALLATION, outside, asked)


def text(plan: Plan) -> str:
    return "\n" + str(plan) + "\n"


A = job("A", "edge-a/T-1", "cloud/T-2")
B = job("B", "cloud/T-2", "cloud/T-3", site="cloud")


def with_open_start(new: Job, **more: Any) -> Inventory:
    """A's first start was asked for, and no answer was heard."""
    inventory = deployed(new)
    incarnation = replace(inventory.jobs["A"], **{"start": StartState.REQUESTED, **more})
    return replace(inventory, jobs={"A": incarnation})


NOT_LISTED = running(Inventory())


def sink_of(new: Job) -> str:
    return sink_client_id(INSTALLATION, new.job_name, new.source, new.sink)


def fed_by(topic: str) -> Job:
    return replace(A, source=Link("edge-a", topic))


def former_of(operation: Start | Return) -> tuple[str, ...]:
    return tuple(former.client_id for former in operation.former_sinks)


def start_of(plan: Plan, job_name: str) -> Start:
    starts = (s.operation for s in plan.steps if isinstance(s.operation, Start))
    return next(start for start in starts if start.job_name == job_name)


def moved(old: Job, site: str) -> Job:
    return replace(old, site=site)
