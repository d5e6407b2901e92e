"""The data that the parts of the planner share: the inputs, and the plan so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeVar

from speck.model.composition import Composition
from speck.model.ids import engine_job_id
from speck.model.incarnation import Incarnation, Inventory, Session
from speck.model.job import Job
from speck.model.job_change import Action
from speck.model.link import Link
from speck.model.observation import Observation
from speck.model.plan import Operation, Step

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class Decision:
    """What will happen to one job; the step ids are filled in as steps are added."""

    job_name: str
    new: Job | None
    old: Incarnation | None
    action: Action
    reason: str
    stops: bool = False
    keeps_state: bool = False
    starts: bool = False
    again: bool = False  # the earlier start is sent again, under its id
    stop_id: int | None = None
    start_id: int | None = None
    forget_id: int | None = None


@dataclass(slots=True)
class Draft:
    """A plan in the making."""

    desired: Composition
    inventory: Inventory
    observation: Observation
    installation: str
    outside_readers: frozenset[Link]
    limit_s: float | None = None
    """With the user's consent to drop queues: for how many seconds a reader is drained. What it has
    not taken by then is dropped."""
    links_fed_outside: frozenset[Link] = frozenset()
    """Links that publishers outside speck, or jobs of other scopes, feed too."""
    sinks_outside: Mapping[Link, Sequence[str]] = field(default_factory=dict)
    """Client ids of sinks of other scopes' jobs, by link."""
    wanted_jobs: dict[str, Job] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    links_read: frozenset[Link] = frozenset()
    leavers: dict[Link, list[Decision]] = field(default_factory=lambda: defaultdict(list))
    drained_links: set[Link] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    uploads: dict[tuple[str, str], int] = field(default_factory=dict)
    tries: dict[tuple[object, ...], int] = field(default_factory=dict)
    reserves: dict[Link, list[int]] = field(default_factory=lambda: defaultdict(list))
    reserve_of: dict[str, int] = field(default_factory=dict)
    predecessors: dict[str, Session] = field(default_factory=dict)
    """The session that a new reader's session follows, by the client id of the new one."""
    readers_beside: set[str] = field(default_factory=set)
    """Those of them that run beside another follower: that one takes the place of the old
    reader."""
    leaving_readers: dict[Link, list[tuple[str, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Client ids of readers that leave a link, with the steps in which they stop."""
    made_anew: dict[Link, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Steps that reserve sessions anew whose records were taken at another link."""
    renewed_sessions: set[str] = field(default_factory=set)
    """Client ids of sessions that end and are reserved again: their messages belong to another
    reader."""
    instead_of: dict[str, str] = field(default_factory=dict)
    """The session at another link from which the same records are taken until a cut is committed,
    by the client id of the one from which they are taken then."""
    exchanges: dict[Link, dict[str, Job]] = field(default_factory=lambda: defaultdict(dict))
    """Their readers as they are to run, by the link of the cut and the client id."""
    handover_of: dict[str, int] = field(default_factory=dict)
    start_of: dict[str | None, int] = field(default_factory=dict)
    """Step ids by the client id of the reader that they hand over to, or start."""
    producers: dict[Link, list[Incarnation]] = field(default_factory=lambda: defaultdict(list))
    slot_waits: dict[str, list[int]] = field(default_factory=dict)
    circuits: dict[Link, list[tuple[Link, int | None]]] = field(default_factory=dict)
    """Where messages on a link may go next: through jobs that are wanted (None) or that stop in the
    step of that id."""
    drains_of: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Steps that need the last number of a sink, by its client id."""
    releases_on: dict[Link, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Steps that release sessions: each counts what it drops by the numbers of the link's sinks."""
    readers_owed: frozenset[str] = frozenset()
    """Client ids of readers with numbers still owed since an earlier drain failed."""
    drained_readers: set[str] = field(default_factory=set)
    """Client ids of readers that take, before they stop, the messages that their followers do not
    have."""
    emptied_readers: set[str] = field(default_factory=set)
    """Client ids of readers whose session is known to be empty after their drain."""
    stopped_jobs: frozenset[str] = frozenset()
    """Jobs that this change has already stopped, for starts that have not succeeded."""
    backlog_only: bool = False
    """Whether in this plan jobs only read the messages that wait for them. All other jobs stay as
    they are."""
    handed_back: dict[str, Session] = field(default_factory=dict)
    """Those of `predecessors` that are followed in such a plan already."""
    kept_jobs: frozenset[str] = frozenset()
    """The jobs that stay as they are in such a plan."""
    first_readers: set[str] = field(default_factory=set)
    """Client ids of the sessions that such a plan reserves, or makes anew, on links that its jobs
    write to."""
    cut_links: set[Link] = field(default_factory=set)
    """Links at which several readers change at the same record."""
    cut_jobs: frozenset[str] = frozenset()
    """Jobs that stop and start again unchanged, so that all readers that leave or join their output
    change at the same record."""
    cut_between: frozenset[str] = frozenset()
    """Those of them that take everything sent to them before they stop: they keep reading the same
    link."""
    readers_stopped: frozenset[str] = frozenset()
    """Jobs that ran when this change was accepted, and that it has stopped."""
    stuck_jobs: frozenset[str] = frozenset()
    """Jobs whose engine lists them, but which take nothing: in a crash loop, or stalled."""
    together: dict[Link, frozenset[str]] = field(default_factory=dict)
    """Readers of links that are fed from outside, which stop at the same record: the slower ones
    read on to where the foremost has stopped."""
    switching: set[str] = field(default_factory=set)
    """The jobs that change their links at these records."""
    joined_links: set[Link] = field(default_factory=set)
    """Those of these links that get a reader which has not taken anything there yet."""
    cannot_try: frozenset[str] = frozenset()
    cannot_save: frozenset[str] = frozenset()
    apart: frozenset[tuple[str, str]] = frozenset()
    reserved_links: frozenset[Link] = field(init=False)
    """The links of sessions that are reserved now."""
    sessions_there: Mapping[str, Session] = field(init=False)
    """All present sessions by client id."""
    sessions_by_sink: Mapping[Link, Sequence[Session]] = field(init=False)
    """Those whose reader writes, or was to write, to a link."""
    sessions_on: Mapping[Link, Sequence[Session]] = field(init=False)
    """All present sessions by link."""
    usable_sessions: Mapping[str, Session] = field(init=False)
    """Those of them that are usable, by client id."""
    followers: Mapping[str, Sequence[Session]] = field(init=False)
    """Usable sessions by the client id of the session that they follow."""
    sessions_instead: Mapping[str, Sequence[Session]] = field(init=False)
    """Usable sessions by the client id of the session from which their records are taken."""
    reserved_readers: frozenset[str] = field(init=False)
    """The client ids of sessions that are reserved now."""
    jobs_by_ends: Mapping[tuple[Link, Link], Set[str]] = field(init=False)
    """The names of deployed jobs by their links."""
    _wanted: _WantedSessions = field(init=False)
    _wanted_ends: tuple[Mapping[str, Job], Mapping[tuple[Link, Link], Sequence[Job]]] = field(
        init=False, default=({}, {})
    )

    def __post_init__(self) -> None:
        sessions = self.inventory.sessions
        self.sessions_there = {s.client_id: s for s in sessions}
        self.usable_sessions = {s.client_id: s for s in sessions if s.usable}
        self.sessions_by_sink = _group((s.job.sink, s) for s in sessions if s.job is not None)
        self.sessions_on = _group((s.link, s) for s in sessions)
        usable = self.usable_sessions.values()
        self.followers = _group((s.follows, s) for s in usable if s.follows is not None)
        self.sessions_instead = _group(
            (s.instead_of, s) for s in usable if s.instead_of is not None
        )
        self.reserved_links = frozenset(s.link for s in sessions if s.reserved)
        self.reserved_readers = frozenset(s.client_id for s in sessions if s.reserved)
        ends = _group((each.job.ends, name) for name, each in self.inventory.jobs.items())
        self.jobs_by_ends = {key: frozenset(names) for key, names in ends.items()}
        self._wanted = _WantedSessions(self.sessions)

    @property
    def drops(self) -> bool:
        """Whether the user has allowed to drop queues."""
        return self.limit_s is not None

    @property
    def drain(self) -> bool:
        """Whether readers that leave a link take first what waits for them."""
        return self.limit_s != 0

    def find_limit(self, site: str) -> float | None:
        """For how many seconds a broker is asked in vain; at once if it does not answer now."""
        return 0.0 if self.drops and self.is_broker_silent(site) else self.limit_s

    def is_engine_silent(self, site: str) -> bool:
        return site not in self.observation.engines

    def is_broker_silent(self, site: str) -> bool:
        """Whether a broker that was asked has not answered."""
        return site in self.observation.unreachable and site not in self.observation.brokers

    def wants(self, session: Session) -> bool:
        """Whether a session is among `sessions`, which is replaced or appended to."""
        return (session.client_id, session.link) in self._index_wanted().keys

    def wanted_on(self, link: Link) -> Sequence[Session]:
        """Those of `sessions` that are on a link."""
        return self._index_wanted().by_link.get(link, ())

    def _index_wanted(self) -> _WantedSessions:
        if not self._wanted.is_of(self.sessions):
            self._wanted = _WantedSessions(self.sessions)
        return self._wanted

    def wanted_with_ends(self, ends: tuple[Link, Link]) -> Sequence[Job]:
        """The wanted jobs with these links."""
        jobs, by_ends = self._wanted_ends
        if jobs is not self.wanted_jobs:
            by_ends = _group((job.ends, job) for job in self.wanted_jobs.values())
            self._wanted_ends = self.wanted_jobs, by_ends
        return by_ends.get(ends, ())

    def has_foreign_producers(self, link: Link) -> bool:
        """Whether producers that this plan cannot stop feed a link."""
        return link in self.links_fed_outside or not self.producers.get(link)

    def find_together(self, job: Job) -> frozenset[str]:
        """The readers that stop at the same record of its link as this one; none if it may stop at
        any."""
        names = self.together.get(job.source, frozenset())
        return names if job.job_name in names else frozenset()

    def engine_job_id(self, job_name: str, attempt: int) -> str:
        """The id under which the engine is to run an attempt of a job."""
        generation = self.inventory.generation
        return engine_job_id(self.installation, self.desired.name, job_name, generation, attempt)

    def add(
        self,
        operation: Operation,
        after: Iterable[int],
        reason: str,
        whatever: frozenset[int] = frozenset(),
        only_if_failed: int | None = None,
    ) -> int:
        """Add a step and return its id."""
        step_id = len(self.steps) + 1
        before = tuple(sorted(set(after)))
        self.steps.append(Step(step_id, operation, before, reason, whatever, only_if_failed))
        return step_id


class _WantedSessions:
    """An index of sessions, valid until they are replaced or appended to."""

    def __init__(self, sessions: Sequence[Session]):
        self._sessions = sessions
        self._count = len(sessions)
        self.keys = frozenset((session.client_id, session.link) for session in sessions)
        self.by_link = _group((session.link, session) for session in sessions)

    def is_of(self, sessions: Sequence[Session]) -> bool:
        return self._sessions is sessions and self._count == len(sessions)


def _group(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def ids(step_ids: Iterable[int | None]) -> tuple[int, ...]:
    """The ids that are not None."""
    return tuple(step for step in step_ids if step is not None)
