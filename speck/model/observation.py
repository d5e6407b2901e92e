"""The state that engines and brokers report; plain data, collected by `speck.sites.observer`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from speck.model.engines import ArtifactKind, EngineAt


class RunState(StrEnum):
    """The state of one incarnation as its engine reports it, reduced to what decisions need."""

    STARTING = "starting"  # accepted, not all tasks run yet
    RUNNING = "running"  # every task runs
    RESTARTING = "restarting"  # the engine itself brings it back after a failure
    STOPPING = "stopping"
    FINISHED = "finished"
    CANCELED = "canceled"
    FAILED = "failed"

    @property
    def terminal(self) -> bool:
        return self in (RunState.FINISHED, RunState.CANCELED, RunState.FAILED)


@dataclass(frozen=True, slots=True)
class Slots:
    """Task slots of an engine."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class EngineJob:
    """One job in an engine's list. `tasks_total` is 0 until the engine has planned the job."""

    engine_job_id: str
    name: str
    state: RunState
    tasks_running: int = 0
    tasks_total: int = 0


@dataclass(frozen=True, slots=True)
class EngineView:
    """A report of a site's engine: its version, its slots and every job that it knows, by id.

    Where another engine runs beside it, the report is of both. Each takes other kinds of artifacts:
    `silent` are those of the one that did not answer, with the reason, so that nothing is known of
    their jobs; the jobs of those in `beside` take none of the slots.
    """

    version: str
    slots: Slots | None
    jobs: Mapping[str, EngineJob]
    silent: Mapping[ArtifactKind, str] = field(default_factory=dict)
    beside: frozenset[ArtifactKind] = frozenset()

    @property
    def silence(self) -> str | None:
        """Why one of two engines did not answer; None: all have answered."""
        return next(iter(self.silent.values()), None)

    def find_slots(self, artifact: ArtifactKind) -> Slots | None:
        """The slots that a job of such an artifact takes; None: it needs none, as far as is
        known."""
        return None if artifact in self.beside else self.slots


Position = Mapping[tuple[str, int], int]
"""A place on a link: the number of all that lies before it, by (series, epoch). In most cases a
series is a producer; at a broker that keeps a log it is a part of that. Only the broker's binder,
readers and writers know which; everybody else compares and adds up."""

Ranges = tuple[tuple[int, int], ...]
"""Disjoint ranges (first, last) of numbers in rising order, both ends included."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The numbers that a reader has taken: producer -> epoch -> highest contiguous number.

    `above` are the ranges that it has taken beyond a gap. `mark` is the last mark that reached it
    through its session (see `MessageBroker.mark`): it has taken every message queued before it.
    `dropped` messages found no room in the reader (at_most_once).
    """

    checkpoint: int
    taken: Mapping[str, Mapping[int, int]]
    missing: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    messages: int = 0
    at_ms: int = 0
    above: Mapping[str, Mapping[int, Ranges]] = field(default_factory=dict)
    mark: str | None = None
    dropped: int = 0

    def epochs(self) -> tuple[TakenEpoch, ...]:
        """The numbers as records, in the reader's order of epochs."""
        return tuple(
            TakenEpoch(producer, epoch, upto, self.above.get(producer, {}).get(epoch, ()))
            for producer, epochs in self.taken.items()
            for epoch, upto in epochs.items()
        )


@dataclass(frozen=True, slots=True)
class TakenEpoch:
    """What was taken of one epoch of a producer: all numbers up to `upto`, and those in `above`."""

    producer: str
    epoch: int
    upto: int
    above: Ranges = ()


def includes(taken: Iterable[TakenEpoch], producer: str, epoch: int, number: int) -> bool:
    """Whether a message is among those that were taken."""
    return any(
        number <= each.upto or any(first <= number <= last for first, last in each.above)
        for each in taken
        if (each.producer, each.epoch) == (producer, epoch)
    )


def merge_taken(*parts: Iterable[TakenEpoch]) -> tuple[TakenEpoch, ...]:
    """Merge what several readers have taken, in the order in which epochs first appear."""
    merged: dict[tuple[str, int], TakenEpoch] = {}
    for part in parts:
        for each in part:
            key = (each.producer, each.epoch)
            merged[key] = _merge(merged[key], each) if key in merged else each
    return tuple(merged.values())


