"""What the API shows of jobs and sites: the store's word joined with the engines' own."""

from __future__ import annotations

import threading
from collections.abc import Mapping

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
_NEVER = (float("-inf"), Observation({}))
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


class Views:
    """Renders jobs and sites. Engines are asked at most once a second, whoever looks."""

    def __init__(self, records: Records, connections: Connections, changes: Changes, clock: Clock):
        self._records = records
        self._connections = connections
        self._changes = changes
        self._clock = clock
        self._lock = threading.Lock()
        self._looks: dict[str, tuple[float, Observation]] = {}

    def observation(self, sites: set[str]) -> Observation:
        """Engines of `sites`, each at most a second old."""
        now = self._clock.monotonic()
        with self._lock:
            fresh = max(now - _FRESH_S, self._changes.touched)
            stale = {site for site in sites if self._looks.get(site, _NEVER)[0] <= fresh}
            if stale:
                seen = observe(self._connections, stale)
                for site in stale:
                    self._looks[site] = (now, seen)
            looks = {site: self._looks[site][1] for site in sites}
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
        sites = {deployed.job.site for deployed in inventory.jobs.values()}
        observed = self.observation(sites & self._records.sites().keys())
        engine_sites = {s.spe.address: s.name for s in self._records.sites().values()}
        shown = []
        for name, description in descriptions.items():
            deployed = inventory.jobs.get(name)
            site = description.site or engine_sites.get(description.spe_address or "")
            shown.append(
                {
                    **dump_job(description),
                    "composition": composition,
                    "revision": revision,
                    "site": deployed.job.site if deployed else site,
                    "state": self._state(name, description, deployed, running, observed, errors),
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
            operations = [o.to_json() for o in running.change.operations]
        elif last_change is not None:
            operations = (self._records.change(last_change) or {}).get("operations", [])
        else:
            operations = []
        return {
            str(o["job_name"]): str(o["error"])
            for o in operations
            if o["error"] and o["state"] in ("failed", "blocked") and o["job_name"]
        }

    def _state(
        self,
        name: str,
        description: JobDescription,
        deployed: Deployed | None,
        running: Running | None,
        observed: Observation,
        errors: Mapping[str, str],
    ) -> str:
        changing = _under_change(name, running)
        if changing is not None:
            return changing
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


def _under_change(name: str, running: Running | None) -> str | None:
    if running is None:
        return None
    operations = [o for o in running.change.operations if o.step.operation.job_name == name]
    if all(o.state.over for o in operations):
        return None
    if any(o.state is OperationState.BLOCKED for o in operations):
        return "unreachable"
    if all(o.state is OperationState.PENDING for o in operations):
        return "pending" if _action(name, running) is Action.ADD else None
    return _UNDER_CHANGE.get(_action(name, running))


def _action(name: str, running: Running) -> Action:
    return next(
        (c.action for c in running.change.plan.jobs if c.job_name == name), Action.UNCHANGED
    )
