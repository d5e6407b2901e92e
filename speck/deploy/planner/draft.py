"""The data that the parts of the planner share: the inputs, and the plan so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from speck.deploy.planner.situation import Situation
from speck.model.incarnation import Incarnation, Session
from speck.model.job import Job
from speck.model.job_change import Action
from speck.model.link import Link
from speck.model.plan import Operation, Step


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

    situation: Situation
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
    slot_waits: dict[str, list[int]] = field(default_factory=dict)
    circuits: dict[Link, list[tuple[Link, int | None]]] = field(default_factory=dict)
    """Where messages on a link may go next: through jobs that are wanted (None) or that stop in the
    step of that id."""
    drains_of: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Steps that need the last number of a sink, by its client id."""
    releases_on: dict[Link, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Steps that release sessions: each counts what it drops by the numbers of the link's sinks."""
    drained_readers: set[str] = field(default_factory=set)
    """Client ids of readers that take, before they stop, the messages that their followers do not
    have."""
    emptied_readers: set[str] = field(default_factory=set)
    """Client ids of readers whose session is known to be empty after their drain."""
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
    together: dict[Link, frozenset[str]] = field(default_factory=dict)
    """Readers of links that are fed from outside, which stop at the same record: the slower ones
    read on to where the foremost has stopped."""
    switching: set[str] = field(default_factory=set)
    """The jobs that change their links at these records."""
    joined_links: set[Link] = field(default_factory=set)
    """Those of these links that get a reader which has not taken anything there yet."""

    def find_together(self, job: Job) -> frozenset[str]:
        """The readers that stop at the same record of its link as this one; none if it may stop at
        any."""
        names = self.together.get(job.source, frozenset())
        return names if job.job_name in names else frozenset()

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


def ids(step_ids: Iterable[int | None]) -> tuple[int, ...]:
    """The ids that are not None."""
    return tuple(step for step in step_ids if step is not None)
