"""What holds of sessions once an incarnation has begun, however that was noticed: by the answer to
its start, or later, since the service died before that came.

The caller holds the locks of the sessions, and stores the result with the incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from speck.binding import StreamEngine
from speck.errors import EngineRefusedError
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation, Session, StartState
from speck.store.records import Records
from speck.store.tables import Batch


def is_unheard(stored: Incarnation) -> bool:
    """Whether no answer to its start is stored: if it runs, or has run, its sessions begin once
    that is noticed."""
    return stored.start is StartState.REQUESTED


def left_state(engine: StreamEngine, incarnation: Incarnation) -> bool:
    """Whether an incarnation that is over has left state of its own. False if its engine does not
    say. Raises TransientError if that does not answer."""
    try:
        state = engine.newest_state(incarnation.engine_job_id)
    except EngineRefusedError:
        return False
    return state is not None and state.location != incarnation.restored


def put_noticed(records: Records, scope: str, stored: Incarnation, noticed: Incarnation) -> Batch:
    """The writes for an incarnation of which its engine shows more than is stored."""
    batch = records.incarnations.put(scope, noticed)
    if is_unheard(stored):
        sessions = records.inventory(scope).sessions
        for each in begin_sessions(records.installation, stored, sessions):
            batch |= records.sessions.put(scope, each)
    return batch


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
