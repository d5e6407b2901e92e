"""Reports what happened at brokers, counts the messages that links lose, and has lost sessions
restored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from speck.deploy.changes import Changes
from speck.model.composition import visible_name
from speck.model.engines import EngineAt
from speck.model.observation import BrokerView
from speck.model.values import cut
from speck.monitor.former_epochs import FormerEpochs
from speck.monitor.links import QUEUE_LIMIT, LinkMemory, News, ReaderOf, judge_links
from speck.monitor.lost_sessions import LostSessions
from speck.monitor.lost_tails import TailMemory, judge_tails
from speck.sites.connections import Connections
from speck.sites.poll_cache import Poll
from speck.store.records import Records
from speck.store.tables import Batch

LIMIT_LABEL = "max_queued_messages"
"""A site's label: how many messages its broker keeps for one reader."""

_RESTARTED = frozenset({"back", "restarted"})
"""After these news a broker may have lost sessions again."""


class Sessions:
    """Keeps the sessions that speck reserved, and counts the messages that links lose."""

    def __init__(self, records: Records, connections: Connections, changes: Changes):
        self._records = records
        self.lost_sessions = LostSessions(records, connections, changes)
        self._former_epochs = FormerEpochs(records, changes)
        self._readers: tuple[tuple[int, int], dict[str, list[ReaderOf]]] = ((-1, -1), {})
        self.memory = LinkMemory()
        self._tails: TailMemory = {}
        self.missing: Counter[str] = Counter()
        """Messages that jobs will never receive since the start, by the job's name."""

    def close(self) -> None:
        """Begin nothing more."""
        self.lost_sessions.close()

    @property
    def idle(self) -> bool:
        """Whether nothing is being reserved."""
        return self.lost_sessions.idle

    def lost_at(self, site: str) -> int:
        """Messages dropped by a site's broker, or missing there for good, since the start. What was
        dropped is missing too, except for readers and sinks that do not number their messages."""
        return max(self.memory.lost.get(site, 0), self.memory.dropped.get(site, 0))

    def poll(
        self, now: float, polls: Mapping[str, Poll[BrokerView]], silent: Collection[EngineAt] = ()
    ) -> None:
        """Judge the new polls of brokers, report the findings, restore lost sessions, and renew
        those whose readers are away. `silent`: engines that do not answer."""
        sites = self._records.sites.all()
        limits = {name: _parse_limit(site.labels.get(LIMIT_LABEL)) for name, site in sites.items()}
        views = {site: poll.answer for site, poll in polls.items()}
        self._former_epochs.compare(views)
        readers = self._list_readers()
        self.memory, news = judge_links(now, views, readers, self.memory, limits)
        self._tails, lost = judge_tails(now, views, readers, self._tails)
        self.memory = self.memory.count(lost)
        news += lost
        events: Batch = {}
        for item in news:
            if item.kind == "lost" and item.reader and item.reader.job_name:
                self.missing[item.reader.job_name] += item.count
            message = self._describe_news(item, polls, limits)
            if message is not None:
                reader = item.reader
                events |= self._records.events.make(
                    "session" if item.kind == "restarted" else "site",
                    message,
                    site=item.site,
                    job_name=reader.job_name if reader else None,
                    composition=visible_name(reader.scope) if reader else None,
                )
        if events:
            self._records.write(events)
        self.lost_sessions.restore(
            now, polls, {item.site for item in news if item.kind in _RESTARTED}, silent
        )

    def _list_readers(self) -> dict[str, list[ReaderOf]]:
        """All readers with a session, by the site of their broker."""
        writes = self._records.incarnations.writes, self._records.sessions.writes
        if self._readers[0] != writes:
            sinks = self._records.incarnations.sinks()
            readers: dict[str, list[ReaderOf]] = {}
            for scope, session in self._records.sessions.all():
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
                    f"messages lost on link {site}/{cut(reader.topic)}: {item.count} of"
                    f" {item.producer}, missing at {reader.client_id}"
                )
            case "filling" if reader is not None:
                limit = limits.get(site, QUEUE_LIMIT)
                return (
                    f"{item.count} messages wait for {reader.job_name or reader.client_id} at"
                    f" {site}/{cut(reader.topic)}: the broker drops what comes past {limit}"
                )
            case _:
                return None


def _parse_limit(label: str | None) -> int:
    try:
        return int(label) if label is not None else QUEUE_LIMIT
    except ValueError:
        return QUEUE_LIMIT
