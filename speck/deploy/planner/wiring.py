"""The wiring: who leaves, who follows whom, which jobs stand at a cut, what each link still owes.

Each of these is a value that one stage returns and the next ones read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from speck.deploy.planner.decisions import Decision
from speck.deploy.planner.situation import Situation
from speck.model.incarnation import Session
from speck.model.job import Job
from speck.model.link import Link
from speck.model.link_operations import Drain


@dataclass(frozen=True)
class Followers:
    """Who follows whom."""

    predecessors: Mapping[str, Session] = field(default_factory=dict)
    """The session that a new reader's session follows, by the client id of the new one."""
    beside: frozenset[str] = frozenset()
    """Those of them that run beside another follower: that one takes the place of the old
    reader."""
    renewed: frozenset[str] = frozenset()
    """Client ids of sessions that end and are reserved again: their messages belong to another
    reader."""

    def follows(self, former: Session) -> list[str]:
        """The client ids of the sessions that follow one."""
        return [c for c, session in self.predecessors.items() if session == former]

    def follows_reader(self, client_id: str) -> list[str]:
        """The same by the client id of the session that they follow."""
        return [c for c, former in self.predecessors.items() if former.client_id == client_id]


@dataclass(frozen=True)
class Cuts:
    """Where several readers change at the same record, and who stops for that."""

    links: frozenset[Link] = frozenset()
    jobs: frozenset[str] = frozenset()
    """Jobs that stop and start again unchanged, so that all readers that leave or join their output
    change at the same record."""
    stopping: frozenset[str] = frozenset()
    """These, and those that stop there and start again with other links, or not at all: what they
    have sent until then, to any link of their port, is from before the cut."""
    between: frozenset[str] = frozenset()
    """Those of them that take everything sent to them before they stop: they keep reading the same
    link."""
    together: Mapping[Link, frozenset[str]] = field(default_factory=dict)
    """Readers of links that are fed from outside, which stop at the same record: the slower ones
    read on to where the foremost has stopped."""
    switching: frozenset[str] = frozenset()
    """The jobs that change their links at these records."""
    joined_links: frozenset[Link] = frozenset()
    """Those of these links that get a reader which has not taken anything there yet."""
    instead_of: Mapping[str, str] = field(default_factory=dict)
    """The session at another link from which the same records are taken until a cut is committed,
    by the client id of the one from which they are taken then."""
    exchanges: Mapping[Link, Mapping[str, Job]] = field(default_factory=dict)
    """Their readers as they are to run, by the link of the cut and the client id."""

    def find_together(self, job: Job) -> frozenset[str]:
        """The readers that stop at the same record of its link as this one; none if it may stop at
        any."""
        names = self.together.get(job.source, frozenset())
        return names if job.job_name in names else frozenset()


@dataclass(frozen=True)
class Leaving:
    """Who leaves which link."""

    producers: Mapping[Link, Sequence[Decision]] = field(default_factory=dict)
    readers: Mapping[Link, Sequence[tuple[str, str]]] = field(default_factory=dict)
    """The client ids and the names of the readers that stop there."""
    drained_links: frozenset[Link] = frozenset()


@dataclass(frozen=True)
class Debts:
    """What links still owe to the readers that leave them."""

    drains: Mapping[str, Drain] = field(default_factory=dict)
    """How readers take, before they stop, the messages that their followers do not have, by job."""
    emptied: frozenset[str] = frozenset()
    """Client ids of readers whose session is known to be empty after that."""

    def is_drained(self, session: Session) -> bool:
        drain = self.drains.get(session.job_name or "")
        return drain is not None and drain.client_id == session.client_id


@dataclass(frozen=True)
class FirstStage:
    """A stage in which jobs only read the messages that wait for them."""

    kept_jobs: frozenset[str]
    """All other jobs, which stay as they are."""
    handed_back: Mapping[str, Session]
    """The sessions that are followed in this stage already."""
    readers: frozenset[str]
    """Client ids of the sessions that it reserves, or makes anew, on links that its jobs write
    to."""


@dataclass(frozen=True)
class Wiring:
    """All that the steps are made of."""

    situation: Situation
    decisions: Sequence[Decision]
    followers: Followers
    cuts: Cuts
    leaving: Leaving
    debts: Debts
    first: FirstStage | None = None

    @property
    def kept_jobs(self) -> frozenset[str]:
        """The jobs that stay as they are while others read first."""
        return self.first.kept_jobs if self.first is not None else frozenset()
