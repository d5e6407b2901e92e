"""What the API shows of jobs and sites: stored records combined with the engines' answers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from speck.clock import Clock
from speck.deploy.changes import Changes, Running
from speck.model.change import ChangeState, OperationState
from speck.model.composition import visible_name
from speck.model.incarnation import Incarnation
from speck.model.job import DesiredState, Job, JobDescription
from speck.model.job_change import Action
from speck.model.observation import EngineView, RunState
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.monitor.health import Health
from speck.monitor.health_board import HealthBoard, JobHealth
from speck.sites.poll_cache import PATIENCE_S, Poll, fresh_for
from speck.sites.site_polls import SitePolls
from speck.spec.addresses import engine_address
from speck.spec.jars import ARTIFACT
from speck.spec.schema import dump_job
from speck.spec.site_schema import dump_site
from speck.store.records import Records

_UNDER_CHANGE = {
    Action.ADD: "deploying",
    Action.UPDATE: "updating",
    Action.MOVE: "moving",
    Action.REMOVE: "stopping",
}
_ENGINE_WORDS = {
    RunState.STARTING: "deploying",
    RunState.RUNNING: "running",
    RunState.RESTARTING: "restarting",
    RunState.STOPPING: "stopping",
    RunState.FINISHED: "finished",
    RunState.CANCELED: "stopped",
    RunState.FAILED: "failed",
}
_BETTER_WORDS: Mapping[tuple[RunState, Health | None], str] = {
    (RunState.RUNNING, Health.STALLED): "stalled",
    (RunState.RUNNING, Health.RESTARTING): "restarting",
    (RunState.STARTING, Health.RESTARTING): "restarting",
    (RunState.FINISHED, Health.ENDED): "stopped",  # with a savepoint, at its engine
}
"""What the watch knows better than a single answer of the engine."""

_WATCHED_S = 6.0
"""How old polls of several sites may be when there are many: a little more than the watch needs for
a round."""
_CHANGES_KEPT = 1000
"""How many changes' errors are kept."""


def is_in_state(job: JsonObject, state: str | None) -> bool:
    """Whether a rendered job is to be listed for a state (None: any): a job that keeps failing is
    among the failed ones."""
    states = ("failed", "restarting") if state == "failed" else (state,)
    return state is None or job["state"] in states