def _merge(one: TakenEpoch, other: TakenEpoch) -> TakenEpoch:
    ranges = sorted([(0, one.upto), (0, other.upto), *one.above, *other.above])
    union: list[tuple[int, int]] = []
    for first, last in ranges:
        if union and first <= union[-1][1] + 1:
            union[-1] = (union[-1][0], max(last, union[-1][1]))
        else:
            union.append((first, last))
    return TakenEpoch(one.producer, one.epoch, union[0][1], tuple(union[1:]))


@dataclass(frozen=True, slots=True)
class Sent:
    """The last number that a sink knows to be delivered.

    `unread` is the number of messages that the sink holds back now, since the broker reports no
    subscriber on a link that should have readers. `topic` is the topic of the link: the same
    client id may have published to another topic of this broker before (None: not reported).

    `refused` is the number of records that it holds back now since the broker refuses them, for
    the reason `problem`. It has `left_out` records that no broker would take, and `lost` those that
    its settings allow to be lost.
    """

    producer: str
    epoch: int
    number: int
    at_ms: int = 0
    unread: int = 0
    topic: str | None = None
    refused: int = 0
    left_out: int = 0
    lost: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A broker's bookkeeping: readers' taken numbers and sinks' sent numbers by client id.

    `uptime_s` is how long the broker has been running, `dropped` how many messages it has dropped
    in that time because a queue was full. The broker publishes both every 10 s by default; None:
    not published. `up_since` is a time (monotonic) from which on it has certainly been running
    without a break; None: not known. It was started after `started_after` for certain, since what
    it publishes may be somewhat old; None: at `up_since`. `readers` holds for each announced topic
    whether it has readers. `sessions` are those that were made for readers, as (client id, topic):
    a broker that was killed has lost those that are missing. `identity` is the one that speck gave
    it (`MessageBroker.identify`). `bridges` are the names of its bridges to other brokers, as both
    ends publish them.

    A broker that keeps logs knows more: `ends` holds by topic the position of its end now, whoever
    wrote there, and its readers' `taken` are positions in the same series, read before the ends;
    then no sink reports anything. Each topic with a session has its end there, also one that nobody
    has written to. What such a broker has deleted before a reader took it is `missing` there. A
    reader whose place lies behind the end has lost it: the log was cut, or made anew.
    """

    taken: Mapping[str, Taken]
    sent: Mapping[str, Sent]
    uptime_s: int | None = None
    dropped: int | None = None
    readers: Mapping[str, bool] = field(default_factory=dict)
    sessions: frozenset[tuple[str, str]] = frozenset()
    identity: str | None = None
    bridges: frozenset[str] = frozenset()
    up_since: float | None = None
    started_after: float | None = None
    ends: Mapping[str, Position] = field(default_factory=dict)

    def knows(self, topic: str, sink: str) -> bool:
        """Whether it is known what `sink` delivered to `topic`."""
        return topic in self.ends or self.find_sent(topic, sink) is not None

    def find_position(self, reader: str, topic: str) -> Position | None:
        """Where a reader stands in a log; a part of the log that is not named is read from its
        beginning. None if it has no place there, or the broker keeps no logs."""
        report = self.taken.get(reader)
        if topic not in self.ends or report is None:
            return None
        return {
            (series, epoch): report.taken[series][epoch]
            for series, epoch in self.ends[topic]
            if epoch in report.taken.get(series, {})
        }

    def find_last(
        self, topic: str, sinks: Iterable[str], owed: Iterable[tuple[str, int, int]] = ()
    ) -> dict[tuple[str, int], int]:
        """The last position on a link, (series, epoch) -> number: what `sinks` report, and the last
        numbers `owed` that no sink reports any more; at a broker that keeps a log, its end. A log
        that was made anew has other series: what is owed of the former ones never comes."""
        if topic in self.ends:
            return dict(self.ends[topic])
        last = {(producer, epoch): number for producer, epoch, number in owed}
        for sink in sinks:
            if (sent := self.find_sent(topic, sink)) is not None:
                key = (sent.producer, sent.epoch)
                last[key] = max(sent.number, last.get(key, 0))
        return last

    def find_sent(self, topic: str, sink: str) -> Sent | None:
        """The last number that `sink` delivered to `topic`; None unless it reports one."""
        sent = self.sent.get(sink)
        return sent if sent is not None and sent.topic in (None, topic) else None

    def sinks_of(self, topic: str, sinks: Iterable[str]) -> list[str]:
        """Those of `sinks` that report what they delivered to `topic`."""
        return [sink for sink in sinks if self.find_sent(topic, sink) is not None]

    def lag(
        self, reader: str, topic: str, sinks: list[str], owed: Iterable[tuple[str, int, int]] = ()
    ) -> int | None:
        """Count the messages sent by `sinks` to `topic` that `reader` has not taken; None: not
        known.

        This is an upper bound: see `untaken`. `owed` are last numbers (producer, epoch, number)
        that no sink reports any more.
        """
        if topic not in self.ends and (not sinks or any(sink not in self.sent for sink in sinks)):
            return None
        return self.untaken(reader, self.find_last(topic, sinks, owed))

    def untaken(self, reader: str, last: Position, within: Iterable[TakenEpoch] = ()) -> int:
        """Count the messages up to `last` ((producer, epoch) -> number) that `reader` has not
        reported as taken; of the epochs in `within`, only numbers in it. This is more than waits
        for it if it subscribed after some of them were sent and has taken none since, or if it has
        lost its state.

        If the reader has not taken the beginning of an epoch, it subscribed after the messages
        below the first number that it has: a session delivers in order.

        Readers report only the last few epochs of a producer. An epoch that is not reported counts
        as taken if a later one of `last` is reported: a session delivers in order. Other epochs
        that the reader reports prove nothing: they may belong to another link, or to a job of the
        same name in another composition, whose attempts are counted separately.
        """
        report = self.taken.get(reader)
        taken = report.taken if report else {}
        holes = {
            key: _count_missing(last.get(key, 0), each.upto, each.above)
            for each in within
            if (key := (each.producer, each.epoch))
        }
        newest: dict[str, int] = {}
        for producer, epoch in last:
            if epoch in taken.get(producer, {}):
                newest[producer] = max(epoch, newest.get(producer, epoch))
        waiting = 0
        for (producer, epoch), number in last.items():
            upto = taken.get(producer, {}).get(epoch)
            left = holes.get((producer, epoch), 0)
            if report is not None and upto is not None:
                above = report.above.get(producer, {}).get(epoch, ())
                waiting += max(0, _count_missing(number, upto, above) - left)
            elif epoch >= newest.get(producer, epoch):
                waiting += number - left
        return waiting

    def has_last(self, reader: str, last: Position) -> bool:
        """Whether `reader` has taken each number of `last` ((producer, epoch) -> number) or a
        later one, even if it has missed earlier numbers."""
        report = self.taken.get(reader)
        highest = {
            (each.producer, each.epoch): each.above[-1][1] if each.above else each.upto
            for each in (report.epochs() if report else ())
        }
        return all(highest.get(key, 0) >= number for key, number in last.items())


def _count_missing(last: int, upto: int, above: Ranges) -> int:
    """Count the numbers up to `last` that are greater than `upto` and not in `above`. If `upto` is
    0, the first range of `above` is the beginning."""
    if not upto and above:
        upto, above = above[0][1], above[1:]
    inside = sum(max(0, min(end, last) - begin + 1) for begin, end in above)
    return max(0, last - upto - inside)


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of all sites concerned. A site that did not answer is only in `unreachable`; of one
    that has two engines, one may have answered (`EngineView.silent`)."""

    engines: Mapping[str, EngineView]
    brokers: Mapping[str, BrokerView] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)

    def has_answer(self, engine: EngineAt) -> bool:
        """Whether an engine has reported its jobs."""
        view = self.engines.get(engine.site)
        return view is not None and engine.artifact not in view.silent

    def job(self, site: str, engine_job_id: str) -> EngineJob | None:
        view = self.engines.get(site)
        return view.jobs.get(engine_job_id) if view else None
