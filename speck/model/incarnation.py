"""The inventory: what speck itself deployed. A plan touches nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from speck.model.job import Job
from speck.model.link import Link
from speck.model.observation import TakenEpoch, merge_taken
from speck.model.queue import DroppedQueue


@dataclass(frozen=True, slots=True)
class StateCopy:
    """A copy of an incarnation's state at another site: of the path `origin`, now at `location`."""

    origin: str
    site: str
    location: str


@dataclass(frozen=True, slots=True)
class UsedState:
    """State at a site that attempt `attempt` was started from. It is deleted once the attempt has
    newer state."""

    site: str
    path: str
    attempt: int


@dataclass(frozen=True, slots=True)
class StaleSink:
    """The sequence numbers that a job's sink published as `client_id` about a link that the job
    no longer writes to. They stay at the broker of `site` until no reader needs them."""

    site: str
    link: Link
    client_id: str


@dataclass(frozen=True, slots=True)
class FormerSink:
    """The client id under which an earlier incarnation of a job published what it sent over a link
    that the job still writes to."""

    link: Link
    client_id: str


class StartState(StrEnum):
    """How far the start of an incarnation has got, as far as speck knows."""

    REQUESTED = "requested"  # stored before the request is sent; no answer has come yet
    ACCEPTED = "accepted"  # the engine has accepted it: if it no longer knows it, it lost it
    CONFIRMED = "confirmed"  # all its tasks ran: its own state is the newest
    VOID = "void"  # it has no state and never will: its base has the newest


