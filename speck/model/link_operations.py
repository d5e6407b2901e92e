"""What a plan does to links: the sessions of readers, and the numbers of sinks. Immutable data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from speck.model.job import Job
from speck.model.link import Link
from speck.model.values import cut

DRAIN_LIMIT_S = 300.0
"""How long a reader is drained if its queue may be dropped then."""


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
    reader takes the place of all of them. `job` is the new reader as it is to run. `trusts`: if the
    broker has forgotten what the old one said at its end, what is known of it has to do."""

    kind: ClassVar[str] = "handover"
    site: str
    link: Link
    client_id: str
    job_name: str
    former: str
    former_job: str
    others: tuple[str, ...] = ()
    job: Job | None = None
    trusts: bool = False

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
