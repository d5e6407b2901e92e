"""Finds messages at the end of a sink's numbers that its broker has lost, and nobody sends again.

A broker that is killed forgets what came after its last autosave. A sink that runs sends it again.
One that was stopped may not be able to (`speck.deploy.operations.resending`), one that has finished
is not; and one that failed with its broker goes on in a new epoch, with what its checkpoint kept.
No reader sees a gap then: no later number of that epoch
comes. What is known is the last number that the sink reported before, the one that the broker
reports since, and what each reader has taken. Pure; the time is passed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from speck.model.observation import BrokerView
from speck.monitor.links import FOR_GOOD_S, News, ReaderOf

KEPT_S = 600.0
"""The last number of a sink that reports nothing any more is remembered for so long: a broker that
forgets that it was cleared reports an earlier one."""

_Epoch = tuple[str, str, int]
"""(site, producer, epoch)"""


@dataclass(frozen=True, slots=True)
class _Tail:
    """The last `number` of an epoch, as its sink had reported it before it was reported last (`at`,
    monotonic; while the broker does not answer, the time of its last poll). `left` is the number
    that the broker reports instead since `since`, as far as a queue may hold the messages up to it:
    None if only a later epoch is reported."""

    topic: str
    number: int
    at: float
    left: int | None = None
    since: float | None = None
    reports: Mapping[str, int] = field(default_factory=dict)
    """When readers had made (Unix ms) the reports that the broker had then: it may have forgotten
    newer ones."""
    reported: Mapping[str, int] = field(default_factory=dict)
    """How many messages of it have been reported as lost, by the client id of their reader."""


TailMemory = Mapping[_Epoch, _Tail]


def judge_tails(
    now: float,
    views: Mapping[str, BrokerView | None],
    readers: Mapping[str, list[ReaderOf]],
    before: TailMemory,
) -> tuple[TailMemory, list[News]]:
    """The last numbers with those of these polls, and what has been lost for good."""
    silent = {site for site, view in views.items() if view is None}
    after = {key: _keep(tail, now, key[0] in silent) for key, tail in before.items()}
    after = {key: tail for key, tail in after.items() if now - tail.at < KEPT_S}
    news: list[News] = []
    for site, view in sorted(views.items()):
        if view is not None:
            _record_reports(now, site, view, after)
    for key, tail in list(after.items()):
        view = views.get(key[0])
        if view is None or tail.since is None or now - tail.since < FOR_GOOD_S:
            continue
        for reader in readers.get(key[0], []):
            if reader.topic != tail.topic or not _reports_anew(view, reader.client_id, tail):
                continue
            lost = count_lost(view, reader.client_id, key[1], key[2], tail.number, tail.left)
            new = lost - tail.reported.get(reader.client_id, 0)
            if new > 0:
                news.append(News("lost", key[0], new, reader, key[1]))
                tail = replace(tail, reported={**tail.reported, reader.client_id: lost})
        after[key] = tail
    return after, news


def _keep(tail: _Tail, now: float, silent: bool) -> _Tail:
    """While its broker does not answer, a tail does not grow old."""
    return replace(tail, at=now) if silent else tail


def _record_reports(now: float, site: str, view: BrokerView, tails: dict[_Epoch, _Tail]) -> None:
    newest: dict[tuple[str, str], int] = {}
    reports = {reader: taken.at_ms for reader, taken in view.taken.items()}
    for sent in view.sent.values():
        if sent.topic is None:
            continue
        key, place = (site, sent.producer, sent.epoch), (sent.producer, sent.topic)
        newest[place] = max(sent.epoch, newest.get(place, sent.epoch))
        tail = tails.get(key)
        if tail is None or sent.number >= tail.number:
            tails[key] = _Tail(sent.topic, sent.number, now)
        elif tail.left is None or tail.since is None or sent.number > tail.left:
            tails[key] = replace(tail, at=now, left=sent.number, since=now, reports=reports)
        else:
            tails[key] = replace(tail, at=now)
    for key, tail in list(tails.items()):
        is_former = key[0] == site and key[2] < newest.get((key[1], tail.topic), key[2])
        if is_former and tail.since is None:
            tails[key] = replace(tail, since=now, reports=reports)


def _reports_anew(view: BrokerView, reader: str, tail: _Tail) -> bool:
    """Whether a reader has reported since. One that does not run may have taken more than its
    broker remembers."""
    taken = view.taken.get(reader)
    return taken is not None and taken.at_ms > tail.reports.get(reader, -1)


def count_lost(
    view: BrokerView, reader: str, producer: str, epoch: int, number: int, left: int | None
) -> int:
    """Messages up to the last `number` of an epoch that no queue holds and a reader has not taken.
    Its queue may hold those up to `left`. If that is None, it holds the rest, too, unless the
    reader has taken messages of a later epoch: a session delivers in order. 0 for a reader that
    does not report what it has taken of the epoch."""
    report = view.taken.get(reader)
    taken = report.taken.get(producer, {}) if report is not None else {}
    if report is None or epoch not in taken:
        return 0
    if left is None and not any(each > epoch for each in taken):
        return 0
    above = report.above.get(producer, {}).get(epoch, ())
    highest = above[-1][1] if above else taken[epoch]
    return max(0, number - max(highest, left or 0))