class EndState(StrEnum):
    """Whether, and how far, an incarnation has come to an end that is meant."""

    NONE = "none"
    STOPPING = "stopping"  # a stop that saves its state was requested, which cannot be revoked
    ENDED = "ended"  # by speck
    FINISHED = "finished"  # by itself: its sources have ended


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The newest incarnation of a job: what speck did about it, not what its engine says of it.

    `attempt` numbers it and determines `engine_job_id`. Its start and its end proceed
    independently: an incarnation that was only requested may be ended, and what is done with its
    state then depends on how far its start had got. Each transition is stored before, or as soon
    as, it takes place:

        start:  requested -> accepted -> confirmed       end:  none -> stopping -> ended
                requested -> confirmed                         none -> ended
                requested -> void, accepted -> void                    none, stopping -> finished

    - requested to accepted: the engine answered the request, or already knew the id.
    - to confirmed: all tasks run, or its state was saved on request. A start whose answer was lost
      is also confirmed when the incarnation is seen running. From then on it needs no `base`, the
      incarnation before it, whose state was the newest until then.
    - to void: the engine refused it, or its id was fenced, or it ended before its first
      checkpoint. This state is final: the next start has another attempt.
    - none to stopping: a stop that saves its state; to ended without it: cancelled, fenced, or
      cleaned up after a failed start. `savepoint` is where the state of an ended incarnation is
      (None: it was cancelled, or is stateless). This state is final, too.

    - to finished: its sources have ended. Stored as soon as the engine reports it, since an engine
      forgets jobs that have ended. It leaves no state: one that was restored from its last
      checkpoint would only end again. The job is not repaired; it runs once more, from its
      beginning, when its description changes.

    An incarnation that failed, was lost, or was stopped at its engine by somebody else is not
    `ended`: it should run, and is repaired. One that is `ended` was stopped by a user if the state
    of its `job` is STOPPED, and otherwise by a change that was to replace or remove it, and has not
    been completed.

    `former_sinks` are the client ids, oldest first, under which earlier incarnations published
    the last number that they sent over the same link of the port. The id changes with the job's
    source, and messages sent under an old id may still wait for a slow reader. `stale` are the
    sinks of links that the job has left; their numbers are still to be cleared.

    `restored` is the state that it was started from, as its engine names it. It remains the newest
    until a checkpoint completes. `carried` is a copy of its state at a site that cannot read
    the original. `left` are the states that it and earlier incarnations were started from.

    `checkpoints` is the folder in which it writes its checkpoints if that is not the site's, since
    its `main` has set one; as the engine reports it.

    `asked_ms` is when it was asked to save its state and stop, in Unix milliseconds; 0: the broker
    of its link was restarted since, and may have forgotten what it said then, or it has not said it
    since its engine died (`is_forgotten`).

    `ends_early`: it reads its link up to some record only, to stop there (see
    `speck.model.job_operations.CatchUp`). `switched`: it has not been started yet, but what waits
    for it is for its own links, not for those of its base (see `Switch` there). `commits`: those of
    its `Start`, until it is known to have begun.
    """

    job: Job
    attempt: int
    engine_job_id: str
    start: StartState = StartState.REQUESTED
    end: EndState = EndState.NONE
    savepoint: str | None = None
    base: Incarnation | None = None
    former_sinks: tuple[FormerSink, ...] = ()
    restored: str | None = None
    carried: StateCopy | None = None
    left: tuple[UsedState, ...] = ()
    stale: tuple[StaleSink, ...] = ()
    ends_early: bool = False
    switched: bool = False
    checkpoints: str | None = None
    asked_ms: int | None = None
    commits: tuple[tuple[str, Job, bool], ...] = ()

    def former_sinks_of(self, link: Link) -> tuple[str, ...]:
        """Those of one link of the port."""
        return tuple(sink.client_id for sink in self.former_sinks if sink.link == link)

    @property
    def accepted(self) -> bool:
        """Whether its engine has accepted it, and it has not been seen running yet."""
        return self.start is StartState.ACCEPTED

    @property
    def confirmed(self) -> bool:
        """Whether all its tasks have run."""
        return self.start is StartState.CONFIRMED

    @property
    def void(self) -> bool:
        """Whether it has no state of its own and never will."""
        return self.start is StartState.VOID

    @property
    def stopping(self) -> bool:
        """Whether a stop that saves its state is under way."""
        return self.end is EndState.STOPPING

    @property
    def ended(self) -> bool:
        """Whether it is over, and is not to be repaired: speck has ended it, or it has finished."""
        return self.end in (EndState.ENDED, EndState.FINISHED)

    @property
    def finished(self) -> bool:
        """Whether it has ended by itself since its sources have ended."""
        return self.end is EndState.FINISHED

    @property
    def run(self) -> Incarnation | None:
        """The newest one that has run, or may run: this one or one before it."""
        if not self.void:
            return self
        return self.base.run if self.base is not None else None

    @property
    def is_forgotten(self) -> bool:
        """Whether its broker may have forgotten what the run that ended last had taken."""
        return self.run is not None and self.run.ended and self.run.asked_ms == 0

    def as_void(self) -> Incarnation:
        """As one that is refused, or known never to have run."""
        return replace(self, start=StartState.VOID, commits=())

    def forgotten(self) -> Incarnation:
        """With `is_forgotten`."""
        if not self.void:
            return replace(self, asked_ms=0)
        return self if self.base is None else replace(self, base=self.base.forgotten())

    @property
    def may_arrive(self) -> bool:
        """Whether its start request may still be on its way: no answer of the engine has come."""
        return self.start is StartState.REQUESTED and not self.ended

    @property
    def homes(self) -> frozenset[str]:
        """The sites where the newest state of the job may lie."""
        own = frozenset() if self.void else frozenset({self.job.site})
        return own | (self.base.homes if self.base is not None else frozenset())

    @property
    def has_state(self) -> bool:
        """Whether the job has run, and so may have state."""
        return self.confirmed or self.base is not None


@dataclass(frozen=True, slots=True)
class EndedSink:
    """The sink of an incarnation that has ended not long ago. Its broker may not have saved its
    last messages: if the broker is killed, they are sent again from the incarnation's state.

    The sink wrote to a `link` of the port as `client_id`. It was asked to end, or to send again, at
    `since_ms` (Unix milliseconds of speck's clock; 0: not known). `tries` counts how often it was
    started again; while the newest try `is_open`, it may be under way. `failed` counts those
    without success, since the last one that had.
    """

    incarnation: Incarnation
    link: Link
    client_id: str
    since_ms: int
    tries: int = 0
    is_open: bool = False
    failed: int = 0

    @property
    def site(self) -> str:
        """That of its broker."""
        return self.link.site


@dataclass(frozen=True, slots=True)
class Session:
    """A reader's session on a broker. `reserved` is false while the session is only intended.

    `job_name` is None for an outside reader (an entry of `outputs` with a client_id). `owed` are
    the last numbers (producer, epoch, number) that the reader had not taken when a drain began.
    They are kept when the drain fails, since the producers have moved on to another link and
    no longer report them.

    When one job follows another as the reader of a link, the new session is reserved while the
    link is still written to, so that it also receives what the old reader takes until it stops.
    The new session `follows` the old one (its client id) until the numbers that the old reader has
    taken are handed over: the new reader skips these (`skip`). Then the old session is
    `followed_by` the new one, whose `former` it is. The old session keeps receiving messages until
    the new reader has started, so that the change can be undone. If several sessions follow one,
    it remembers the last of them. Those that read `beside` the successor do other work, and the
    old reader could not continue for them. A session that follows another is `whole` if it was
    reserved before that one's reader was drained: it holds all that this reader has not taken. One
    that was `remade`, since its broker had lost it, before its own reader began may lack what came
    meanwhile, until the reader before it is drained after that.

    `since` are the last numbers (producer, epoch, number) that the link's sinks had reported when
    the session was made: it holds only later messages. `passed` are those of sinks that had stopped
    by then, and so sent nothing more: if their broker is killed, they send that again, to all
    sessions. `fed_outside`: programs outside speck write to the link, or nobody whom speck knows
    of; their messages are not counted.

    `left_by` are the client ids of sinks that left the link before the session was made: what they
    send if they run once more is for the readers that were there before.

    A job may go on at another link at the record at which it, or the job whose place it takes, left
    its own. From there on both sessions may hold the same records. They are taken from the old one
    until the cut is `committed`, that is, until the first record behind it may flow, and then from
    the new one: `instead_of` is the client id of the session from which they are taken. Once the
    cut is committed, what waits for a reader that has not begun is for it as it is to run.

    `job` is the reader as it was to run when the session was reserved, or as it began to read it
    since then (`begun`). A change may end before its readers begin: what waits in the session is
    for the job in this form, whatever is wanted next.

    `drained`: its reader has taken everything that was meant for it and has been stopped, on a
    link that its producers have left. Later messages are meant for other readers: before such a
    session is used again, it is made anew. `holes` is how many numbers it lacked at the end of its
    drain: these messages had been lost before. `running` are, for a reader outside speck, the
    (producer, epoch) that sinks were seen to number in and whose last number is not in `owed` yet.

    With the user's consent to drop queues: `undrained` says why its reader has not taken
    everything, `dropping` is the queue that is dropped with the session once its release has begun,
    and one that is `released` is ended once its broker answers.
    """

    client_id: str
    link: Link
    site: str
    job_name: str | None
    reserved: bool = True
    owed: tuple[tuple[str, int, int], ...] = ()
    follows: str | None = None
    followed_by: str | None = None
    former: str | None = None
    skip: tuple[TakenEpoch, ...] = ()
    drained: bool = False
    beside: bool = False
    whole: bool = False
    remade: bool = False
    since: tuple[tuple[str, int, int], ...] = ()
    passed: tuple[tuple[str, int, int], ...] = ()
    fed_outside: bool = False
    job: Job | None = None
    begun: bool = False
    undrained: str = ""
    holes: int = 0
    dropping: DroppedQueue | None = None
    released: bool = False
    running: tuple[tuple[str, int], ...] = ()
    left_by: tuple[str, ...] = ()
    instead_of: str | None = None
    committed: bool = False

    @property
    def reader(self) -> str:
        return self.job_name or self.client_id

    @property
    def taken(self) -> tuple[TakenEpoch, ...]:
        """What its reader is not to take."""
        if self.former is not None or self.follows is not None:
            return self.skip  # of what those had not taken, all waits here
        return merge_taken(self.skip, (TakenEpoch(*each) for each in self.passed))

    @property
    def usable(self) -> bool:
        """Whether a reader may resume it."""
        return self.reserved and not self.drained


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything that speck has deployed within the scope of one plan.

    `attempts` holds the highest attempt ever used for each job name, removed jobs included, so
    that an engine never receives the same id twice. `generation` is that of the store.
    """

    jobs: Mapping[str, Incarnation] = field(default_factory=dict)
    sessions: tuple[Session, ...] = ()
    attempts: Mapping[str, int] = field(default_factory=dict)
    generation: int = 1
