"""The state of an engine in this process: slots, and incarnations that really process messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from threading import RLock
from typing import Protocol
from zlib import crc32

from binders.memory.faults import Faults
from binders.memory.messages import Ledger, Message
from binders.memory.queues import Queues, StoredSession
from speck.binding import (
    EngineCapability,
    EngineEnd,
    JobException,
    SavedState,
    SaveProgress,
    Submission,
    Trial,
)
from speck.model.finding import Finding
from speck.model.measurement import JobMeasure
from speck.model.observation import RunState, Sent, Taken, TakenEpoch, includes
from speck.spec.job_contract import parse_port, parse_taken


class Surroundings(Protocol):
    """What an engine sees of the world (`binders.memory.world`) that it is in."""

    lock: RLock
    saved: dict[str, Saved]
    left: set[str]

    def broker(self, address: str) -> Queues:
        """The broker at an address."""

    def now_ms(self) -> int:
        """Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """The arguments of the job contract, without the job's own `args`."""

    source_broker: str
    source_topic: str
    sink_broker: str
    port: tuple[tuple[str, str], ...]
    """The topic of each link that its sink writes, and the client id of the sink there."""
    numbers_apart: bool
    """Whether these are links of a port, with numbers of their own."""
    client_id: str
    attempt: int
    sink_readers: str
    taken: tuple[TakenEpoch, ...] = ()
    until: tuple[TakenEpoch, ...] = ()


