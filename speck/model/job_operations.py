"""What a plan does to jobs: their artifacts, incarnations and states. Immutable data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from speck.model.incarnation import FormerSink, StaleSink
from speck.model.job import Job
from speck.model.link_operations import HandOver, LeftLink
from speck.model.observation import TakenEpoch
from speck.model.values import cut


class _WithJob:
    """An operation that has its job as it is to run, which says where that is."""

    __slots__ = ()
    job: Job

    @property
    def site(self) -> str:
        return self.job.site

    @property
    def job_name(self) -> str:
        return self.job.job_name


@dataclass(frozen=True, slots=True)
class Upload:
    """Upload an artifact to a site, once for each content."""

    kind: ClassVar[str] = "upload"
    site: str
    artifact: str
    job_name: None = None

    def __str__(self) -> str:
        return f"upload {self.artifact[:8]} to {self.site}"


@dataclass(frozen=True, slots=True)
class TryMain(_WithJob):
    """Run the new job's `main` at its site without starting the job, before anything is stopped."""

    kind: ClassVar[str] = "try"
    job: Job
    attempt: int
    engine_job_id: str

    def __str__(self) -> str:
        return f"try {self.job_name} on {self.site}"


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop an incarnation and save its state. With `final` it has drained a link that all producers
    have left for good: later messages are meant for other readers. With `pauses` it is to stay
    stopped. With `exact` others go on where it ends, or it goes on itself at other links: what it
    has taken then has to be published, and both reported."""

    kind: ClassVar[str] = "stop"
    site: str
    job_name: str
    attempt: int
    engine_job_id: str
    final: bool = False
    pauses: bool = False
    exact: bool = False

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
    and save its state if the request has arrived, have the engine refuse its id if not."""

    kind: ClassVar[str] = "fence"
    site: str
    job_name: str
    attempt: int
    engine_job_id: str

    def __str__(self) -> str:
        return f"fence {self.job_name} on {self.site}"


@dataclass(frozen=True, slots=True)
class Start(_WithJob):
    """Start an incarnation and wait until all its tasks run. With `keeps_state` it resumes from the
    newest state of the earlier incarnations, which is determined when the start is carried out.

    `former_sinks` and `stale`: see `speck.model.incarnation.Incarnation`. It reads its link `until`
    these numbers, or without an end if there are none. `commits` are the sessions (client id) of
    others that change at the same record, as they are to run, and whether they start after it.
    `trusts`: as in a `HandOver`, of the link that it leaves to another reader.
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
    trusts: bool = False

    def __str__(self) -> str:
        return f"start {self.job_name} on {self.site}"


@dataclass(frozen=True, slots=True)
class CatchUp(_WithJob):
    """Bring a stopped reader to the record of its link that the foremost of several readers has
    reached: it runs as before until it has taken what any of them has taken, and stops again.

    `readers` are the client ids of all of them, which have stopped. Without any, the broker has
    forgotten what this one said at its end: it runs until what is known of that, which it has
    taken, and so says it again. `trusts` are those of which what is known has to do.
    """

    kind: ClassVar[str] = "catch_up"
    job: Job
    attempt: int
    engine_job_id: str
    client_id: str
    readers: tuple[str, ...]
    sink_has_readers: bool
    former_sinks: tuple[FormerSink, ...] = ()
    trusts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"catch up {self.job.source_site}/{cut(self.job.source.topic)} of {self.job_name}"


@dataclass(frozen=True, slots=True)
class Switch:
    """Store, all at once, that jobs which have stopped at the same record of their input get other
    links from there on: if the change ends before they have started, the next plan knows for which
    links the waiting messages are.

    `starts` are those of the jobs that follow, new ones included. `handovers` are carried out with
    it. Each of `joining` names a new reader that skips what a former one has taken, but does not
    take its place. `readers` are the sites and client ids of those that have stopped there;
    `trusts`: see `CatchUp`.
    """

    kind: ClassVar[str] = "switch"
    site: str
    starts: tuple[Start, ...]
    handovers: tuple[HandOver, ...] = ()
    joining: tuple[HandOver, ...] = ()
    readers: tuple[tuple[str, str], ...] = ()
    trusts: tuple[str, ...] = ()
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
class Return(_WithJob):
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

    def __str__(self) -> str:
        return f"return {self.job_name} to {self.site}"


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
