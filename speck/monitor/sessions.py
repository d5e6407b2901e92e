"""What the watch does about brokers: tells what happened there, and has lost sessions back.

A session is reserved again only where no incarnation can hold it, and while no change of its
scope can start: connecting under an id that is in use throws its holder out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from speck.deploy.changes import Changes
from speck.errors import SpeckError
from speck.model.composition import visible_name
from speck.model.ids import sink_client_id
from speck.model.incarnation import Incarnation, Session
from speck.model.link import Link
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
    """Keeps the sessions that speck reserved, and counts what links lose."""

    def __init__(self, records: Records, connections: Connections, changes: Changes):
        self._records = records
        self._connections = connections
        self._changes = changes
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="sessions")
        self._under_way: dict[str, Future[None]] = {}
        self._unread_at: dict[str, float] = {}
        self._undone: dict[str, set[tuple[str, str]]] = {}
        self.memory = LinkMemory()

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(cancel_futures=True)

    @property
    def idle(self) -> bool:
        """Whether nothing is being reserved."""
        return all(future.done() for future in self._under_way.values())

    def lost_at(self, site: str) -> int:
        """Messages dropped by a site's broker, or missing there for good, since the start: what
        was dropped is missing too, but for readers and sinks that do not number."""
        return max(self.memory.lost.get(site, 0), self.memory.dropped.get(site, 0))

    def poll(self, now: float, polls: Mapping[str, Poll[BrokerView]]) -> None:
        """Judge what brokers said (those that were looked at anew), tell it, and mend."""
        sites = self._records.sites()
        limits = {name: _limit(site.labels.get(LIMIT_LABEL)) for name, site in sites.items()}
        views = {site: poll.answer for site, poll in polls.items()}
        readers = self._readers()
        self.memory, news = judge(now, views, readers, self.memory, limits)
        events: Batch = {}
        for item in news:
            message = self._message(item, polls, limits)
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
        suspect = sorted(site for site, told in kinds.items() if told & _SUSPECT)
        held = self._held() if suspect else {}
        for site in suspect:
            told = kinds[site]
            if told == {"unread"}:  # that is told at each look
                if now - self._unread_at.get(site, float("-inf")) < _AGAIN_S:
                    continue
                self._unread_at[site] = now
            self._undone.setdefault(site, set()).update(held.get(site, ()))
        for site in sorted(self._undone):
            view = views.get(site)
            if view is not None:
                self._have_mended(site, view, readers.get(site, []))

    def _held(self) -> dict[str, set[tuple[str, str]]]:
        """Site of a broker -> (scope, client id) of the sessions that were reserved there."""
        found: dict[str, set[tuple[str, str]]] = {}
        for scope, session in self._records.all_sessions():
            if session.reserved:
                found.setdefault(session.site, set()).add((scope, session.client_id))
        return found

    def _readers(self) -> dict[str, list[ReaderOf]]:
        """All readers with a session, by the site of their broker."""
        sinks = sinks_of(self._records.all_incarnations().values(), self._records.installation)
        found: dict[str, list[ReaderOf]] = {}
        for scope, held in self._records.all_sessions():
            feeding = tuple(sinks.get(held.link, ()))
            reader = ReaderOf(held.client_id, held.link.topic, held.job_name, scope, feeding)
            found.setdefault(held.site, []).append(reader)
        return found

    def _message(
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
                    f"messages lost at the broker of site {site}: {item.count} were dropped since"
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

    # -- having sessions back -------------------------------------------------------------

    def _have_mended(self, site: str, view: BrokerView, readers: list[ReaderOf]) -> None:
        """What cannot be done now is done at a later look: nothing tells of it once more."""
        under_way = self._under_way.get(site)
        if under_way is None or under_way.done():
            some = frozenset(self._undone.pop(site))
            self._under_way[site] = self._pool.submit(self._mend, site, view, readers, some)

    def _mend(
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
        left = set(some)
        for scope, client_id in sorted(some):
            try:
                if self._keep(scope, client_id, site, view, unread=client_id in unread):
                    left.discard((scope, client_id))
            except SpeckError as error:
                LOG.warning("cannot keep the session of %s at %s: %s", client_id, site, error)
                break
            except Exception:
                left.discard((scope, client_id))
                LOG.exception("cannot keep the session of %s at %s", client_id, site)
        if left:
            self._undone.setdefault(site, set()).update(left)

    def _keep(
        self, scope: str, client_id: str, site: str, view: BrokerView, *, unread: bool
    ) -> bool:
        """Have one session back if it is gone and nobody can hold it; and its announcement.
        False while a change of its scope keeps us from telling."""
        with self._changes.quiet(scope) as quiet:
            if not quiet:
                return False
            held = self._records.session(scope, client_id, site)
            if held is None or not held.reserved:
                return True
            broker = self._connections.broker(site)
            if not self._may_be_held(scope, held, unread=unread):
                if not broker.reserve(held.client_id, held.link.topic):
                    broker.ask_again(held.link.topic)
                    self._tell(scope, held)
            elif not view.readers.get(held.link.topic, False):
                broker.announce(held.link.topic, readers=True)
            return True

    def _may_be_held(self, scope: str, session: Session, *, unread: bool) -> bool:
        """Whether somebody may be connected under the session's id.

        A reader outside speck always may, unless the broker says that the link has no reader.
        """
        if session.job_name is None:
            return not unread
        return _may_run(self._records.incarnation(scope, session.job_name))

    def _tell(self, scope: str, session: Session) -> None:
        message = (
            f"the session of {session.reader} at {session.site}/{session.link.topic} was lost; it"
            " is reserved again, and what waited in it comes once more only from sinks that keep"
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


def sinks_of(deployed: Iterable[Incarnation], installation: str) -> dict[Link, list[str]]:
    """Link -> client ids of the sinks that fed it, former ones too."""
    found: dict[Link, list[str]] = {}
    for each in deployed:
        own = sink_client_id(installation, each.job.job_name, each.job.source)
        found.setdefault(each.job.sink, []).extend((own, *each.former_sinks))
    return found


def _may_run(deployed: Incarnation | None) -> bool:
    """Whether an incarnation may be there, or on its way: those before it had ended."""
    return deployed is not None and not deployed.ended and not deployed.void


def _composition(scope: str) -> str | None:
    return visible_name(scope)


def _limit(label: str | None) -> int:
    try:
        return int(label) if label is not None else QUEUE_LIMIT
    except ValueError:
        return QUEUE_LIMIT
