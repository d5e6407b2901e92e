"""The situation of a plan: what is wanted, what is there, and what follows from both.

A value that all later stages read and none changes. What follows from it is computed once, when it
is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from speck.deploy.planner.ways import Ways, group
from speck.model.composition import Composition
from speck.model.engines import EngineAt
from speck.model.ids import engine_job_id, source_client_id
from speck.model.incarnation import Incarnation, Inventory, Session
from speck.model.job import Job
from speck.model.link import Link
from speck.model.observation import Observation

Ends = tuple[Link, tuple[Link, ...]]
"""The source and the port of a job."""


@dataclass(frozen=True)
class Conditions:
    """What the change may do and has done, and what sites cannot do."""

    limit_s: float | None = None
    """With the user's consent to drop queues: for how many seconds a reader is drained (0: it
    leaves its link at once). What it has not taken by then is dropped, and so is what waits for a
    reader that is outside speck, does not run, or cannot be reached."""
    stuck_jobs: frozenset[str] = frozenset()
    """Jobs whose engine lists them, but which take nothing: in a crash loop, or stalled."""
    readers_stopped: frozenset[str] = frozenset()
    """Jobs that ran when this change was accepted, and that it has stopped: what came afterwards to
    the links that they have left is not a queue to ask about."""
    stopped_jobs: frozenset[str] = frozenset()
    """Jobs that this change has already stopped, for starts that have not succeeded: the former
    incarnation comes back if the start fails."""
    cannot_try: frozenset[EngineAt] = frozenset()
    """Engines that cannot run a `main` alone."""
    cannot_save: frozenset[EngineAt] = frozenset()
    """Engines that cannot save states."""
    apart: frozenset[tuple[str, str]] = frozenset()
    """Pairs (from, to) of sites between which state must be transferred."""
    leave: frozenset[str] = frozenset()
    """Jobs that stay as they are deployed, whatever is desired."""
    has_read: frozenset[str] = frozenset()
    """Client ids of sessions that this change has read first, and does not read again; engine job
    ids of readers that were to say again what they had taken."""

    @property
    def drops(self) -> bool:
        """Whether the user has allowed to drop queues."""
        return self.limit_s is not None

    @property
    def drains(self) -> bool:
        """Whether readers that leave a link take first what waits for them."""
        return self.limit_s != 0


@dataclass(frozen=True)
class Outside:
    """What jobs of other scopes read and write."""

    readers: frozenset[Link] = frozenset()
    sinks: Mapping[Link, Sequence[str]] = field(default_factory=dict)
    """Client ids of their sinks, by link."""


@dataclass(frozen=True)
class PresentSessions:
    """The sessions that exist, indexed."""

    sessions: tuple[Session, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Session]:
        return {s.client_id: s for s in self.sessions}

    @cached_property
    def on_link(self) -> Mapping[Link, Sequence[Session]]:
        return group((s.link, s) for s in self.sessions)

    @cached_property
    def by_sink(self) -> Mapping[Link, Sequence[Session]]:
        """Those whose reader writes, or was to write, to a link."""
        return group((link, s) for s in self.sessions if s.job is not None for link in s.job.port)

    @cached_property
    def usable(self) -> Mapping[str, Session]:
        return {s.client_id: s for s in self.sessions if s.usable}

    @cached_property
    def followers(self) -> Mapping[str, Sequence[Session]]:
        """Usable sessions by the client id of the session that they follow."""
        return group((s.follows, s) for s in self.usable.values() if s.follows is not None)

    @cached_property
    def instead(self) -> Mapping[str, Sequence[Session]]:
        """Usable sessions by the client id of the session from which their records are taken."""
        return group((s.instead_of, s) for s in self.usable.values() if s.instead_of is not None)

    @cached_property
    def reserved_links(self) -> frozenset[Link]:
        return frozenset(s.link for s in self.sessions if s.reserved)

    @cached_property
    def reserved_readers(self) -> frozenset[str]:
        return frozenset(s.client_id for s in self.sessions if s.reserved)

    @cached_property
    def owed(self) -> frozenset[str]:
        """Client ids of readers with numbers still owed since an earlier drain failed."""
        return frozenset(s.client_id for s in self.sessions if s.owed)


@dataclass(frozen=True)
class WantedSessions:
    """The sessions that a plan keeps or reserves, indexed; all others it releases."""

    sessions: tuple[Session, ...]
    links_read: frozenset[Link]
    """The links with a reader, in this scope or in others."""

    def __contains__(self, session: Session) -> bool:
        return (session.client_id, session.link) in self._keys

    def on_link(self, link: Link) -> Sequence[Session]:
        return self._by_link.get(link, ())

    @cached_property
    def _keys(self) -> Set[tuple[str, Link]]:
        return frozenset((session.client_id, session.link) for session in self.sessions)

    @cached_property
    def _by_link(self) -> Mapping[Link, Sequence[Session]]:
        return group((session.link, session) for session in self.sessions)

    def replaced(self, sessions: Iterable[Session]) -> WantedSessions:
        """These sessions instead; their links are read too."""
        kept = tuple(sessions)
        return WantedSessions(kept, self.links_read | {session.link for session in kept})


@dataclass(frozen=True)
class Jobs:
    """The jobs that are wanted, and those that are there, indexed."""

    desired: tuple[Job, ...]
    present: Mapping[str, Incarnation]

    @cached_property
    def wanted(self) -> Mapping[str, Job]:
        return {job.job_name: job for job in self.desired}

    @cached_property
    def present_jobs(self) -> Mapping[str, Job]:
        return {name: each.job for name, each in self.present.items()}

    @cached_property
    def producers(self) -> Mapping[Link, Sequence[Incarnation]]:
        """The present jobs that write to a link."""
        return group((link, each) for each in self.present.values() for link in each.job.port)

    @cached_property
    def readers(self) -> Mapping[Link, Sequence[Incarnation]]:
        """The present jobs that read a link."""
        return group((each.job.source, each) for each in self.present.values())

    @cached_property
    def present_ways(self) -> Ways:
        return Ways.of(each.job for each in self.present.values())

    @cached_property
    def wanted_ways(self) -> Ways:
        return Ways.of(self.wanted.values())

    @cached_property
    def ways(self) -> Ways:
        """Those of the jobs as they are there, and as they are wanted."""
        return Ways((*self.present_ways.ends, *self.wanted_ways.ends))

    @cached_property
    def writers(self) -> Mapping[Link, Sequence[Job]]:
        """The wanted jobs that write to a link."""
        return group((link, job) for job in self.wanted.values() for link in job.port)

    def wanted_with_ends(self, ends: Ends) -> Sequence[Job]:
        """The wanted jobs with these links."""
        return self._wanted_by_ends.get(ends, ())

    def present_with_ends(self, ends: Ends) -> Set[str]:
        """The names of present jobs with these links."""
        return self._present_by_ends.get(ends, frozenset())

    @cached_property
    def _wanted_by_ends(self) -> Mapping[Ends, Sequence[Job]]:
        return group((job.ends, job) for job in self.wanted.values())

    @cached_property
    def _present_by_ends(self) -> Mapping[Ends, Set[str]]:
        ends = group((each.job.ends, name) for name, each in self.present.items())
        return {key: frozenset(names) for key, names in ends.items()}


@dataclass(frozen=True)
class Situation:
    """The inputs of a plan, and what follows from them."""

    desired: Composition
    inventory: Inventory
    observation: Observation
    installation: str
    outside: Outside
    conditions: Conditions
    wanted: WantedSessions

    @cached_property
    def jobs(self) -> Jobs:
        return Jobs(self.desired.jobs, self.inventory.jobs)

    @cached_property
    def present(self) -> PresentSessions:
        return PresentSessions(self.inventory.sessions)

    @cached_property
    def links_reached(self) -> Set[Link]:
        """The links that records reach through present jobs, running or not, from outside. Jobs
        that were to run, until a change ended early, have sent nothing."""
        ways, written = self.jobs.present_ways, self.ways_ever.sinks
        unwritten = {s for s in ways.sources if s not in written and not self._was_written(s)}
        first = unwritten | {s for s in ways.sources if self.is_fed_outside(s)}
        first |= {s.link for s in self.inventory.sessions if s.owed}
        return ways.find_reached(first)

    def _was_written(self, link: Link) -> bool:
        """Whether all who wrote to a link, or were to write to it, were known when its readers'
        sessions were made: if none of them is left, nobody writes to it."""
        sessions = [s for s in self.present.on_link.get(link, ()) if s.reserved and s.job]
        return bool(sessions) and not any(s.fed_outside for s in sessions)

    @cached_property
    def ways_ever(self) -> Ways:
        """Those of all jobs as they run, were to run, or are wanted."""
        reading = Ways.of(s.job for s in self.inventory.sessions if s.job is not None)
        return Ways((*reading.ends, *self.jobs.ways.ends))

    def find_limit(self, site: str) -> float | None:
        """For how many seconds a broker is asked in vain; at once if it does not answer now."""
        conditions = self.conditions
        return 0.0 if conditions.drops and self.is_broker_silent(site) else conditions.limit_s

    def is_engine_silent(self, engine: EngineAt) -> bool:
        return not self.observation.has_answer(engine)

    def can_save(self, job: Job) -> bool:
        """Whether the engine that takes a job can save its state."""
        return job.engine not in self.conditions.cannot_save

    def is_broker_silent(self, site: str) -> bool:
        """Whether a broker that was asked has not answered."""
        return site in self.observation.unreachable and site not in self.observation.brokers

    def is_fed_outside(self, link: Link) -> bool:
        """Whether publishers outside speck, or jobs of other scopes, feed a link, too."""
        return link in self.desired.inputs or link in self.outside.sinks

    def has_foreign_producers(self, link: Link) -> bool:
        """Whether producers that this plan cannot stop feed a link."""
        return self.is_fed_outside(link) or not self.jobs.producers.get(link)

    def is_fed_later(self, link: Link) -> bool:
        """Whether anything writes to a link once the plan is carried out."""
        return link in self.jobs.writers or self.has_foreign_producers(link)

    def reading_first(self, first: Composition, rest: frozenset[str]) -> Situation:
        """The situation in which the jobs of `first` read what waits for them, and the `rest` stays
        as it is deployed."""
        conditions = replace(self.conditions, leave=rest)
        inputs = (self.inventory, self.observation, self.installation, self.outside)
        return situate(first, *inputs, conditions)

    def engine_job_id(self, job_name: str, attempt: int) -> str:
        """The id under which the engine is to run an attempt of a job."""
        generation = self.inventory.generation
        return engine_job_id(self.installation, self.desired.name, job_name, generation, attempt)


def situate(
    desired: Composition,
    inventory: Inventory,
    observation: Observation,
    installation: str,
    outside: Outside,
    conditions: Conditions,
) -> Situation:
    """The situation in which `desired` is to be made true, but for the jobs in `leave`: these stay
    as they are deployed, with their links and sessions."""
    unchanged = {n: inventory.jobs[n].job for n in conditions.leave & inventory.jobs.keys()}
    jobs = tuple(unchanged.pop(job.job_name, job) for job in desired.jobs)
    desired = replace(desired, jobs=(*jobs, *unchanged.values()))
    wanted = WantedSessions((), outside.readers).replaced(_list_sessions(desired, installation))
    return Situation(desired, inventory, observation, installation, outside, conditions, wanted)


def _list_sessions(desired: Composition, installation: str) -> list[Session]:
    jobs = [
        Session(
            source_client_id(installation, job.job_name, job.source),
            job.source,
            job.source_site,
            job.job_name,
            job=job,
        )
        for job in desired.jobs
    ]
    outside = [Session(it.client_id, it.link, it.site, None) for it in desired.readers]
    return sorted(jobs + outside, key=lambda s: (s.reader, s.client_id))
