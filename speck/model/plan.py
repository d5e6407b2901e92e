"""A plan: immutable data that states what will be done, in what order, and why.

`str(plan)` is deterministic. Tests compare it, the CLI prints it, and the API returns it as `text`:

    [] -> #1 reserve edge-a/T-1 for A: new reader
    [1] -> #2 start A on edge-a: not running
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

from speck.model.incarnation import FormerSink, StaleSink
from speck.model.job import Job
from speck.model.job_change import Action, JobChange
from speck.model.link import Link
from speck.model.observation import TakenEpoch
from speck.model.queue import DroppedQueue
from speck.model.values import cut

DRAIN_LIMIT_S = 300.0
"""How long a reader is drained if its queue may be dropped then."""


@dataclass(frozen=True, slots=True)
class Upload:
    """Upload an artifact to a site, once for each content."""

    kind: ClassVar[str] = "upload"
    site: str
    jar: str
    job_name: None = None

    def __str__(self) -> str:
        return f"upload {self.jar[:8]} to {self.site}"


@dataclass(frozen=True, slots=True)
class TryMain:
    """Run the new job's `main` at its site without starting the job, before anything is stopped."""

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
    """Create a reader's session on a link before any producer writes to the link.

    `follows` is the client id of another session there whose reader is to be succeeded. With
    `renewed` the plan has ended a session of that client id before; with `fresh` one may be there,
    with messages that are for others. `sinks` are the client ids of those who write to the link
    already; for `left_by`, `instead_of` and `fed_outside` see `speck.model.incarnation.Session`.
    `job` is the reader as it is to run.
    """

    kind: ClassVar[str] = "reserve"
    site: str
    link: Link
    client_id: str
    job_name: str | None
    follows: str | None = None
    beside: bool = False
    renewed: bool = False
    sinks: tuple[str, ...] = ()
    fed_outside: bool = False
    job: Job | None = None
    fresh: bool = False
    left_by: tuple[str, ...] = ()
    instead_of: str | None = None

    def __str__(self) -> str:
        return f"reserve {self.site}/{cut(self.link.topic)} for {self.job_name or self.client_id}"


@dataclass(frozen=True, slots=True)
class HandOver:
    """Let one job succeed another as the reader of a link, once the other has stopped: the numbers
    that the old reader has taken are stored with the new session, and its reader skips them.

    `others` are the client ids of readers that went on beside the old one and end with it: the new
    reader takes the place of all of them. `job` is the new reader as it is to run."""

    kind: ClassVar[str] = "handover"
    site: str
    link: Link
    client_id: str
    job_name: str
    former: str
    former_job: str
    others: tuple[str, ...] = ()
    job: Job | None = None

    def __str__(self) -> str:
        return (
            f"handover {self.site}/{cut(self.link.topic)} from {self.former_job} to {self.job_name}"
        )


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until a reader has taken the last number of the producers that have left its link.

    The reader runs at `reader_site` as `engine_job_id`. `silent` are those of the `sinks` that are
    not known to report numbers. `going_on` are the sinks of producers that stay on the link: the
    drain waits for the messages that they had sent when it began. With `followed`, another
    session holds only the messages that came after it was reserved: the drain waits for all
    earlier ones. With `fed_outside`, outside programs publish there as well and report no
    numbers. With `lossy`, all producers send at most once: the drain does not wait for gaps to be
    filled. With `handed_over`, another reader goes on where this one ends: what this one has taken
    is stored, also if nothing more comes.

    With a limit it succeeds after `limit_s` seconds, or as soon as it can make no progress: the
    user has allowed that what the reader has not taken then is dropped.
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
    limit_s: float | None = None
    handed_over: bool = False

    def __str__(self) -> str:
        return f"drain {self.site}/{cut(self.link.topic)} for {self.job_name}"


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop an incarnation with a savepoint. With `final` it has drained a link that all producers
    have left for good: later messages are meant for other readers. With `pauses` it is to stay
    stopped."""

    kind: ClassVar[str] = "stop"
    site: str
    job_name: str
    attempt: int
    engine_job_id: str
    final: bool = False
    pauses: bool = False

    def __str__(self) -> str:
        return f"stop {self.job_name} on {self.site}"


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel an incarnation whose state is no longer needed. `final`, `pauses`: see `Stop`."""

    kind: ClassVar[str] = "cancel"
    site: str
    job_name: str
    attempt: int
    engine_job_id: str
    final: bool = False
    pauses: bool = False

    def __str__(self) -> str:
        return f"cancel {self.job_name} on {self.site}"


