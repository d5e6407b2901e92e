"""What holds of sessions once an incarnation has begun, however that was noticed: by the answer to
its start, or later, since the service died before that came.

Without I/O; the caller holds the locks of the sessions, and stores the result with the incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation, Session, StartState


def has_just_begun(stored: Incarnation) -> bool:
    """Whether an incarnation that turns out to run, or to have run, is not stored to have begun."""
    return stored.start is StartState.REQUESTED


def begin_sessions(
    installation: str, incarnation: Incarnation, sessions: Iterable[Session]
) -> list[Session]:
    """The sessions of its scope that change: its own is read from now on, and records behind a cut
    are for the readers that change at the same record (`commits`) as they are to run."""
    before = {each.client_id: each for each in sessions}
    after = dict(before)
    for client_id, job, starts_later in incarnation.commits:
        session = after.get(client_id)
        if session is None or session.link != job.source or not session.usable:
            continue
        begun = session.begun and not starts_later
        after[client_id] = replace(session, committed=True, job=job, begun=begun, instead_of=None)
        old = after.get(session.instead_of or "")
        if old is not None:  # records were taken from it until now
            after[old.client_id] = replace(old, instead_of=client_id)
    job = incarnation.job
    own = source_client_id(installation, job.job_name, job.source)
    if own in after:
        after[own] = replace(after[own], job=job, begun=True, remade=False)
    return [each for name, each in after.items() if each != before[name]]
