"""Reports what happened at brokers, and restores lost sessions.

A session is reserved again only if no incarnation can hold it, and while no change of its scope can
start: connecting under a client id that is in use disconnects its holder.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from speck.deploy.changes import Changes
from speck.errors import SpeckError
from speck.model.composition import visible_name
from speck.model.incarnation import Incarnation, Session
from speck.model.observation import BrokerView
from speck.monitor.links import QUEUE_LIMIT, LinkMemory, News, ReaderOf, judge
from speck.sites.connections import Connections
from speck.sites.poll_cache import Poll
from speck.store.records import Records
from speck.store.tables import Batch

LOG = logging.getLogger(__name__)

LIMIT_LABEL = "max_queued_messages"
"""A site's label: how many messages its broker keeps for one reader."""

_SUSPECT = frozenset({"seen", "back", "restarted", "unread"})
_AGAIN_S = 30.0


class Sessions:
    """Keeps the sessions that speck reserved, and counts the messages that links lose."""

    def __init__(self, records: Records, connections: Connections, changes: Changes):
        self._records = records
        self._connections = connections
        self._changes = changes
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="sessions")
        self._under_way: dict[str, Future[None]] = {}
        self._unread_at: dict[str, float] = {}
        self._pending: dict[str, set[tuple[str, str]]] = {}
        self._readers: tuple[tuple[int, int], dict[str, list[ReaderOf]]] = ((-1, -1), {})
        self.memory = LinkMemory()

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(cancel_futures=True)

    @property
    def idle(self) -> bool:
        """Whether nothing is being reserved."""
        return all(future.done() for future in self._under_way.values())

    def lost_at(self, site: str) -> int:
        """Messages dropped by a site's broker, or missing there for good, since the start. What was
        dropped is missing too, except for readers and sinks that do not number their messages."""
        return max(self.memory.lost.get(site, 0), self.memory.dropped.get(site, 0))

    def poll(self, now: float, polls: Mapping[str, Poll[BrokerView]]) -> None:
        """Judge the new polls of brokers, report the findings, and restore lost sessions."""
        sites = self._records.sites()
        limits = {name: _parse_limit(site.labels.get(LIMIT_LABEL)) for name, site in sites.items()}
        views = {site: poll.answer for site, poll in polls.items()}
        readers = self._list_readers()
        self.memory, news = judge(now, views, readers, self.memory, limits)
        events: Batch = {}
        for item in news:
            message = self._describe_news(item, polls, limits)
            if message is not None:
                reader = item.reader
                events |= self._records.event(
                    "session" if item.kind == "restarted" else "site",
                    message,
                    site=item.site,
                    job_name=reader.job_name if reader else None,
                    composition=_composition(reader.scope) if reader else None,
                )
        if events:
            self._records.write(events)
        kinds: dict[str, set[str]] = {}
        for item in news:
            kinds.setdefault(item.site, set()).add(item.kind)
        suspect = sorted(site for site, kinds_of_site in kinds.items() if kinds_of_site & _SUSPECT)
        reserved_sessions = self._find_reserved() if suspect else {}
        for site in suspect:
            kinds_of_site = kinds[site]
            if kinds_of_site == {"unread"}:  # this is reported at each poll
                if now - self._unread_at.get(site, float("-inf")) < _AGAIN_S:
                    continue
                self._unread_at[site] = now
            self._pending.setdefault(site, set()).update(reserved_sessions.get(site, ()))
        for site in sorted(self._pending):
            view = views.get(site)
            if view is not None:
                self._start_repair(site, view, readers.get(site, []))

    def _find_reserved(self) -> dict[str, set[tuple[str, str]]]:
        """Site of a broker -> (scope, client id) of the sessions that were reserved there."""
        sessions: dict[str, set[tuple[str, str]]] = {}
        for scope, session in self._records.all_sessions():
            if session.reserved:
                sessions.setdefault(session.site, set()).add((scope, session.client_id))
        return sessions

    def _list_readers(self) -> dict[str, list[ReaderOf]]:
        """All readers with a session, by the site of their broker."""
        writes = self._records.deployed.writes
        if self._readers[0] != writes:
            sinks = self._records.sinks()
            readers: dict[str, list[ReaderOf]] = {}
            for scope, session in self._records.all_sessions():
                feeding = tuple(sinks.get(session.link, ()))
                reader = ReaderOf(
                    session.client_id, session.link.topic, session.job_name, scope, feeding
                )
                readers.setdefault(session.site, []).append(reader)
            self._readers = writes, readers
        return self._readers[1]

    def _describe_news(
        self, item: News, polls: Mapping[str, Poll[BrokerView]], limits: Mapping[str, int]
    ) -> str | None:
        site, reader = item.site, item.reader
        match item.kind:
            case "silent":
                return f"the broker of site {site} is unreachable: {polls[site].error}"
            case "back":
                return f"the broker of site {site} answers again after {item.count} s"
            case "restarted":
                return f"the broker of site {site} was restarted"
            case "dropped":
                return (
                    f"messages lost at the broker of site {site}: {item.count} were dropped because"
                    " a reader's queue was full"
                )
            case "lost" if reader is not None:
                return (
                    f"messages lost on link {site}/{reader.topic}: {item.count} of"
                    f" {item.producer}, missing at {reader.client_id}"
                )
            case "filling" if reader is not None:
                limit = limits.get(site, QUEUE_LIMIT)
                return (
                    f"{item.count} messages wait for {reader.job_name or reader.client_id} at"
                    f" {site}/{reader.topic}: the broker drops what comes past {limit}"
                )
            case _:
                return None

    # -- restoring sessions ---------------------------------------------------------------

    def _start_repair(self, site: str, view: BrokerView, readers: list[ReaderOf]) -> None:
        """Restore pending sessions. Those that cannot be restored now stay pending until a later
        poll: the event that caused this is not repeated."""
        under_way = self._under_way.get(site)
        if under_way is None or under_way.done():
            some = frozenset(self._pending.pop(site))
            self._under_way[site] = self._pool.submit(self._repair, site, view, readers, some)

    def _repair(
        self,
        site: str,
        view: BrokerView,
        readers: list[ReaderOf],
        some: frozenset[tuple[str, str]],
    ) -> None:
        unread = {
            reader.client_id
            for reader in readers
            if any(view.sent[s].unread for s in view.sinks_of(reader.topic, reader.sinks))
        }
        remainder = set(some)
        for scope, client_id in sorted(some):
            try:
                if self._keep(scope, client_id, site, view, unread=client_id in unread):
                    remainder.discard((scope, client_id))
            except SpeckError as error:
                LOG.warning("cannot keep the session of %s at %s: %s", client_id, site, error)
                break
            except Exception:
                remainder.discard((scope, client_id))
                LOG.exception("cannot keep the session of %s at %s", client_id, site)
        if remainder:
            self._pending.setdefault(site, set()).update(remainder)

    def _keep(
        self, scope: str, client_id: str, site: str, view: BrokerView, *, unread: bool
    ) -> bool:
        """Reserve one session again if it is lost and nobody can hold it; otherwise announce its
        reader if that is missing. False while a change of its scope prevents a decision."""
        with self._changes.quiet(scope) as quiet:
            if not quiet:
                return False
            session = self._records.session(scope, client_id, site)
            if session is None or not session.reserved:
                return True
            broker = self._connections.broker(site)
            if not self._may_be_held(scope, session, unread=unread):
                if not broker.reserve(session.client_id, session.link.topic):
                    broker.ask_again(session.link.topic)
                    self._report_loss(scope, session)
            elif not view.readers.get(session.link.topic, False):
                broker.announce(session.link.topic, readers=True)
            return True

    def _may_be_held(self, scope: str, session: Session, *, unread: bool) -> bool:
        """Whether somebody may be connected under the session's client id.

        A reader outside speck always may, unless the broker reports no reader on the link.
        """
        if session.job_name is None:
            return not unread
        return _may_run(self._records.incarnation(scope, session.job_name))

    def _report_loss(self, scope: str, session: Session) -> None:
        message = (
            f"the session of {session.reader} at {session.site}/{session.link.topic} was lost and"
            " is reserved again; messages that waited in it are sent again only by sinks that keep"
            " what they sent"
        )
        self._records.write(
            self._records.event(
                "session",
                message,
                site=session.site,
                job_name=session.job_name,
                composition=_composition(scope),
            )
        )


def _may_run(incarnation: Incarnation | None) -> bool:
    """Whether an incarnation may run or be on its way: all earlier ones have ended."""
    return incarnation is not None and not incarnation.ended and not incarnation.void


def _composition(scope: str) -> str | None:
    return visible_name(scope)


def _parse_limit(label: str | None) -> int:
    try:
        return int(label) if label is not None else QUEUE_LIMIT
    except ValueError:
        return QUEUE_LIMIT
