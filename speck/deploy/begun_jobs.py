"""What holds of sessions once an incarnation has begun, however that was noticed: by the answer to
its start, or later, since the service died before that came.

The caller holds the locks of the sessions, and stores the result with the incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def put_noticed(
    records: Records, scope: str, noticed: Iterable[tuple[Incarnation, Incarnation]]
) -> Batch:
    """The writes for incarnations of which their engines show more than is stored: each as it is
    stored, and as it is."""
    batch: Batch = {}
    sessions = by_client_id(records.inventory(scope).sessions)
    for stored, each in noticed:
        batch |= records.incarnations.put(scope, each)
        if is_unheard(stored):
            sessions |= (changed := begin_sessions(records.installation, stored, sessions))
            for session in changed.values():
                batch |= records.sessions.put(scope, session)
    return batch


def by_client_id(sessions: Iterable[Session]) -> dict[str, Session]:
    """The sessions of a scope by their client ids."""
    return {each.client_id: each for each in sessions}


def begin_sessions(
    installation: str, incarnation: Incarnation, sessions: Mapping[str, Session]
) -> dict[str, Session]:
    """Those of its scope's sessions that change, by client id: its own is read from now on, and
    records behind a cut are for the readers that change at the same record (`commits`) as they are
    to run."""
    changed = dict[str, Session]()

    def find(client_id: str) -> Session | None:
        return changed.get(client_id) or sessions.get(client_id)

    for client_id, job, starts_later in incarnation.commits:
        session = find(client_id)
        if session is None or session.link != job.source or not session.usable:
            continue
        begun = session.begun and not starts_later
        changed[client_id] = replace(session, committed=True, job=job, begun=begun, instead_of=None)
        old = find(session.instead_of or "")
        if old is not None:  # records were taken from it until now
            changed[old.client_id] = replace(old, instead_of=client_id)
    job = incarnation.job
    own = find(source_client_id(installation, job.job_name, job.source))
    if own is not None:
        changed[own.client_id] = replace(own, job=job, begun=True, remade=False)
    return {name: each for name, each in changed.items() if each != sessions[name]}
