"""Which sessions are to be renewed, before their brokers drop them.

A broker keeps the session of a reader that is away for a limited time, and then drops it with its
messages. To reserve it again begins that time anew. This would disconnect a reader that is there:
so the session of a job is renewed where no incarnation can hold it, or while its engine does not
answer for long, since the whole site may be off. Whether a reader outside speck is there cannot be
known: it renews its session itself by connecting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from speck.binding import Reservation
from speck.model.engines import EngineAt
from speck.model.incarnation import Incarnation, Session
from speck.store.records import Records

FIRST_S = 600.0
"""A reader that is away for so long has its session renewed: only then is it known for how long the
broker keeps it. A restart of a job is over by then."""
SILENT_S = 3600.0
"""The job of an engine that does not answer for so long counts as away. If it runs on unseen, it
connects again, and its links pass nothing on twice."""
_PART = 4
"""A session is renewed when this part of its time is over: brokers may be away for the rest."""
_LEAST_S = 60.0
"""Between two renewals, however short that part is."""
_AGAIN_S = 60.0
"""After so long a session is tried again that could not be renewed."""
_AT_ONCE = 20
"""Sessions of one site that are renewed after a poll: each costs a connection."""

Key = tuple[str, str, str]
"""(site, scope, client id) of a session."""


@dataclass(frozen=True, slots=True)
class _Renewal:
    """When (monotonic) a session is due; None: its broker keeps it for ever."""

    due: float | None


class SessionRenewals:
    """Knows since when readers are away, and when their sessions were renewed."""

    def __init__(self, records: Records):
        self._records = records
        self._silent_since: dict[EngineAt, float] = {}
        self._renewals: dict[Key, _Renewal] = {}
        """Of the sessions whose readers are away. Threads replace entries."""

    def record_silent(self, now: float, engines: Collection[EngineAt]) -> None:
        """These engines do not answer."""
        since = self._silent_since
        self._silent_since = {engine: since.get(engine, now) for engine in engines}

    def find_due(self, now: float, sessions: Mapping[Key, Session]) -> tuple[Key, ...]:
        """Those of the sessions at one site that are to be renewed now, the most urgent first."""
        due: list[tuple[float, Key]] = []
        for key, session in sessions.items():
            if not self.is_away(now, key, session):
                self._renewals.pop(key, None)
                continue
            renewal = self._renewals.setdefault(key, _Renewal(now + FIRST_S))
            if renewal.due is not None and now >= renewal.due:
                due.append((renewal.due, key))
        return tuple(key for _, key in sorted(due)[:_AT_ONCE])

    def is_away(self, now: float, key: Key, session: Session) -> bool:
        """Whether the reader of a session is certainly not connected, or its site seems to be
        off."""
        if session.job_name is None:
            return False
        incarnation = self._records.incarnations.get(key[1], session.job_name)
        if incarnation is None or not may_run(incarnation):
            return True
        return now - self._silent_since.get(incarnation.job.engine, now) >= SILENT_S

    def put_off(self, now: float, key: Key) -> None:
        """A session is being renewed. Unless `note` follows, that has failed or could not be done
        now: the others come first."""
        self._renewals[key] = _Renewal(now + _AGAIN_S)

    def record(self, now: float, key: Key, reservation: Reservation) -> None:
        """A session has been renewed."""
        kept_s = reservation.kept_s
        self._renewals[key] = _Renewal(
            None if kept_s is None else now + max(_LEAST_S, kept_s / _PART)
        )

    def keep_only(self, keys: Iterable[Key]) -> None:
        """Forget the sessions that are gone."""
        for key in self._renewals.keys() - set(keys):
            self._renewals.pop(key, None)


def may_run(incarnation: Incarnation | None) -> bool:
    """Whether an incarnation may run or be on its way: all earlier ones have ended."""
    return incarnation is not None and not incarnation.ended and not incarnation.void
