"""A plan: immutable data that says what will be done, in what order, and why.

`str(plan)` is deterministic. It is what tests compare, what the CLI prints and what the API
returns as `text`:

    [] -> #1 reserve edge-a/T-1 for A: new reader
    [1] -> #2 start A on edge-a: not running
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from speck.model.incarnation import StaleSink
from speck.model.job import Job
from speck.model.link import Link


class Action(StrEnum):
    """What a user sees happen to a job."""

    ADD = "add"
    UPDATE = "update"
    MOVE = "move"
    REMOVE = "remove"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class JobChange:
    """One job's action; `source` and `target` are site names (API: `from` and `to`)."""

    job_name: str
    action: Action
    reason: str
    source: str | None
    target: str | None


@dataclass(frozen=True, slots=True)
class Upload:
    """Bring an artifact to a site, once for each content."""

    kind: ClassVar[str] = "upload"
    site: str
    jar: str
    job_name: None = None

    def __str__(self) -> str:
        return f"upload {self.jar[:8]} to {self.site}"


@dataclass(frozen=True, slots=True)
class TryMain:
    """Run the new job's `main` at its site without starting it, before anything stops."""

    kind: ClassVar[str] = "try"
    job: Job
    attempt: int
    engine_job_id: str

    @property
    def site(self) -> str:
        return self.job.site

    @property
    def job_name(self) -> str:
        return self.job.job_name

    def __str__(self) -> str:
        return f"try {self.job_name} on {self.site}"


@dataclass(frozen=True, slots=True)
class Reserve:
    """Make a reader's session on a link before anybody writes to the link.

    With `follows`, the client id of another session there, its reader takes over from that one's.
    """

    kind: ClassVar[str] = "reserve"
    site: str
    link: Link
    client_id: str
    job_name: str | None
    follows: str | None = None
    beside: bool = False

    def __str__(self) -> str:
        return f"reserve {self.site}/{self.link.topic} for {self.job_name or self.client_id}"


@dataclass(frozen=True, slots=True)
class HandOver:
    """Let one job follow another as the reader of a link, once that one has stopped: the numbers
    that the old reader has taken are stored with the new one's session, and dropped there."""

    kind: ClassVar[str] = "handover"
    site: str
    link: Link
    client_id: str
    job_name: str
    former: str
    former_job: str

    def __str__(self) -> str:
        return f"handover {self.site}/{self.link.topic} from {self.former_job} to {self.job_name}"


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until a reader has taken the last number of the producers that left its link.

    The reader runs at `reader_site` as `engine_job_id`. `silent` are those of the `sinks` of
    which it is not known that they tell numbers. `going_on` are the sinks of producers that stay
    on the link: what they had sent when the drain begins is waited for. With `followed` another
    session holds only what came after it was reserved: all that came before is waited for. It is
    `fed_outside` when others publish there, too, and tell no numbers. With `lossy` all producers
    send at most once: a number that is missing is not waited for.
    """

    kind: ClassVar[str] = "drain"
    site: str
    link: Link
    client_id: str
    job_name: str
    sinks: tuple[str, ...]
    reader_site: str
    engine_job_id: str
    silent: tuple[str, ...] = ()
    going_on: tuple[str, ...] = ()
    followed: bool = False
    fed_outside: bool = False
    lossy: bool = False

    def __str__(self) -> str:
        return f"drain {self.site}/{self.link.topic} for {self.job_name}"


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop an incarnation with a savepoint. With `final` it has drained a link that all producers
    have left for good: what comes later is for others."""

    kind: ClassVar[str] = "stop"
    site: str
    job_name: str
    attempt: int
    engine_job_id: str
    final: bool = False

    def __str__(self) -> str:
        return f"stop {self.job_name} on {self.site}"


@dataclass(frozen=True, slots=True)
class Cancel:
    """End an incarnation whose state nobody will want. `final`: see `Stop`."""

    kind: ClassVar[str] = "cancel"
    site: str
    job_name: str
    attempt: int
    engine_job_id: str
    final: bool = False

    def __str__(self) -> str:
        return f"cancel {self.job_name} on {self.site}"


@dataclass(frozen=True, slots=True)
class Fence:
    """See to it that an incarnation whose start may still be on its way never runs: end it if
    it has arrived, make its id useless if not."""

    kind: ClassVar[str] = "fence"
    site: str
    job_name: str
    attempt: int
    engine_job_id: str

    def __str__(self) -> str:
        return f"fence {self.job_name} on {self.site}"