class StatusViews:
    """Renders jobs and sites."""

    def __init__(
        self, records: Records, changes: Changes, clock: Clock, polls: SitePolls, board: HealthBoard
    ):
        self._records = records
        self._changes = changes
        self._clock = clock
        self._polls = polls
        self._board = board
        self._failed: dict[str, list[JsonObject]] = {}

    def jobs(
        self,
        descriptions: Mapping[str, JobDescription],
        composition: str,
        revision: int,
        *,
        last_change: str | None = None,
        only: Collection[str] | None = None,
        fresh_s: float = 0.0,
        until: float | None = None,
    ) -> list[JsonObject]:
        """The Job shape of each job of a composition, and of what is still being removed;
        `only` of some names. `fresh_s`: looks that old are good here, and always those that are
        for so many sites; they are waited for `until` (monotonic) at most."""
        rendered = []
        for description, incarnation, state, error, failures, site in self._judge(
            descriptions, composition, last_change, only, fresh_s, until
        ):
            rendered.append(
                {
                    **dump_job(description),
                    "composition": visible_name(composition),
                    "revision": revision,
                    "site": site,
                    "state": state,
                    "engine_job_id": incarnation.engine_job_id if incarnation else None,
                    "attempt": incarnation.attempt if incarnation else None,
                    "error": error,
                    "failures": failures,
                    **asdict(self._board.losses(description.job_name)),
                }
            )
        return rendered

    def count_states(
        self,
        descriptions: Mapping[str, JobDescription],
        composition: str,
        last_change: str | None,
        fresh_s: float,
        until: float,
    ) -> Counter[str]:
        """How many of the jobs that `jobs` would list are in each state."""
        jobs = self._judge(descriptions, composition, last_change, None, fresh_s, until)
        return Counter(job[2] for job in jobs)

    def _judge(
        self,
        descriptions: Mapping[str, JobDescription],
        composition: str,
        last_change: str | None,
        only: Collection[str] | None,
        fresh_s: float,
        until: float | None,
    ) -> Iterator[tuple[JobDescription, Incarnation | None, str, str | None, int, str | None]]:
        """(description, incarnation, state, error, failures, site) of each job; see `jobs`."""
        inventory = self._records.deployed.incarnations(composition)
        if only is not None:
            descriptions = {name: descriptions[name] for name in only if name in descriptions}
            inventory = {name: inventory[name] for name in only if name in inventory}
        running = self._changes.under_way(composition)
        errors = self._errors(running, last_change)
        changing = _states_under_change(running) if running else {}
        known_sites = self._records.sites()
        sites = {incarnation.job.site for incarnation in inventory.values()}
        fresh_s = max(fresh_s, fresh_for(len(sites)))
        if len(sites) > 1 and self._polls.polling.apart:
            fresh_s = max(fresh_s, _WATCHED_S)  # the watch polls all sites anyway
        left_s = PATIENCE_S if until is None else max(0.0, until - self._clock.monotonic())
        polls = self._polls.engines.poll(sites & known_sites.keys(), fresh_s, left_s)
        engine_sites = {s.spe.address: s.name for s in known_sites.values() if s.spe.address}
        removed = _jobs_removed_by(running)
        leftover = {
            name: _describe(incarnation.job)
            for name, incarnation in inventory.items()
            if name not in descriptions
        }
        for name, description in {**descriptions, **leftover}.items():
            incarnation = inventory.get(name)
            if incarnation is None and name in removed:
                continue
            health = (
                self._board.job(composition, incarnation) if incarnation and not running else None
            )
            site = description.site or engine_sites.get(engine_address(description) or "")
            yield (
                description,
                incarnation,
                changing.get(name) or _state(name, description, incarnation, polls, errors, health),
                errors.get(name)
                or (health.reason if health else None)
                or self._board.link_problem(composition, name),
                health.failures if health else 0,
                incarnation.job.site if incarnation else site,
            )

    def sites(self, sites: Collection[Site]) -> list[JsonObject]:
        """The Site shape of each. All are polled together: one after another, the first polls
        would be out of date before the last ones are rendered."""
        names = [site.name for site in sites]
        fresh_s, until = fresh_for(len(names)), self._clock.monotonic() + PATIENCE_S
        numbers, reached = self._polls.broker_numbers, self._polls.brokers
        brokers: dict[str, Poll[Any]] = {**numbers.find_fresh(names, fresh_s)}
        mute = numbers.find_failed(names)  # it may accept connections, and answer nothing else
        others = [name for name in names if name not in brokers and name not in mute]
        numbers.begin(mute, fresh_s)
        reached.begin(others, fresh_s)
        engines = self._polls.engines.poll(names, fresh_s, PATIENCE_S)
        brokers |= reached.poll(others, fresh_s, until - self._clock.monotonic())
        brokers |= numbers.poll(mute, fresh_s, until - self._clock.monotonic())
        return [self._site(s, engines.get(s.name), brokers.get(s.name)) for s in sites]

    def unpolled_site(self, site: Site) -> JsonObject:
        """The Site shape of a site in state unknown, without a call to its engine or broker."""
        return self._site(site, None, None)

    def _site(
        self, site: Site, engine: Poll[EngineView] | None, broker: Poll[Any] | None
    ) -> JsonObject:
        view = engine.answer if engine else None
        beat = self._records.heartbeats.get(site.name)
        slots = view.slots if view else None
        return {
            **dump_site(site),
            "state": _site_state(engine, broker),
            "error": _site_error(engine, broker),
            "slots": {
                "total": slots.total if slots else None,
                "free": slots.free if slots else None,
            },
            "engine_version": view.version if view else None,
            "last_seen": beat["at"] if beat else None,
            "messages_lost": self._board.messages_lost(site.name),
        }

    def _errors(self, running: Running | None, last_change: str | None) -> dict[str, str]:
        """Job name -> the error of the newest change that concerns it."""
        if running is not None:
            operations = [o.to_json() for o in running.change.operations if o.error]
        else:
            operations = self._errors_of(last_change) if last_change is not None else []
        silent = {o["id"]: o["error"] for o in operations if o["state"] == "blocked"}
        errors: dict[str, str] = {}
        for state in (
            "running",
            "skipped",
            "failed",
            "blocked",
        ):  # the later the nearer to the cause
            errors |= {
                str(o["job_name"]): str(o["error"])
                for o in operations
                if o["state"] == state and o["job_name"]
            }
        if running is not None and silent:
            for o in running.change.operations:
                waits_for = [silent[step] for step in o.step.after if step in silent]
                if waits_for and o.step.operation.job_name:
                    errors.setdefault(o.step.operation.job_name, str(waits_for[0]))
        return errors

    def _errors_of(self, change_id: str) -> list[JsonObject]:
        """Operations of a change with an error; of one that is over they are read once."""
        known = self._failed.get(change_id)
        if known is not None:
            return known
        head = self._records.change_heads.get(change_id)
        failed = [o for o in self._records.operations(change_id) if o["error"]]
        if head is not None and ChangeState(head["state"]).over:
            if len(self._failed) >= _CHANGES_KEPT:
                self._failed.clear()
            self._failed[change_id] = failed
        return failed