def parse_wiring(args: Sequence[str]) -> Wiring | None:
    """Parse a job's arguments; None if they do not follow the job contract."""
    values = dict(pairwise(args))
    try:
        sink_client_id = values.get("--sink-client-id", values["--client-id"] + "-out")
        one_link = ((values["--sink-topic"], sink_client_id),)
        return Wiring(
            source_broker=values["--source-broker"],
            source_topic=values["--source-topic"],
            sink_broker=values["--sink-broker"],
            port=parse_port(values.get("--port", "")) or one_link,
            numbers_apart="--port" in values,
            client_id=values["--client-id"],
            attempt=int(values.get("--epoch", "1")),
            sink_readers=values.get("--sink-readers", "some"),
            taken=parse_taken(values.get("--taken", "")),
            until=parse_taken(values.get("--until", "")),
        )
    except (KeyError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Saved:
    """A job's state at a checkpoint; `storage` is None if every engine can read it."""

    ledger: Ledger
    epoch: int
    storage: str | None
    checkpoint_id: int = 0
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class MemoryJob:
    """One incarnation: takes messages from its session, publishes each unchanged to the link of its
    port that the payload chooses, and counts both."""

    engine: SlotPool
    submission: Submission
    wiring: Wiring | None
    ledger: Ledger = field(default_factory=Ledger)
    state: RunState = RunState.STARTING
    epoch: int = 0
    numbers: Counter[str] = field(default_factory=Counter)
    """How many it has sent, by topic."""
    checkpoint_id: int = 0
    unacked: list[Message] = field(default_factory=list)
    left: list[Message] = field(default_factory=list)
    """Messages beyond the numbers that it reads until, in their order."""
    mark: str | None = None
    newest: SavedState | None = None
    savepoints: dict[str, SaveProgress] = field(default_factory=dict)
    checkpoint_requests: dict[str, int] = field(default_factory=dict)
    """The last checkpoint when each was asked for, by trigger."""
    stopping: str | None = None  # the trigger of a stop that has not finished
    stopped: bool = False  # with a savepoint
    exceptions: list[JobException] = field(default_factory=list)
    _connected: StoredSession | None = None
    _saved: tuple[int, int] | None = None  # messages taken and sent at the newest checkpoint

    @property
    def id(self) -> str:
        return self.submission.engine_job_id

    @property
    def slots(self) -> int:
        return self.engine.parallelism_of(self.submission)

    def open(self) -> None:
        """Run all tasks: hold the session, and begin an epoch above any in the restored state."""
        self.state = RunState.RUNNING
        if self.wiring is not None:
            shift = 32 if self.wiring.attempt < 1 << 31 else 10  # stored numbers have 64 bits
            self.epoch = max(self.epoch + 1, (self.wiring.attempt << shift) + 1)
            self.ledger.take_over(self.wiring.taken)
            self._session(self.wiring)

    def work(self) -> int:
        """Take all queued messages; returns how many."""
        if self.wiring is None or self._misses_broker(self.wiring):
            return 0
        queue = self._session(self.wiring).queue
        sink = self.engine.world.broker(self.wiring.sink_broker)
        count = 0
        while queue and (queue[0].mark is not None or self._may_publish(sink, self.wiring)):
            message = queue.popleft()
            if not self._includes(message):
                self.left.append(message)
                continue
            self.unacked.append(message)
            if message.mark is not None:
                self.mark = message.mark
                continue
            count += 1
            if self.ledger.add(message):
                topic = self._choose_link(self.wiring, message.payload)
                self.numbers[topic] += 1
                series = self.series(topic)
                sink.publish(topic, Message(message.payload, *series, self.numbers[topic]))
        return count

    @staticmethod
    def _choose_link(wiring: Wiring, payload: bytes) -> str:
        return wiring.port[crc32(payload) % len(wiring.port)][0]

    def _misses_broker(self, wiring: Wiring) -> bool:
        """Whether one of its brokers has moved to another address."""
        return bool({wiring.source_broker, wiring.sink_broker} & self.engine.world.left)

    def checkpoint(self, path: str | None = None) -> str:
        """Complete a checkpoint (a savepoint if `path` is given): acknowledge, publish the
        numbers, save the state. Returns its path."""
        idle = not self.unacked and self._saved == (self.ledger.messages, self.sent)
        if path is None and idle and self.newest is not None:
            if not self._is_blocked():  # else the sink's flush would keep it from completing
                self.checkpoint_id += 1
                self.newest = replace(self.newest, number=self.checkpoint_id)
            return self.newest.location
        self.checkpoint_id += 1
        self.unacked.clear()
        now = self.engine.world.now_ms()
        own = dict(pairwise(self.submission.args)).get("--checkpoints", self.engine.storage)
        where = path or f"{own}/{self.id}/chk-{self.checkpoint_id}"
        is_here = path is None or where.startswith(self.engine.storage + "/")
        storage = self.engine.storage if is_here else None
        self.engine.world.saved[where] = Saved(
            self.ledger.copy(), self.epoch, storage, self.checkpoint_id, dict(self.numbers)
        )
        self.newest = SavedState(self.checkpoint_id, where, now, 0, path is not None)
        self._saved = (self.ledger.messages, self.sent)
        if self.wiring is not None:
            self._publish_numbers(self.wiring, now)
        return where

    def end(self, state: RunState) -> None:
        """End: unacknowledged messages go back to their session, in order."""
        if self.wiring is not None and not self.state.terminal and self.epoch:
            broker = self.engine.world.broker(self.wiring.source_broker)
            session = broker.sessions.get(self.wiring.client_id)
            if session is not None and session.holder == self.id:
                session.give_back()
        self.unacked, self.left = [], []
        self.state = state

    def _includes(self, message: Message) -> bool:
        """Whether it reads so far. A message without a number goes with the others."""
        if message.mark is not None or self.wiring is None or not self.wiring.until:
            return True
        if message.producer is None:
            return not self.left
        return includes(self.wiring.until, message.producer, message.epoch, message.number)

    @property
    def sent(self) -> int:
        """How many messages it has sent, to all links."""
        return self.numbers.total()

    def series(self, topic: str) -> tuple[str, int]:
        """The producer and epoch of the messages that it publishes to a link. Each link of a port
        has its own numbers, so that each has its own producer: a reader may change from one to
        another."""
        assert self.wiring is not None
        producer = self.wiring.client_id.removeprefix("speck-").rpartition("-")[0]
        if self.wiring.numbers_apart:
            producer += f"-{crc32(topic.encode()):08x}"
        return producer, self.epoch

    def _session(self, wiring: Wiring) -> StoredSession:
        broker = self.engine.world.broker(wiring.source_broker)
        session = broker.connect(wiring.client_id, wiring.source_topic, self.id)
        if session is not self._connected:  # what it has got of another one is delivered again
            self._connected, self.unacked, self.left = session, [], []
            session.in_flight = self.unacked, self.left
        return session

    def _is_blocked(self) -> bool:
        """Whether messages are queued that cannot be published."""
        if self.wiring is None:
            return False
        sink = self.engine.world.broker(self.wiring.sink_broker)
        return bool(self._session(self.wiring).waiting) and not self._may_publish(sink, self.wiring)

    def _may_publish(self, sink: Queues, wiring: Wiring) -> bool:
        """Whether each link has no readers, or the session of at least one of them exists."""
        return all(
            sink.readers.get(topic, wiring.sink_readers) == "none" or sink.has_session(topic)
            for topic, _ in wiring.port
        )

    def _publish_numbers(self, wiring: Wiring, now: int) -> None:
        source = self.engine.world.broker(wiring.source_broker)
        source.taken[wiring.client_id] = Taken(
            checkpoint=self.checkpoint_id,
            taken=self.ledger.taken(),
            missing=self.ledger.missing(),
            messages=self.ledger.messages,
            at_ms=now,
            above=self.ledger.above(),
            mark=self.mark,
        )
        sink = self.engine.world.broker(wiring.sink_broker)
        for topic, client_id in wiring.port:
            if number := self.numbers[topic]:
                sink.sent[client_id] = Sent(*self.series(topic), number, now, topic=topic)


@dataclass(slots=True, kw_only=True, eq=False)
class SlotPool(Faults):
    """An engine. Engines with the same `storage` can read each other's checkpoints; all engines can
    read a savepoint with a target directory. With `hold_starts` jobs stay STARTING, and with
    `hold_savepoints` savepoints stay under way, until `let_go()`. The next `failing_savepoints`
    savepoints fail. Jobs named in `crashing`, or with an argument in it, fail at their start,
    with this message, again and again: once more whenever the engine is asked for their
    exceptions. The sources of those named in `bounded` end as soon as they run. A trial of any
    `main` shows `trial`, and `main` fails with `late_failure` after it has started its job.
    `jars` are uploads by SHA-256, with the Unix milliseconds at which they came."""

    world: Surroundings
    total: int
    capabilities: frozenset[EngineCapability] = frozenset(EngineCapability)
    storage: str = "memory:"
    interval_s: float | None = 1.0
    hold_starts: bool = False
    hold_savepoints: bool = False
    failing_savepoints: int = 0
    findings: list[Finding] = field(default_factory=list)
    jars: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, MemoryJob] = field(default_factory=dict)
    held: list[tuple[MemoryJob, str, str]] = field(default_factory=list)
    measures: dict[str, JobMeasure] = field(default_factory=dict)
    crashing: dict[str, str] = field(default_factory=dict)
    bounded: set[str] = field(default_factory=set)
    trial: Trial = field(default_factory=Trial)
    late_failure: str | None = None
    last_end: EngineEnd | None = None

    def parallelism_of(self, submission: Submission) -> int:
        """The parallelism that a job is given, or sets itself by `--parallelism`."""
        own = dict(pairwise(submission.args)).get("--parallelism")
        return int(own) if own is not None else max(1, submission.parallelism)

    @property
    def free(self) -> int:
        """Slots that no job holds."""
        holding = (job for job in self.jobs.values() if not job.state.terminal)
        return self.total - sum(job.slots for job in holding if job.state != RunState.STARTING)

    def running(self) -> list[MemoryJob]:
        """The incarnations whose tasks all run, oldest first."""
        return [job for job in self.jobs.values() if job.state is RunState.RUNNING]

    def schedule(self) -> None:
        """Give free slots to waiting jobs, oldest first."""
        for job in self.jobs.values():
            waits = job.state is RunState.STARTING and not self.hold_starts
            if not waits or job.slots > self.free:
                continue
            if (message := self.crash_of(job)) is not None:
                self.crash(job.id, message)
            else:
                job.open()
                if job.submission.job_name in self.bounded:
                    self.finish(job.id)

    def readable(self, path: str) -> bool:
        """Whether this engine can read the state at `path`."""
        saved = self.world.saved.get(path)
        return saved is not None and saved.storage in (None, self.storage)

    def save(self, job: MemoryJob, trigger_id: str, path: str) -> None:
        """Complete a savepoint, and the stop that it belongs to; both fail unless all tasks run."""
        if self.failing_savepoints or job.state is not RunState.RUNNING:
            self.failing_savepoints = max(0, self.failing_savepoints - 1)
            failure = f"not all tasks run: the job is {job.state}"
            job.savepoints[trigger_id] = SaveProgress(True, failure=failure)
        else:
            job.savepoints[trigger_id] = SaveProgress(True, location=job.checkpoint(path))
            if job.stopping == trigger_id:
                job.stopped = True
                job.end(RunState.FINISHED)
        if job.stopping == trigger_id:
            job.stopping = None
        self.schedule()

    def let_go(self) -> None:
        """End `hold_starts` and `hold_savepoints`, and carry out what was held."""
        with self.world.lock:
            self.hold_starts = self.hold_savepoints = False
            held, self.held = self.held, []
            for job, trigger_id, path in held:
                self.save(job, trigger_id, path)
            self.schedule()

    def finish(self, engine_job_id: str) -> None:
        """End an incarnation as when its sources end: after a last checkpoint, of which, as Flink
        does, nothing is kept."""
        with self.world.lock:
            job = self.jobs[engine_job_id]
            job.checkpoint()
            job.end(RunState.FINISHED)
            own = [path for path in self.world.saved if f"/{job.id}/chk-" in path]
            for path in own:
                del self.world.saved[path]
            self.schedule()

    def crash_of(self, job: MemoryJob) -> str | None:
        """Why an incarnation fails at each start; None: it does not."""
        names = (job.submission.job_name, *job.submission.args)
        return next((self.crashing[name] for name in names if name in self.crashing), None)

    def crash(self, engine_job_id: str, message: str) -> None:
        """Make an incarnation fail so that the engine restarts it."""
        with self.world.lock:
            job = self.jobs[engine_job_id]
            job.state = RunState.RESTARTING
            failure = JobException(self.world.now_ms(), "MemoryFailure", message, reason=message)
            job.exceptions.insert(0, failure)

    def fail(self, engine_job_id: str, message: str) -> None:
        """Make an incarnation fail for good, with `message` among its exceptions."""
        with self.world.lock:
            job = self.jobs[engine_job_id]
            job.end(RunState.FAILED)
            failure = JobException(self.world.now_ms(), "MemoryFailure", message, reason=message)
            job.exceptions.insert(0, failure)
            self.schedule()

    def forget_jobs(self) -> None:
        """Restart the engine's master: all jobs end, and none is known any more."""
        with self.world.lock:
            for job in self.jobs.values():
                if not job.state.terminal:
                    job.end(RunState.FAILED)
            self.jobs.clear()
            self.held.clear()
