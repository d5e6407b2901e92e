"""What engines and brokers say is there now; plain data, made by `speck.sites.observer`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class RunState(StrEnum):
    """An engine's word on one incarnation, reduced to what decisions need."""

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
    """One job as an engine lists it; `tasks_total` is 0 while the engine has not planned it."""

    engine_job_id: str
    name: str
    state: RunState
    tasks_running: int = 0
    tasks_total: int = 0


@dataclass(frozen=True, slots=True)
class EngineView:
    """An engine's answer: version, slots and every job it knows, by id."""

    version: str
    slots: Slots | None
    jobs: Mapping[str, EngineJob]


Ranges = tuple[tuple[int, int], ...]
"""Disjoint, rising (first, last) of numbers, both included."""


@dataclass(frozen=True, slots=True)
class Taken:
    """How far a reader has taken: producer -> epoch -> highest contiguous number.

    `above` are the ranges that it has taken past a hole. `mark` is the last that came to it
    through its session (see `MessageBroker.mark`): all that waited there before it is taken.
    """

    checkpoint: int
    taken: Mapping[str, Mapping[int, int]]
    missing: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    messages: int = 0
    at_ms: int = 0
    above: Mapping[str, Mapping[int, Ranges]] = field(default_factory=dict)
    mark: str | None = None

    def epochs(self) -> tuple[TakenEpoch, ...]:
        """The numbers as plain records, in the reader's order of epochs."""
        return tuple(
            TakenEpoch(producer, epoch, upto, self.above.get(producer, {}).get(epoch, ()))
            for producer, epochs in self.taken.items()
            for epoch, upto in epochs.items()
        )


@dataclass(frozen=True, slots=True)
class TakenEpoch:
    """Of one epoch of a producer: all numbers up to `upto` were taken, and those `above`."""

    producer: str
    epoch: int
    upto: int
    above: Ranges = ()


def merge_taken(*parts: Iterable[TakenEpoch]) -> tuple[TakenEpoch, ...]:
    """What was taken by any of several readers, in the order in which epochs first appear."""
    merged: dict[tuple[str, int], TakenEpoch] = {}
    for part in parts:
        for each in part:
            key = (each.producer, each.epoch)
            merged[key] = _union(merged[key], each) if key in merged else each
    return tuple(merged.values())


def _union(one: TakenEpoch, other: TakenEpoch) -> TakenEpoch:
    ranges = sorted([(0, one.upto), (0, other.upto), *one.above, *other.above])
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return TakenEpoch(one.producer, one.epoch, joined[0][1], tuple(joined[1:]))


@dataclass(frozen=True, slots=True)
class Sent:
    """The last number that a sink knows to be delivered.

    `unread` messages are held back by the sink now, since the broker says that nobody reads
    the link though it has readers. `topic` is the link's: a client id may have published to
    another topic of the broker before (None: the sink does not say).
    """

    producer: str
    epoch: int
    number: int
    at_ms: int = 0
    unread: int = 0
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A broker's bookkeeping: readers' taken numbers and sinks' sent numbers by client id.

    `uptime_s` is how long the broker runs, `dropped` how many messages it has dropped in that
    time since a queue was full; both as it told them last (every 10 s by default), None where
    it does not. `readers` are the topics that are announced to have readers (true) or none.
    """

    taken: Mapping[str, Taken]
    sent: Mapping[str, Sent]
    uptime_s: int | None = None
    dropped: int | None = None
    readers: Mapping[str, bool] = field(default_factory=dict)

    def sent_to(self, topic: str, sink: str) -> Sent | None:
        """The last number that `sink` delivered to `topic`, if it says so."""
        sent = self.sent.get(sink)
        return sent if sent is not None and sent.topic in (None, topic) else None

    def sinks_of(self, topic: str, sinks: Iterable[str]) -> list[str]:
        """Those of `sinks` that say what they delivered to `topic`."""
        return [sink for sink in sinks if self.sent_to(topic, sink) is not None]

    def lag(
        self, reader: str, sinks: list[str], owed: Iterable[tuple[str, int, int]] = ()
    ) -> int | None:
        """Messages sent by `sinks` that `reader` has not taken; None when it is not known.

        At most so many: see `untaken`. `owed` are last numbers (producer, epoch, number) that
        nobody tells any more.
        """
        if not sinks or any(sink not in self.sent for sink in sinks):
            return None
        last = {(producer, epoch): number for producer, epoch, number in owed}
        for told in (self.sent[sink] for sink in sinks):
            key = (told.producer, told.epoch)
            last[key] = max(told.number, last.get(key, 0))
        return self.untaken(reader, last)

    def untaken(self, reader: str, last: Mapping[tuple[str, int], int]) -> int:
        """Of the messages up to `last` ((producer, epoch) -> number), those `reader` has not told
        to have taken: more than wait for it, when it came after some of them were sent and has
        taken none since, or has lost its memory.

        Of an epoch whose beginning it has not taken, it came after what lies below the first
        number that it has: a session delivers in order.

        Readers list the last few epochs of a producer only. One that is not listed counts as
        taken when a later one of `last` is: a session delivers in order. Other epochs that the
        reader lists prove nothing: they may be of another link, or of a job of that name in
        another composition, whose attempts were counted apart.
        """
        seen = self.taken.get(reader)
        taken = seen.taken if seen else {}
        newest: dict[str, int] = {}
        for producer, epoch in last:
            if epoch in taken.get(producer, {}):
                newest[producer] = max(epoch, newest.get(producer, epoch))
        waiting = 0
        for (producer, epoch), number in last.items():
            listed = taken.get(producer, {}).get(epoch)
            if seen is not None and listed is not None:
                above = seen.above.get(producer, {}).get(epoch, ())
                waiting += _not_in(number, listed, above)
            elif epoch >= newest.get(producer, epoch):
                waiting += number
        return waiting

    def has_last(self, reader: str, last: Mapping[tuple[str, int], int]) -> bool:
        """Whether `reader` has taken each number of `last` ((producer, epoch) -> number), or a
        later one, whatever it has missed below."""
        seen = self.taken.get(reader)
        highest = {
            (each.producer, each.epoch): each.above[-1][1] if each.above else each.upto
            for each in (seen.epochs() if seen else ())
        }
        return all(highest.get(key, 0) >= number for key, number in last.items())


def _not_in(last: int, upto: int, above: Ranges) -> int:
    """How many numbers up to `last` are neither up to `upto` nor in `above`. Where `upto` is 0
    the first of `above` is the beginning."""
    if not upto and above:
        upto, above = above[0][1], above[1:]
    inside = sum(max(0, min(end, last) - begin + 1) for begin, end in above)
    return max(0, last - upto - inside)


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at every site concerned. A site that did not answer is in no mapping."""

    engines: Mapping[str, EngineView]
    brokers: Mapping[str, BrokerView] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)

    def job(self, site: str, engine_job_id: str) -> EngineJob | None:
        view = self.engines.get(site)
        return view.jobs.get(engine_job_id) if view else None
