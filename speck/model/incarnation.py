"""What speck itself deployed: the only things a plan may touch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from speck.model.job import Job
from speck.model.link import Link
from speck.model.observation import TakenEpoch


@dataclass(frozen=True, slots=True)
class Carried:
    """A copy of an incarnation's state at another site: made of `origin`, it lies at `location`."""

    origin: str
    site: str
    location: str


@dataclass(frozen=True, slots=True)
class Left:
    """State at a site that attempt `attempt` was started from: it goes once newer is there."""

    site: str
    path: str
    attempt: int


@dataclass(frozen=True, slots=True)
class StaleSink:
    """What a job's sink said, under `client_id`, of a link that the job has left: it stands at the
    broker of `site` until nobody needs it any more."""

    site: str
    link: Link
    client_id: str


class StartState(StrEnum):
    """How far the start of an incarnation has got, as far as speck knows."""

    REQUESTED = "requested"  # stored before the engine is asked; no answer was heard yet
    ACCEPTED = "accepted"  # the engine has taken it on: one that it does not know, it forgot
    CONFIRMED = "confirmed"  # all its tasks ran: its own state is the newest
    VOID = "void"  # it has left no state and never will: the one before it has the newest


class EndState(StrEnum):
    """How far speck itself has brought an incarnation to its end."""

    NONE = "none"
    STOPPING = "stopping"  # a stop with a savepoint was asked for, once and for all
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The newest incarnation of a job: what speck did about it, not what its engine says of it.

    `attempt` numbers it and fixes `engine_job_id`. Its start and its end go on beside each other:
    one that was only requested may be ended, and what is done with its state then depends on how
    far its start had got. Each transition is stored before, or as soon as, it takes place:

        start:  requested -> accepted -> confirmed       end:  none -> stopping -> ended
                requested -> confirmed                         none -> ended
                requested -> void, accepted -> void

    - requested to accepted: the engine answered the request, or knew the id already.
    - to confirmed: all tasks run, or a savepoint of it was taken. A start whose answer was lost
      is confirmed, too, when it is seen to run. From now on it needs no `base`, the incarnation
      before it, whose state was the newest until then.
    - to void: the engine refused it, or its id was fenced, or it ended before its first
      checkpoint. It does not leave this state: the next start has another attempt.
    - none to stopping: a stop with a savepoint; to ended without it: cancelled, fenced, or
      a start that failed was settled. `savepoint` says where an ended one left its state (None:
      cancelled, or stateless). It does not leave this state, either.

    An incarnation that its engine ended by itself is not `ended`: it ought to run, and is repaired.

    `former_sinks` are the client ids, oldest first, under which earlier incarnations told the
    last number that they sent over the same sink link: the id changes with the job's source,
    and what was sent under an old one may still wait for a slow reader. `stale` are those of
    links that it has left, which are still to be cleared.

    `restored` is the state that it was started with, as its engine names it: still its newest
    until it completes a checkpoint. `carried` is a copy of its state at a site that cannot read
    the site's own storage. `left` are states that it and those before it were started from.
    """

    job: Job
    attempt: int
    engine_job_id: str
    start: StartState = StartState.REQUESTED
    end: EndState = EndState.NONE
    savepoint: str | None = None
    base: Incarnation | None = None
    former_sinks: tuple[str, ...] = ()
    restored: str | None = None
    carried: Carried | None = None
    left: tuple[Left, ...] = ()
    stale: tuple[StaleSink, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether its engine took it on, and it was not seen to run yet."""
        return self.start is StartState.ACCEPTED

    @property
    def confirmed(self) -> bool:
        """Whether it ran."""
        return self.start is StartState.CONFIRMED

    @property
    def void(self) -> bool:
        """Whether there is no state of its own, and never will be."""
        return self.start is StartState.VOID

    @property
    def stopping(self) -> bool:
        """Whether a stop with a savepoint is under way."""
        return self.end is EndState.STOPPING

    @property
    def ended(self) -> bool:
        """Whether speck itself brought it to its end."""
        return self.end is EndState.ENDED

    @property
    def may_arrive(self) -> bool:
        """Whether its start may still be on its way: the engine's answer was never heard."""
        return self.start is StartState.REQUESTED and not self.ended

    @property
    def homes(self) -> frozenset[str]:
        """The sites where the newest state of the job may lie."""
        own = frozenset() if self.void else frozenset({self.job.site})
        return own | (self.base.homes if self.base is not None else frozenset())

    @property
    def has_state(self) -> bool:
        """Whether the job has run, and so may have left state."""
        return self.confirmed or self.base is not None


@dataclass(frozen=True, slots=True)
class Session:
    """A reader's session on a broker. `reserved` is false while only intended.

    `job_name` is None for a reader outside speck (`outputs` with a client_id). `owed` are the
    last numbers (producer, epoch, number) that a drain found not taken yet; they outlive it
    when it fails, since their producers go on elsewhere and no longer tell them.

    When one job follows another as the reader of a link, the new one's session is reserved
    while the link is fed and holds what the old one will take until it stops. It `follows` that
    session (its client id) until the numbers that the old reader has taken are handed over:
    they are `skip`, and the old session is then `followed_by` the new one, whose `former` it is.
    Such an old session goes on holding what comes, as the way back, until the new reader has
    started. Of several that follow one, the last is remembered by it; those that read `beside` the
    one which takes its place do something else, and it cannot go on for them.

    `drained`: its reader has taken all that is its own and was stopped since, on a link that its
    producers have left. What comes later belongs to others: to be read again, such a session
    begins anew.
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

    @property
    def reader(self) -> str:
        return self.job_name or self.client_id

    @property
    def usable(self) -> bool:
        """Whether a reader may go on in it."""
        return self.reserved and not self.drained


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything speck deployed within one plan's scope.

    `attempts` holds the highest attempt ever used by a job name, removed jobs included:
    an engine never sees an id twice.
    """

    jobs: Mapping[str, Incarnation] = field(default_factory=dict)
    sessions: tuple[Session, ...] = ()
    attempts: Mapping[str, int] = field(default_factory=dict)
