"""What the parts of the planner share: what is given, and what is planned so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from speck.model.composition import Composition
from speck.model.incarnation import Incarnation, Inventory, Session
from speck.model.job import Job
from speck.model.link import Link
from speck.model.observation import Observation
from speck.model.plan import Action, Operation, Step


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
    again: bool = False  # the start that was asked for is sent again, under its id
    stop_id: int | None = None
    clear_id: int | None = None
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
    drain: bool
    links_fed_outside: frozenset[Link] = frozenset()
    """Links that publishers outside speck, or jobs of other scopes, feed as well."""
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
    """The session that a new reader's follows, by the client id of the new one."""
    readers_beside: set[str] = field(default_factory=set)
    """Of these, the ones that do not take the place of whom they follow: another one does."""
    leaving_readers: dict[Link, list[tuple[str, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Client ids of readers that leave a link, with the steps in which they stop."""
    renewed_sessions: set[str] = field(default_factory=set)
    """Client ids of sessions that end and begin anew: what is in them is another reader's."""
    handover_of: dict[str, int] = field(default_factory=dict)
    start_of: dict[str | None, int] = field(default_factory=dict)
    """Steps by the client id of the reader that they hand over to, or start."""
    producers: dict[Link, list[Incarnation]] = field(default_factory=lambda: defaultdict(list))
    slot_waits: dict[str, list[int]] = field(default_factory=dict)
    circuits: dict[Link, list[tuple[Link, int | None]]] = field(default_factory=dict)
    """Where what is written to a link may go, by jobs that are wanted (None) or that stop in
    the step of that id."""
    drains_of: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Steps that need the last number of a sink, by its client id."""
    readers_owed: frozenset[str] = frozenset()
    """Client ids of readers that an earlier drain, which failed, still waits for."""
    drained_readers: set[str] = field(default_factory=set)
    """Client ids of readers that take, before they stop, what their followers do not have."""
    emptied_readers: set[str] = field(default_factory=set)
    """Client ids of readers whose session is known to be empty once they were drained."""
    stopped_jobs: frozenset[str] = frozenset()
    """Jobs that this change has stopped already, for starts that have not succeeded."""
    backlog_only: bool = False
    """Whether this is the plan in which jobs read first what waits for them. All others stay as
    they are, and nothing is handed over yet."""
    kept_jobs: frozenset[str] = frozenset()
    """In such a plan: the jobs that stay as they are."""
    first_readers: set[str] = field(default_factory=set)
    """Client ids of the sessions that such a plan reserves: on links that those jobs write to."""
    cut_jobs: frozenset[str] = frozenset()
    """Jobs that stop and start again although they stay as they are, so that all who leave what
    they write, and all who come to it, do so at the same record."""
    cut_between: frozenset[str] = frozenset()
    """Those of them that take all that was sent before they stop: readers of the same link."""
    cannot_try: frozenset[str] = frozenset()
    cannot_save: frozenset[str] = frozenset()
    apart: frozenset[tuple[str, str]] = frozenset()

    def add(
        self,
        operation: Operation,
        after: Iterable[int],
        reason: str,
        whatever: frozenset[int] = frozenset(),
        only_if_failed: int | None = None,
    ) -> int:
        """Add a step and give its id."""
        step_id = len(self.steps) + 1
        before = tuple(sorted(set(after)))
        self.steps.append(Step(step_id, operation, before, reason, whatever, only_if_failed))
        return step_id


def ids(step_ids: Iterable[int | None]) -> tuple[int, ...]:
    """Those that are there."""
    return tuple(step for step in step_ids if step is not None)
