"""Readers of one link, and what has become of them, for the planner's tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import Any

from speck.deploy.planner.situation import Outside
from speck.model.composition import Composition
from speck.model.ids import source_client_id
from speck.model.incarnation import EndState, Inventory, Session
from speck.model.job import Job
from speck.model.link import Link
from speck.model.link_operations import Drain, HandOver
from speck.model.observation import Observation, TakenEpoch
from speck.model.plan import Plan
from tests.unit.deploy.planner.plans import INSTALLATION, job, plan_composition, running

FEED = job("feed", "edge-a/in", "edge-a/T")
TAKEN = (TakenEpoch("01234567-feed", 1 << 32, 4),)


def reader(name: str, sink: str = "cloud/x", **more: object) -> Job:
    """A reader of the link that FEED writes to."""
    return job(name, "edge-a/T", sink, **more)  # type: ignore[arg-type]


OLD, NEW = reader("old"), reader("new")
FOREIGN = {"args": ("--in={source_topic}",)}


def client_id(of: Job) -> str:
    return source_client_id(INSTALLATION, of.job_name, of.source)


def session(of: Job, **more: Any) -> Session:
    return Session(client_id(of), of.source, of.source_site, of.job_name, **more)


def with_sessions(inventory: Inventory, *sessions: Session) -> Inventory:
    """Put in place of those of the same client id, or added."""
    by_client = {s.client_id: s for s in (*inventory.sessions, *sessions)}
    return replace(inventory, sessions=tuple(by_client.values()))


def end_jobs(inventory: Inventory, *names: str) -> Inventory:
    """With these jobs stopped by an earlier change."""
    jobs = dict(inventory.jobs)
    for name in names:
        jobs[name] = replace(jobs[name], end=EndState.ENDED, savepoint="file:/s")
    return replace(inventory, jobs=jobs)


def forget(inventory: Inventory, *names: str) -> Inventory:
    """With these jobs stopped, at a broker that may have forgotten what they had taken."""
    ended = end_jobs(inventory, *names)
    forgotten = {name: ended.jobs[name].forgotten() for name in names}
    return replace(ended, jobs={**ended.jobs, **forgotten})


def observe_lost(inventory: Inventory, name: str) -> Observation:
    """All run but one, which its engine does not know any more."""
    others = {n: d for n, d in inventory.jobs.items() if n != name}
    return running(replace(inventory, jobs=others))


def ask_to_stop(inventory: Inventory, name: str) -> Inventory:
    """With a job that an earlier change has asked to stop, without an answer."""
    stopping = replace(inventory.jobs[name], end=EndState.STOPPING)
    return replace(inventory, jobs={**inventory.jobs, name: stopping})


def list_handovers(plan: Plan) -> dict[str, str]:
    """Follower -> the reader that it follows."""
    operations = (step.operation for step in plan.steps)
    return {o.job_name: o.former_job for o in operations if isinstance(o, HandOver)}


def find_line(plan: Plan, operation: str) -> str:
    """The line of the step that does `operation`."""
    (text,) = (str(s) for s in plan.steps if str(s.operation) == operation)
    return text


def find_drain(plan: Plan) -> Drain:
    (drain,) = (s.operation for s in plan.steps if isinstance(s.operation, Drain))
    return drain


def steps_before(plan: Plan) -> dict[int, set[int]]:
    """Of each step all that come before it, near or far. Raises CycleError if there is a circle."""
    direct = {step.id: set(step.after) for step in plan.steps}
    before: dict[int, set[int]] = {}
    for step_id in TopologicalSorter(direct).static_order():
        before[step_id] = direct[step_id].union(*(before[one] for one in direct[step_id]))
    return before


A = FEED
B = job("B", "edge-a/T", "cloud/out", site="cloud")
C = job("C", "edge-a/T", "edge-a/T2")
B2 = job("B", "edge-a/T2", "cloud/out", site="cloud")


def plan_jobs_beside(
    *jobs: Job,
    inventory: Inventory,
    inputs: Sequence[Link] = (),
    outside_sinks: Mapping[Link, Sequence[str]] | None = None,
) -> Plan:
    """Planned where links are fed from outside, or by jobs of other compositions."""
    desired = Composition("c", jobs, inputs=tuple(inputs))
    return plan_composition(desired, inventory, outside=Outside(sinks=outside_sinks or {}))


OTHER = reader("other", "cloud/z")
