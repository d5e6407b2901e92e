"""Compares polls of brokers to detect restarts and lost messages. Pure; the time is passed in.

A restarted broker may have lost sessions. Lost messages are counted once: those that a broker
dropped because a queue was full, and numbers that a reader never gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from speck.model.observation import BrokerView

SLACK_S = 30.0
"""How far a broker's reported uptime may lag behind: it is reported every 10 s by default."""

FOR_GOOD_S = 60.0
"""A number that is missing for this long will not come: it is lost."""

QUEUE_LIMIT = 1_000_000
"""Messages that a broker keeps for one reader, unless the site's label says otherwise."""

FULL, EMPTIER = 0.8, 0.6
"""A queue is filling up when it passes the first share of its limit, until it falls below the
second."""


@dataclass(frozen=True, slots=True)
class ReaderOf:
    """A reader of a job or an output: its link's topic, and the client ids of the sinks that fed
    it."""

    client_id: str
    topic: str
    job_name: str | None
    scope: str
    sinks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class News:
    """Something that happened at a site's broker, and its amount.

    `kind`: silent, back (`count` seconds), restarted, dropped (`count` messages), lost (`count`
    numbers of `producer`), filling (`count` messages wait).
    """

    kind: str
    site: str
    count: int = 0
    reader: ReaderOf | None = None
    producer: str | None = None


@dataclass(frozen=True, slots=True)
class _Broker:
    uptime_s: int | None
    at: float
    dropped: int = 0
    reported_dropped: int = 0
    reported_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class _Holes:
    """Missing numbers: the fewest since `since`, and how many have been reported as lost."""

    low: int
    since: float
    reported: int


_Hole = tuple[str, str, str, int]
"""(site, reader, producer, epoch)"""


@dataclass(frozen=True, slots=True)
class LinkMemory:
    """What earlier polls showed. `lost` and `dropped` count messages by site since the start."""

    brokers: Mapping[str, _Broker] = field(default_factory=dict)
    silent: Mapping[str, float] = field(default_factory=dict)
    holes: Mapping[_Hole, _Holes] = field(default_factory=dict)
    filling: frozenset[tuple[str, str]] = frozenset()
    lost: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)

    def count(self, news: Iterable[News]) -> LinkMemory:
        """With what these news say of lost and dropped messages."""
        lost, dropped = dict(self.lost), dict(self.dropped)
        for item in news:
            if item.kind in ("lost", "dropped"):
                total = lost if item.kind == "lost" else dropped
                total[item.site] = total.get(item.site, 0) + item.count
        return replace(self, lost=lost, dropped=dropped)


@dataclass(slots=True)
class _BrokerPoll:
    """One poll of one broker."""

    site: str
    now: float
    view: BrokerView
    first: bool
    news: list[News]

    def compare(self, old: _Broker | None) -> _Broker:
        """Detect restarts and dropped messages. The first drop is reported at once, later ones once
        a minute."""
        view, now = self.view, self.now
        has_restarted = old is not None and _has_restarted(old, view.uptime_s, now)
        if has_restarted:
            self.news.append(News("restarted", self.site))
        dropped = view.dropped
        if dropped is None:  # not reported again since it did not change
            dropped = old.dropped if old is not None and not has_restarted else 0
        if old is None:
            return _Broker(view.uptime_s, now, dropped, dropped)
        reported = 0 if has_restarted or dropped < old.reported_dropped else old.reported_dropped
        reported_at = old.reported_at
        if dropped > reported and now - reported_at >= FOR_GOOD_S:
            self.news.append(News("dropped", self.site, dropped - reported))
            reported, reported_at = dropped, now
        return _Broker(view.uptime_s, now, dropped, reported, reported_at)

    def update_holes(self, reader: ReaderOf, before: Mapping[_Hole, _Holes]) -> dict[_Hole, _Holes]:
        """Update the numbers that a reader misses, and report those that are lost for good."""
        taken = self.view.taken.get(reader.client_id)
        holes: dict[_Hole, _Holes] = {}
        for producer, epochs in (taken.missing if taken else {}).items():
            for epoch, value in epochs.items():
                key = self.site, reader.client_id, producer, epoch
                old = before.get(key) or _Holes(value, self.now, value if self.first else 0)
                # what a log has deleted does not come later
                is_deleted = reader.topic in self.view.ends
                low = value if is_deleted else min(old.low, value)
                new = replace(old, low=low, reported=min(old.reported, value))
                if is_deleted or self.now - old.since >= FOR_GOOD_S:
                    if low > new.reported:
                        lost = low - new.reported
                        self.news.append(News("lost", self.site, lost, reader, producer))
                    new = _Holes(value, self.now, max(low, new.reported))
                holes[key] = new
        return holes

    def is_filling(self, reader: ReaderOf, limit: int, *, before: bool) -> bool:
        """Whether the messages that wait for a reader come near the limit of its queue."""
        sinks = self.view.sinks_of(reader.topic, reader.sinks)
        lag = self.view.lag(reader.client_id, reader.topic, sinks) or 0
        if not before and lag > FULL * limit:
            self.news.append(News("filling", self.site, lag, reader))
            return True
        return before and lag > EMPTIER * limit


def judge_links(
    now: float,
    views: Mapping[str, BrokerView | None],
    readers: Mapping[str, list[ReaderOf]],
    before: LinkMemory,
    limits: Mapping[str, int] | None = None,
) -> tuple[LinkMemory, list[News]]:
    """What happened since the previous poll; this one was made at `now` (monotonic seconds).

    `views` holds every broker that was polled again, with None for one that did not answer.
    `readers` are ours by the site of their broker; `limits` are queue limits by site where they
    differ from `QUEUE_LIMIT`.
    """
    news: list[News] = []
    brokers, silent = dict(before.brokers), dict(before.silent)
    holes = {key: hole for key, hole in before.holes.items() if views.get(key[0]) is None}
    filling = set(before.filling)
    for site, view in sorted(views.items()):
        if view is None:
            if site not in silent:
                silent[site] = now
                news.append(News("silent", site))
            continue
        since = silent.pop(site, None)
        if since is not None:
            news.append(News("back", site, round(now - since)))
        poll = _BrokerPoll(site, now, view, site not in brokers, news)
        brokers[site] = poll.compare(brokers.get(site))
        ours = readers.get(site, [])
        for reader in ours:
            holes |= poll.update_holes(reader, before.holes)
            key = site, reader.client_id
            limit = (limits or {}).get(site, QUEUE_LIMIT)
            filling.discard(key)
            if poll.is_filling(reader, limit, before=key in before.filling):
                filling.add(key)
    memory = LinkMemory(brokers, silent, holes, frozenset(filling), before.lost, before.dropped)
    return memory.count(news), news


def _has_restarted(old: _Broker, uptime_s: int | None, now: float) -> bool:
    """Whether a broker's uptime is shorter than it would be without a restart."""
    if old.uptime_s is None or uptime_s is None:
        return False
    return uptime_s < old.uptime_s or now - old.at - (uptime_s - old.uptime_s) > SLACK_S
