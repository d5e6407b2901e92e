"""What happens to brokers and to messages on links, from look to look. Pure; time is given.

A broker that began anew may have lost sessions. What is lost is counted once: messages that it
dropped since a queue was full, and numbers that readers miss for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from speck.model.observation import BrokerView

SLACK_S = 30.0
"""How far a broker's uptime may lag behind: it tells it every 10 s, unless configured."""

FOR_GOOD_S = 60.0
"""A number that is missing for so long does not come late: it is lost."""

QUEUE_LIMIT = 1_000_000
"""Messages that a broker keeps for one reader, unless its site's label says otherwise."""

FULL, EMPTIER = 0.8, 0.6
"""A queue is filling up past the first part of its limit, until it is below the second."""


@dataclass(frozen=True, slots=True)
class ReaderOf:
    """A reader of ours: its link's topic, and the client ids of the sinks that fed it."""

    client_id: str
    topic: str
    job_name: str | None
    scope: str
    sinks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class News:
    """Something that happened at a site's broker: what, and how much of it.

    `kind`: silent, back (`count` seconds), restarted, seen (for the first time), dropped
    (`count` messages), lost (`count` numbers of `producer`), filling (`count` messages wait),
    unread (`count` messages are held back, since the broker knows no reader).
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
    told_dropped: int = 0
    told_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class _Holes:
    """Numbers missing: the fewest since `since`, and how many have been told."""

    low: int
    since: float
    told: int


_Hole = tuple[str, str, str, int]
"""(site, reader, producer, epoch)"""


@dataclass(frozen=True, slots=True)
class LinkMemory:
    """What earlier looks said. `lost` and `dropped` count messages by site, from the first."""

    brokers: Mapping[str, _Broker] = field(default_factory=dict)
    silent: Mapping[str, float] = field(default_factory=dict)
    holes: Mapping[_Hole, _Holes] = field(default_factory=dict)
    filling: frozenset[tuple[str, str]] = frozenset()
    lost: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Look:
    """One look at one broker."""

    site: str
    now: float
    view: BrokerView
    first: bool
    news: list[News]

    def broker(self, old: _Broker | None, *, was_silent: bool) -> _Broker:
        """Whether it began anew, and what it dropped; a rise is told at once, then each minute."""
        view, now = self.view, self.now
        restarted = old is not None and _restarted(old, view.uptime_s, now)
        if old is None and not was_silent:
            self.news.append(News("seen", self.site))
        if restarted:
            self.news.append(News("restarted", self.site))
        dropped = view.dropped
        if dropped is None:  # not told again since it did not change
            dropped = old.dropped if old is not None and not restarted else 0
        if old is None:
            return _Broker(view.uptime_s, now, dropped, dropped)
        told = 0 if restarted or dropped < old.told_dropped else old.told_dropped
        told_at = old.told_at
        if dropped > told and now - told_at >= FOR_GOOD_S:
            self.news.append(News("dropped", self.site, dropped - told))
            told, told_at = dropped, now
        return _Broker(view.uptime_s, now, dropped, told, told_at)

    def holes(self, reader: ReaderOf, before: Mapping[_Hole, _Holes]) -> dict[_Hole, _Holes]:
        """What a reader misses; lost is what it misses for good."""
        seen = self.view.taken.get(reader.client_id)
        found: dict[_Hole, _Holes] = {}
        for producer, epochs in (seen.missing if seen else {}).items():
            for epoch, value in epochs.items():
                key = self.site, reader.client_id, producer, epoch
                old = before.get(key) or _Holes(value, self.now, value if self.first else 0)
                low = min(old.low, value)
                new = replace(old, low=low, told=min(old.told, value))
                if self.now - old.since >= FOR_GOOD_S:
                    if low > new.told:
                        lost = low - new.told
                        self.news.append(News("lost", self.site, lost, reader, producer))
                    new = _Holes(value, self.now, max(low, new.told))
                found[key] = new
        return found

    def filling(self, reader: ReaderOf, limit: int, *, before: bool) -> bool:
        """Whether what waits for a reader comes near what its broker keeps for it."""
        sinks = self.view.sinks_of(reader.topic, reader.sinks)
        lag = self.view.lag(reader.client_id, sinks) or 0
        if not before and lag > FULL * limit:
            self.news.append(News("filling", self.site, lag, reader))
            return True
        return before and lag > EMPTIER * limit

    def unread(self, readers: list[ReaderOf]) -> None:
        """Messages that a sink holds back, for each of the link's readers."""
        for reader in readers:
            sinks = self.view.sinks_of(reader.topic, reader.sinks)
            held = sum(self.view.sent[sink].unread for sink in sinks)
            if held:
                self.news.append(News("unread", self.site, held, reader))


def judge(
    now: float,
    views: Mapping[str, BrokerView | None],
    readers: Mapping[str, list[ReaderOf]],
    before: LinkMemory,
    limits: Mapping[str, int] | None = None,
) -> tuple[LinkMemory, list[News]]:
    """What happened since the look before, made at `now` (monotonic seconds).

    `views` holds every broker that was looked at anew, None for one that is silent; `readers`
    are ours by the site of their broker; `limits` the sites whose queues are not `QUEUE_LIMIT`.
    """
    news: list[News] = []
    brokers, silent, holes = dict(before.brokers), dict(before.silent), dict(before.holes)
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
        poll = _Look(site, now, view, site not in brokers, news)
        brokers[site] = poll.broker(brokers.get(site), was_silent=since is not None)
        holes = {key: kept for key, kept in holes.items() if key[0] != site}
        ours = readers.get(site, [])
        poll.unread(ours)
        for reader in ours:
            holes |= poll.holes(reader, before.holes)
            key = site, reader.client_id
            limit = (limits or {}).get(site, QUEUE_LIMIT)
            filling.discard(key)
            if poll.filling(reader, limit, before=key in before.filling):
                filling.add(key)
    lost, dropped = dict(before.lost), dict(before.dropped)
    for item in news:
        if item.kind in ("lost", "dropped"):
            total = lost if item.kind == "lost" else dropped
            total[item.site] = total.get(item.site, 0) + item.count
    return LinkMemory(brokers, silent, holes, frozenset(filling), lost, dropped), news


def _restarted(old: _Broker, uptime_s: int | None, now: float) -> bool:
    """Whether it has run for less long than it would have, had it gone on."""
    if old.uptime_s is None or uptime_s is None:
        return False
    return uptime_s < old.uptime_s or now - old.at - (uptime_s - old.uptime_s) > SLACK_S