@dataclass(frozen=True, slots=True)
class Fence:
    """Make sure that an incarnation whose start request may still be on its way never runs: stop it
    with a savepoint if the request has arrived, have the engine refuse its id if not."""

    kind: ClassVar[str] = "fence"
    site: str
    job_name: str
    attempt: int
    engine_job_id: str

    def __str__(self) -> str:
        return f"fence {self.job_name} on {self.site}"


@dataclass(frozen=True, slots=True)
class Start:
    """Start an incarnation and wait until all its tasks run. With `keeps_state` it resumes from the
    newest state of the earlier incarnations, which is determined when the start is carried out.

    `former_sinks` and `stale`: see `speck.model.incarnation.Incarnation`. It reads its link `until`
    these numbers, or without an end if there are none. `commits` are the sessions (client id) of
    others that change at the same record, as they are to run, and whether they start after it.
    """

    kind: ClassVar[str] = "start"
    job: Job
    attempt: int
    engine_job_id: str
    sink_has_readers: bool
    keeps_state: bool = False
    former_sinks: tuple[FormerSink, ...] = ()
    stale: tuple[StaleSink, ...] = ()
    until: tuple[TakenEpoch, ...] = ()
    commits: tuple[tuple[str, Job, bool], ...] = ()

    @property
    def site(self) -> str:
        return self.job.site

    @property
    def job_name(self) -> str:
        return self.job.job_name

    def __str__(self) -> str:
        return f"start {self.job_name} on {self.site}"


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Bring a stopped reader to the record of its link that the foremost of several readers has
    reached: it runs as before until it has taken what any of them has taken, and stops again.

    `readers` are the client ids of all of them, which have stopped.
    """

    kind: ClassVar[str] = "catch_up"
    job: Job
    attempt: int
    engine_job_id: str
    client_id: str
    readers: tuple[str, ...]
    sink_has_readers: bool
    former_sinks: tuple[FormerSink, ...] = ()

    @property
    def site(self) -> str:
        return self.job.site

    @property
    def job_name(self) -> str:
        return self.job.job_name

    def __str__(self) -> str:
        return f"catch up {self.job.source_site}/{cut(self.job.source.topic)} of {self.job_name}"


@dataclass(frozen=True, slots=True)
class Switch:
    """Store, all at once, that jobs which have stopped at the same record of their input get other
    links from there on: if the change ends before they have started, the next plan knows for which
    links the waiting messages are.

    `starts` are those of the jobs that follow, new ones included. `handovers` are carried out with
    it. Each of `joining` names a new reader that skips what a former one has taken, but does not
    take its place.
    """

    kind: ClassVar[str] = "switch"
    site: str
    starts: tuple[Start, ...]
    handovers: tuple[HandOver, ...] = ()
    joining: tuple[HandOver, ...] = ()
    job_name: None = None

    def __str__(self) -> str:
        names = {each.job_name for each in self.starts}
        names |= {each.job_name for each in (*self.handovers, *self.joining)}
        return f"switch {', '.join(sorted(names))}"


@dataclass(frozen=True, slots=True)
class Carry:
    """Copy a job's newest state to a site that cannot read the storage that holds it.

    The newest state is determined when this is carried out; `source` is the site that holds it as
    far as the planner knows.
    """

    kind: ClassVar[str] = "carry"
    site: str
    job_name: str
    source: str

    def __str__(self) -> str:
        return f"carry {self.job_name}'s state from {self.source} to {self.site}"


@dataclass(frozen=True, slots=True)
class Return:
    """Restore the job that ran before a start that failed, from its newest state at that moment.

    `job` is the job that ran before; `failed` is the engine job id of the failed start, which is
    fenced first. `fed`: its link is written to as before, so it takes there what it was to take at
    another one. `commits`: see `Start`; the job has the same links as the failed one then.
    """

    kind: ClassVar[str] = "return"
    job: Job
    attempt: int
    engine_job_id: str
    sink_has_readers: bool
    failed: str
    keeps_state: bool = True
    former_sinks: tuple[FormerSink, ...] = ()
    fed: bool = False
    commits: tuple[tuple[str, Job, bool], ...] = ()

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
    """End a reader's session; up to `abandons` messages in it are lost (None: not known).

    With `guarded` the session is kept, and the release fails, if messages wait in it at that
    moment: its reader is outside speck or does not run, and nobody has allowed to drop them.
    `sinks` are the client ids of those who write to the link; not all of them report numbers
    unless it is `counted`.

    With a limit the user has allowed to drop the queue, and what is dropped is reported: what waits
    if nobody takes it (`why` says so), what a drain has left, or what has come after it
    (`drained`). If its broker does not answer for `limit_s` seconds, the session is dropped all the
    same, and ended once the broker answers.
    """

    kind: ClassVar[str] = "release"
    site: str
    link: Link
    client_id: str
    job_name: str | None
    last_reader: bool
    abandons: int | None = 0
    guarded: bool = False
    sinks: tuple[str, ...] = ()
    limit_s: float | None = None
    why: str | None = None
    counted: bool = True
    drained: bool = False

    def __str__(self) -> str:
        return f"release {self.site}/{cut(self.link.topic)} of {self.job_name or self.client_id}"


@dataclass(frozen=True, slots=True)
class LeftLink:
    """A link that a removed job wrote to, the client ids under which it reported what it sent
    there, and those of the sessions on the link with which these numbers are stored."""

    link: Link
    sinks: tuple[str, ...]
    readers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forget:
    """Delete a removed job from the inventory once nothing of it remains.

    The numbers of its sinks that the readers of their links have not taken yet are stored with
    these readers' sessions before they are cleared at the broker. With a limit they are left there
    if the broker does not answer for `limit_s` seconds.
    """

    kind: ClassVar[str] = "forget"
    site: str
    job_name: str
    left: tuple[LeftLink, ...]
    limit_s: float | None = None

    @property
    def link_sites(self) -> tuple[str, ...]:
        """The sites whose brokers carry these links."""
        return tuple(dict.fromkeys(each.link.site for each in self.left))

    def __str__(self) -> str:
        return f"forget {self.job_name}"


@dataclass(frozen=True, slots=True)
class Clear:
    """Clear the numbers that a job's sinks published about a link that the job has left, once no
    drain needs them. `readers`: see `LeftLink`; `limit_s`: see `Forget`."""

    kind: ClassVar[str] = "clear"
    site: str
    job_name: str
    link: Link
    sinks: tuple[str, ...]
    readers: tuple[str, ...] = ()
    limit_s: float | None = None

    def __str__(self) -> str:
        return f"clear {self.job_name}'s numbers at {self.site}"


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
    | CatchUp
    | Switch
    | Start
    | Return
    | Release
    | Forget
    | Clear
)

Limited = Drain | Release | Forget | Clear
"""Operations that may have a limit, after which they are given up."""


@dataclass(frozen=True, slots=True)
class Step:
    """An operation, the steps that must have succeeded before it, and its reason.

    Steps of `after` that are in `whatever` need only be over, with any outcome; if the operation
    has a limit, a site that does not answer for so long does not hold it up either. A step with
    `only_if_failed` is skipped if the step of that id has succeeded.
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
class Gate:
    """Stands before the next stage of a change. It opens when all steps of the stage before it are
    done; with `failed_too`, also when they have ended otherwise."""

    failed_too: bool = False

    def opens(self, *, done: bool) -> bool:
        """Whether the next stage begins after one that has ended, `done` or failed."""
        return done or self.failed_too


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that turn the observed state into the desired composition: one stage of a change.

    Behind the `gate` the next stage begins, which is planned from what is observed then (see
    `speck.deploy.planner.backlog`); the last stage has none. `queues` are those that it drops; a
    plan that drops any needs the user's consent. With consent, what the reader of a drain has not
    taken in `drain_limit_s` seconds is dropped as well. `reads` are the client ids of the sessions
    that it reads first.
    """

    composition: str
    jobs: tuple[JobChange, ...]
    steps: tuple[Step, ...]
    gate: Gate | None = None
    queues: tuple[DroppedQueue, ...] = ()
    reads: frozenset[str] = frozenset()
    drain_limit_s: float | None = None

    @property
    def empty(self) -> bool:
        return not self.steps

    def summary(self) -> dict[str, int]:
        """Count the jobs by action; all five keys are always present."""
        counts = Counter(change.action for change in self.jobs)
        return {str(action): counts[action] for action in Action}

    def renumber_after(self, last: int) -> Plan:
        """Return the same plan with its step ids counted from `last` + 1."""
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
        return "\n".join(map(str, (*self.queues, *self.steps)))
