"""What the API shows of jobs and sites: the store's word joined with the engines' own."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from speck.change import OperationState
from speck.clock import Clock
from speck.connections import Connections
from speck.inventory import Deployed
from speck.model import DesiredState, JobDescription, JsonObject, Site
from speck.observed import Observation, RunState
from speck.observer import observe
from speck.plan import Action
from speck.records import Records, scope_of
from speck.schema import dump_job, dump_site
from speck.service.changes import Changes, Running

_FRESH_S = 1.0
_UNDER_CHANGE = {
    Action.ADD: "deploying",
    Action.UPDATE: "updating",
    Action.MOVE: "moving",
    Action.REMOVE: "stopping",
}
_ENGINE_WORDS = {
    RunState.STARTING: "deploying",
    RunState.RUNNING: "running",
    RunState.RESTARTING: "stalled",
    RunState.STOPPING: "stopping",
    RunState.FINISHED: "stopped",
    RunState.CANCELED: "stopped",
    RunState.FAILED: "failed",
}


@dataclass(frozen=True, slots=True)
class _Look:
    begun: float
    ended: float
    seen: Observation


class Views:
    """Renders jobs and sites. Engines are asked at most once a second, whoever looks."""

    def __init__(self, records: Records, connections: Connections, changes: Changes, clock: Clock):
        self._records = records
        self._connections = connections
        self._changes = changes
        self._clock = clock
        self._lock = threading.Lock()
        self._looks: dict[str, _Look] = {}

    def observation(self, sites: set[str]) -> Observation:
        """Engines of `sites`, each at most a second old."""
        with self._lock:
            now = self._clock.monotonic()
            touched = self._changes.touched
            stale = {
                site
                for site in sites
                if (look := self._looks.get(site)) is None
                or look.begun <= touched
                or look.ended <= now - _FRESH_S
            }
            if stale:
                seen = observe(self._connections, stale)
                look = _Look(now, self._clock.monotonic(), seen)
                self._looks |= dict.fromkeys(stale, look)
            looks = {site: self._looks[site].seen for site in sites}
        return Observation(
            engines={s: o.engines[s] for s, o in looks.items() if s in o.engines},
            unreachable={s: o.unreachable[s] for s, o in looks.items() if s in o.unreachable},
        )

    def jobs(
        self,
        descriptions: Mapping[str, JobDescription],
        composition: str | None,
        revision: int | None,
        *,
        last_change: str | None = None,
    ) -> list[JsonObject]:
        """The Job shape of each description of one scope, and of what is still being removed."""
        if not descriptions and composition is None:
            return []
        scope = scope_of(composition, next(iter(descriptions), None))
        inventory = self._records.inventory(scope)
        running = self._changes.under_way(scope)
        errors = self._errors(running, last_change)
        changing = _states_under_change(running) if running else {}
        known_sites = self._records.sites()
        sites = {deployed.job.site for deployed in inventory.jobs.values()}
        observed = self.observation(sites & known_sites.keys())
        engine_sites = {s.spe.address: s.name for s in known_sites.values()}
        shown = []
        for name, description in descriptions.items():
            deployed = inventory.jobs.get(name)
            site = description.site or engine_sites.get(description.engine_address or "")
            shown.append(
                {
                    **dump_job(description),
                    "composition": composition,
                    "revision": revision,
                    "site": deployed.job.site if deployed else site,
                    "state": changing.get(name)
                    or _state(name, description, deployed, observed, errors),
                    "engine_job_id": deployed.engine_job_id if deployed else None,
                    "attempt": deployed.attempt if deployed else None,
                    "error": errors.get(name),
                }
            )
        return shown

    def site(self, site: Site, observed: Observation) -> JsonObject:
        """The Site shape."""
        view = observed.engines.get(site.name)
        beat = self._records.store.get(f"beat/{site.name}")
        slots = view.slots if view else None
        return {
            **dump_site(site),
            "state": "up" if view else "unreachable",
            "slots": {
                "total": slots.total if slots else None,
                "free": slots.free if slots else None,
            },
            "engine_version": view.version if view else None,
            "last_seen": beat["at"] if beat else None,
        }

    def _errors(self, running: Running | None, last_change: str | None) -> dict[str, str]:
        """Job name -> the error of the newest change that concerns it."""
        if running is not None:
            operations = [o.to_json() for o in running.change.operations if o.error]
        elif last_change is not None:
            operations = [o for o in self._records.operations(last_change) if o["error"]]
        else:
            operations = []
        silent = {o["id"]: o["error"] for o in operations if o["state"] == "blocked"}
        found: dict[str, str] = {}
        for state in ("skipped", "failed", "blocked"):  # the later the nearer to the cause
            found |= {
                str(o["job_name"]): str(o["error"])
                for o in operations
                if o["state"] == state and o["job_name"]
            }
        if running is not None and silent:
            for o in running.change.operations:
                waits_for = [silent[step] for step in o.step.after if step in silent]
                if waits_for and o.step.operation.job_name:
                    found.setdefault(o.step.operation.job_name, str(waits_for[0]))
        return found


def _state(
    name: str,
    description: JobDescription,
    deployed: Deployed | None,
    observed: Observation,
    errors: Mapping[str, str],
) -> str:
    """The state of a job that no change is at work on."""
    if deployed is None or (not deployed.confirmed and deployed.base is None):
        if name in errors:
            return "failed"
        if deployed is None:
            return "stopped" if description.state is DesiredState.STOPPED else "pending"
    if deployed.ended:
        return "failed" if name in errors else "stopped"
    if deployed.job.site not in observed.engines:
        return "unreachable"
    seen = observed.job(deployed.job.site, deployed.engine_job_id)
    return _ENGINE_WORDS[seen.state] if seen else "lost"


def _states_under_change(running: Running) -> dict[str, str]:
    """The states of the jobs that a change is at work on."""
    operations: dict[str, set[OperationState]] = defaultdict(set)
    silent = {
        record.step.id
        for record in running.change.operations
        if record.state is OperationState.BLOCKED
    }
    for record in running.change.operations:
        if record.step.operation.job_name:
            states = operations[record.step.operation.job_name]
            states.add(record.state)
            if silent.intersection(record.step.after):  # a jar for all jobs cannot be sent
                states.add(OperationState.BLOCKED)
    actions = {change.job_name: change.action for change in running.change.plan.jobs}
    found = {}
    for name, states in operations.items():
        state = _under_change(states, actions.get(name, Action.UNCHANGED))
        if state is not None:
            found[name] = state
    return found


def _under_change(states: set[OperationState], action: Action) -> str | None:
    if all(state.over for state in states):
        return None
    if OperationState.BLOCKED in states:
        return "unreachable"
    if states == {OperationState.PENDING}:
        return "pending" if action is Action.ADD else None
    return _UNDER_CHANGE.get(action)