def _state(
    name: str,
    description: JobDescription,
    incarnation: Incarnation | None,
    polls: Mapping[str, Poll[EngineView]],
    errors: Mapping[str, str],
    health: JobHealth | None,
) -> str:
    """The state of a job that no change is at work on."""
    if incarnation is None or (not incarnation.confirmed and incarnation.base is None):
        if name in errors:
            return "failed"
        if incarnation is None:
            return "stopped" if description.state is DesiredState.STOPPED else "pending"
    if incarnation.ended:
        ended = "finished" if incarnation.finished else "stopped"
        return "failed" if name in errors else ended
    if incarnation.void:
        return "failed"
    poll = polls.get(incarnation.job.site)
    if poll is None or poll.answer is None:
        return "unreachable"
    observed = poll.answer.jobs.get(incarnation.engine_job_id)
    if observed is None and not poll.current and incarnation.confirmed:
        return "running"  # the poll may be older than its start, which speck has observed
    if observed is None:
        return "failed" if name in errors and not incarnation.confirmed else "lost"
    return (
        _BETTER_WORDS.get((observed.state, health.health if health else None))
        or (_ENGINE_WORDS[observed.state])
    )


def _site_state(engine: Poll[EngineView] | None, broker: Poll[str] | None) -> str:
    if engine is None or broker is None:
        return "unknown"
    answers = [poll.answer is not None for poll in (engine, broker)]
    return "up" if all(answers) else "degraded" if any(answers) else "unreachable"


def _site_error(engine: Poll[EngineView] | None, broker: Poll[Any] | None) -> str | None:
    """The errors of the parts that do not answer."""
    polls = {"engine": engine, "broker": broker}
    errors = [f"{part}: {poll.error}" for part, poll in polls.items() if poll and poll.error]
    return "; ".join(errors) or None


def _jobs_removed_by(running: Running | None) -> set[str]:
    if running is None:
        return set()
    changes = running.change.plan.jobs
    return {change.job_name for change in changes if change.action is Action.REMOVE}


def _describe(job: Job) -> JobDescription:
    """A description of a job as it runs, though no revision names it any more."""
    return JobDescription(
        job_name=job.job_name,
        source_topic=job.source.topic,
        sink_topic=job.sink.topic,
        entry_class=job.entry_class,
        job_path=f"{ARTIFACT}{job.jar}",
        site=job.site,
        source_site=job.source_site,
        sink_site=job.sink_site,
        **job.options(),
    )


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
            if silent.intersection(record.step.after):  # e.g. the upload of a shared jar
                states.add(OperationState.BLOCKED)
    actions = {change.job_name: change.action for change in running.change.plan.jobs}
    by_job = {}
    for name, states in operations.items():
        state = _under_change(states, actions.get(name, Action.UNCHANGED))
        if state is not None:
            by_job[name] = state
    return by_job


def _under_change(states: set[OperationState], action: Action) -> str | None:
    if all(state.over for state in states):
        return None
    if OperationState.BLOCKED in states:
        return "unreachable"
    if states == {OperationState.PENDING}:
        return "pending" if action is Action.ADD else None
    return _UNDER_CHANGE.get(action)