@dataclass(frozen=True, slots=True)
class Start:
    """Start an incarnation and see all its tasks run. With `keeps_state` it goes on from the newest
    state of the incarnations before it, which is looked for when the start is carried out.

    `former_sinks` and `stale`: see `speck.model.incarnation.Incarnation`.
    """

    kind: ClassVar[str] = "start"
    job: Job
    attempt: int
    engine_job_id: str
    sink_has_readers: bool
    keeps_state: bool = False
    former_sinks: tuple[str, ...] = ()
    stale: tuple[StaleSink, ...] = ()

    @property
    def site(self) -> str:
        return self.job.site

    @property
    def job_name(self) -> str:
        return self.job.job_name

    def __str__(self) -> str:
        return f"start {self.job_name} on {self.site}"


@dataclass(frozen=True, slots=True)
class Carry:
    """Bring a job's newest state to a site that cannot read the storage where it lies.

    Which state that is, and where, is found when this is carried out; `source` is the site
    where it lies as far as the plan knows.
    """

    kind: ClassVar[str] = "carry"
    site: str
    job_name: str
    source: str

    def __str__(self) -> str:
        return f"carry {self.job_name}'s state from {self.source} to {self.site}"


@dataclass(frozen=True, slots=True)
class Return:
    """Bring back what ran before a start that failed, from the newest state there is then.

    `job` is what ran, `failed` the engine job id of the start: it is fenced first.
    """

    kind: ClassVar[str] = "return"
    job: Job
    attempt: int
    engine_job_id: str
    sink_has_readers: bool
    failed: str
    keeps_state: bool = True
    former_sinks: tuple[str, ...] = ()

    @property
    def site(self) -> str:
        return self.job.site

    @property
    def job_name(self) -> str:
        return self.job.job_name

    def __str__(self) -> str:
        return f"return {self.job_name} to {self.site}"


@dataclass(frozen=True, slots=True)
class Release:
    """End a reader's session; `abandons` messages may still be in it (None: not known)."""

    kind: ClassVar[str] = "release"
    site: str
    link: Link
    client_id: str
    job_name: str | None
    last_reader: bool
    abandons: int | None = 0

    def __str__(self) -> str:
        return f"release {self.site}/{self.link.topic} of {self.job_name or self.client_id}"


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop a removed job from the inventory once nothing of it is left.

    `readers` are the client ids of those that stay on the link that it wrote to: what they have
    not taken yet is noted with their sessions before the numbers of `sinks` are dropped.
    """

    kind: ClassVar[str] = "forget"
    site: str
    job_name: str
    sink_site: str
    sink: Link
    sinks: tuple[str, ...]
    readers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"forget {self.job_name}"


@dataclass(frozen=True, slots=True)
class Clear:
    """Drop what a job's sinks said of a link that it has left: nobody drains it any more.
    `readers`: see `Forget`. What the sink `kept` said is noted for those, and not dropped: its
    next incarnation speaks at the same place, and learns from it what the old link has."""

    kind: ClassVar[str] = "clear"
    site: str
    job_name: str
    link: Link
    sinks: tuple[str, ...]
    readers: tuple[str, ...] = ()
    kept: str | None = None

    def __str__(self) -> str:
        verb = "note" if self.kept else "clear"
        return f"{verb} {self.job_name}'s numbers at {self.site}"


Operation = (
    Upload
    | TryMain
    | Reserve
    | HandOver
    | Drain
    | Stop
    | Cancel
    | Fence
    | Carry
    | Start
    | Return
    | Release
    | Forget
    | Clear
)


@dataclass(frozen=True, slots=True)
class Step:
    """An operation, the steps that must have succeeded before it, and its reason.

    Those of `after` that are in `whatever` must only be over, however they ended. One that is
    `only_if_failed` is skipped when the step of that id has succeeded.
    """

    id: int
    operation: Operation
    after: tuple[int, ...]
    reason: str
    whatever: frozenset[int] = frozenset()
    only_if_failed: int | None = None

    def __str__(self) -> str:
        before = ",".join(map(str, self.after))
        return f"[{before}] -> #{self.id} {self.operation}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What turns the observation into the desired composition.

    One that `goes_on` is the first part of it: once it is carried out the change is planned once
    more (see `speck.deploy.planner.backlog`).
    """

    composition: str
    jobs: tuple[JobChange, ...]
    steps: tuple[Step, ...]
    goes_on: bool = False

    @property
    def empty(self) -> bool:
        return not self.steps

    def summary(self) -> dict[str, int]:
        """How many jobs meet each action; all five keys always present."""
        counts = Counter(change.action for change in self.jobs)
        return {str(action): counts[action] for action in Action}

    def numbered_after(self, last: int) -> Plan:
        """The same plan with the ids of its steps counted from `last` + 1."""
        steps = tuple(
            replace(
                step,
                id=step.id + last,
                after=tuple(before + last for before in step.after),
                whatever=frozenset(before + last for before in step.whatever),
                only_if_failed=None if step.only_if_failed is None else step.only_if_failed + last,
            )
            for step in self.steps
        )
        return replace(self, steps=steps)

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))
