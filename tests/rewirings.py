"""Compositions with two outputs that are turned into one another while records flow.

A wiring is one line of text: `A@cloud:in>edge-b/x S:edge-b/x>o2` is a job `A` at `cloud` that reads
the input and writes the topic `x` at the broker of `edge-b`, and a job `S` at `edge-a`, the site
without a name, that reads this and writes the second output. `-A` is stopped. A publisher outside
speck, which numbers its messages, sends a record at every call to an engine or a broker. Which
thread makes the next call is decided by a seed (`tests/turns.py`): a sequence of steps has one
result.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from binders.memory import World
from speck.errors import EngineRefusedError, QueuesError
from speck.model.incarnation import StartState
from speck.model.observation import RunState
from speck.model.values import JsonObject
from speck.monitor.lost_sessions import LostSessions
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.sites.poll_cache import Poll
from speck.spec.schema import composition_from_data
from tests.memory_fog import serve_again, service_in_turns, site_body
from tests.service_helpers import broker, engine
from tests.turns import Death, Turns

HOME = "edge-a"
SITES = (HOME, "edge-b", "cloud")
ENDS = {"in": (HOME, "in"), "o1": ("cloud", "o1"), "o2": ("cloud", "o2")}
OUTPUTS = ("o1", "o2")
CALLS = {"stop", "submit", "cancel", "save_progress", "reserve", "release", "forget", "status"}
REFUSED = EngineRefusedError("cannot start it: no")


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The change is cancelled at so many calls from its beginning on."""

    at: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine refuses the next so many starts of a job."""

    job: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Killed:
    """A broker writes its file at one call, and is killed at a later one. Those who have published
    since then send again, a publisher outside speck before lost sessions are there again."""

    site: str
    saved_at: int
    at: int


@dataclass(frozen=True, slots=True)
class KilledAfterStops:
    """A broker writes its file when a first job is asked to stop, and is killed once so many have
    stopped. Those that still run take what has come whenever one is asked."""

    site: str
    stops: int


@dataclass(frozen=True, slots=True)
class Died:
    """The service dies at so many calls from its beginning on, before the call or, if it `asks`,
    while that is carried out; a new one goes on. There may be another trouble `beside` that. If it
    `fails` jobs, those whose start nobody has heard of work for a moment, and fail."""

    at: int
    asks: bool
    beside: Cancelled | Refused | Killed | None = None
    fails: bool = False


Trouble = Cancelled | Refused | Killed | KilledAfterStops | Died


@dataclass(frozen=True, slots=True)
class Step:
    """A change to a wiring. Its end is left open if there is `trouble`."""

    wiring: str
    trouble: Trouble | None = None


def parse_wiring(line: str) -> JsonObject:
    """The composition that a line of text describes."""
    jobs = []
    for word in line.split():
        job, _, links = word.partition(":")
        (name, _, site), (source, _, sink) = job.partition("@"), links.partition(">")
        state, name = "stopped" if name.startswith("-") else "running", name.lstrip("-")
        (source_site, source_topic), (sink_site, sink_topic) = _place(source), _place(sink)
        jobs.append(
            {
                "job_name": name,
                "site": site or HOME,
                "source_site": source_site,
                "source_topic": source_topic,
                "sink_site": sink_site,
                "sink_topic": sink_topic,
                "entry_class": "package.ExampleJob",
                "job_path": "test-1.jar",
                "state": state,
            }
        )
    outputs = [
        {"site": site, "topic": topic, "client_id": f"out-{topic}"}
        for site, topic in (ENDS[name] for name in OUTPUTS)
    ]
    inputs = [{"site": HOME, "topic": "in"}]
    return {"name": "c", "jobs": jobs, "outputs": outputs, "inputs": inputs}


def _place(link: str) -> tuple[str, str]:
    if link in ENDS:
        return ENDS[link]
    site, _, topic = link.rpartition("/")
    return site or HOME, topic


class Trial:
    """A service whose composition is rewired while every call brings in a record."""

    def __init__(self, service: Service, turns: Turns, *, is_eager: bool = False) -> None:
        """Readers take what has come at views of brokers, or, if they are eager, at each call."""
        self._is_eager = is_eager
        self._turns = turns
        self._serve(service)
        self._thread = threading.current_thread()
        self._sent = 0
        self._calls = 0
        self._cancel_at = self._save_at = self._kill_at = self._kill_after = 0
        self._stopped: set[str] = set()
        self._dies: Died | None = None
        self._is_dead = self._fails = False
        self._victim = ""
        self._saved: Mapping[str, int] = {}
        self._refused: dict[str, int] = {}
        self.has_dropped = False
        """Whether a change has dropped queues that it named, with consent."""
        self._outputs = set(OUTPUTS)
        """Those that each wiring has written."""

    def _serve(self, service: Service) -> None:
        self._service = service
        self._lost_sessions = LostSessions(
            service.records, service.connections, service.changes, self._turns
        )
        write = service.records.store.write

        def write_alive(batch: Any) -> None:
            self._refuse_the_dead()
            write(batch)

        service.records.store.write = write_alive  # type: ignore[method-assign]

    def close(self) -> None:
        self._service.close()

    def listen(self) -> None:
        for site in SITES:
            engine(site).before = broker(site).before = self._called

    def send(self, count: int) -> None:
        payloads = [b"%d" % (self._sent + n) for n in range(count)]
        World.current().feed(f"tcp://{HOME}.test:1883", "in", payloads, "sensor")
        self._sent += count

    def take(self, step: Step) -> None:
        """Make a change. Without trouble it has to be done, and nothing is left to do then."""
        self._await_trouble(step.trouble)
        self._outputs &= {each for each in OUTPUTS if f">{each}" in step.wiring}
        composition, state = parse_wiring(step.wiring), "dead"
        with suppress(Death):
            state = self._apply(composition, step.trouble is None)
        self._dies = None
        if self._is_dead:
            self._serve_anew()
        self._cancel_at = 0
        self._refused.clear()
        self._kill()  # if the change was over before
        self._kill_after = 0
        if step.trouble is None:
            assert state == "done", (state, composition)
            left = self._service.composition_views.plan("c").operations
            assert left == (), (left, composition)

    def _await_trouble(self, trouble: Trouble | None) -> None:
        match trouble:
            case Cancelled(at):
                self._cancel_at = self._calls + at
            case Refused(job, times):
                self._refused[job] = times
            case Killed(site, saved_at, at):
                self._victim = site
                self._save_at, self._kill_at = self._calls + saved_at, self._calls + at
            case KilledAfterStops(site, stops):
                self._victim, self._kill_after, self._stopped = site, stops, set()
            case Died(at):
                self._dies = replace(trouble, at=self._calls + at)
                self._await_trouble(trouble.beside)

    def _apply(self, composition: JsonObject, again: bool) -> str:
        """The state in which it ends. A reader that never began may have a queue to be dropped, at
        once or when its session is released: then with consent. A broker that was killed earlier
        may have lost a session: the change says so, and is applied `again`. Nobody goes on without
        what is to be brought back first."""
        request = ApplyRequest(wait_s=30, force=True)
        description = composition_from_data(composition)
        try:
            body = self._service.compositions.apply(description, request)
        except QueuesError:
            request, self.has_dropped = replace(request, drop_queues=True), True
            body = self._service.compositions.apply(description, request)
        assert body.change is not None
        change = self._service.changes.get(body.change)
        error = change.error or ""
        is_to_drop = "--drop-queues" in error and "brought back first" not in error
        if is_to_drop or (again and "apply again" in error):
            return self._apply(composition, again)
        return str(change.state)

    def _refuse_the_dead(self) -> None:
        if self._is_dead:
            raise Death

    def _serve_anew(self) -> None:
        """Bury the service, and have a new one go on with its changes."""
        dead = self._service
        self._turns.poll(lambda: not dead.changes.all_under_way())
        with suppress(Death):
            dead.close()
        self._is_dead = False
        if self._fails:
            self._fail_unheard()
        self._serve(serve_again(dead, self._turns))
        if self._victim:
            self._turns.start(self._restore, "monitor")
        self._turns.poll(lambda: not self._service.changes.all_under_way())

    def _fail_unheard(self) -> None:
        World.current().pump()
        starts = self._service.records.inventory("c").jobs.values()
        for each in (each for each in starts if each.start is StartState.REQUESTED):
            there = engine(each.job.site).jobs.get(each.engine_job_id)
            if there is not None and there.state is RunState.RUNNING:
                there.end(RunState.FAILED)

    def _called(self, kind: str, subject: str) -> None:
        if threading.current_thread() is not self._thread:  # a poll's own, which takes no turns
            return
        self._refuse_the_dead()
        if self._is_eager:
            World.current().pump()
        if kind in CALLS:
            self.send(1)
        self._calls += 1
        if self._cancel_at and self._calls >= self._cancel_at:
            self._cancel_at = 0
            for each in self._service.changes.all_under_way():
                if each.execution is not None:
                    each.execution.cancel()
        if self._dies is not None and self._calls >= self._dies.at:
            self._is_dead, asks, self._fails = True, self._dies.asks, self._dies.fails
            self._dies = None
            if not asks:
                raise Death
        if self._save_at and self._calls >= self._save_at:
            self._save()
        if self._kill_at and self._calls >= self._kill_at:
            self._kill()
        if self._kill_after:
            self._kill_after_stops(kind, subject)
        self._turns.pass_on()
        if kind == "submit":
            self._refuse(subject)

    def _refuse(self, engine_job_id: str) -> None:
        """Raise REFUSED if the start of this incarnation is to be refused."""
        for job in [each for each, times in self._refused.items() if times]:
            incarnation = self._service.records.incarnations.get("c", job)
            if incarnation is not None and incarnation.engine_job_id == engine_job_id:
                self._refused[job] -= 1
                raise REFUSED

    def _kill_after_stops(self, kind: str, subject: str) -> None:
        if kind == "stop":
            if not self._stopped:
                self._save()
            self._stopped.add(subject)
            World.current().pump()
        jobs = {job.id: job for site in SITES for job in engine(site).jobs.values()}
        if sum(jobs[each].stopped for each in self._stopped if each in jobs) >= self._kill_after:
            self._kill_after, self._kill_at = 0, 1
            self._kill()

    def _save(self) -> None:
        self._save_at, victim = 0, broker(self._victim)
        victim.autosave()
        self._saved = {topic: len(messages) for topic, messages in victim.published.items()}

    def _kill(self) -> None:
        """Kill the broker. Its readers come back, and all who have published since the file was
        written send that again: the sinks of jobs once the sessions that they miss are reserved,
        the publisher outside speck at once. The service looks for those that it may have lost, now
        or a while later."""
        if not self._kill_at:
            return
        if self._save_at:
            self._save()
        self._kill_at = 0
        victim = broker(self._victim)
        sent = dict(victim.sent)
        victim.kill()
        for pool in map(engine, SITES):
            for job in pool.running():
                if job.wiring and self._victim in job.wiring.source_broker:
                    victim.connect(job.wiring.client_id, job.wiring.source_topic, job.id)
        there = {}
        for _, session in self._service.records.sessions.all():
            if session.site == self._victim and session.reserved:
                there[session.client_id] = session.link.topic
        for client_id, topic in there.items():
            if (self._victim, topic) == ENDS["in"]:
                continue
            victim.subscribe(client_id, topic)
            victim.announced.add((client_id, topic))
            victim.readers[topic] = "some"
        for client_id in [each for each in victim.sessions if each not in there]:
            if victim.sessions[client_id].holder is None:
                del victim.sessions[client_id]
        victim.sent.update(sent)
        for topic, messages in victim.published.items():
            for message in messages[self._saved.get(topic, 0) :]:
                victim.deliver(topic, message)
        self._turns.start(self._restore, "monitor")

    def _restore(self) -> None:
        """Look at the broker that was killed, as the service's watch does."""
        self._turns.wait_some()
        site, now = self._victim, self._turns.monotonic()
        poll = Poll(self._service.connections.broker(site).view(), now)
        self._lost_sessions.restore(now, {site: poll}, {site})

    def find_faults(self) -> dict[str, tuple[list[Any], list[int]]]:
        """The lost and repeated records, by output, and what readers miss, by job."""
        for site in SITES:
            engine(site).before = broker(site).before = None
        World.current().pump()
        faults = dict[str, tuple[list[Any], list[int]]]()
        for output in sorted(self._outputs):
            payloads = Counter(int(each) for each in broker("cloud").take(f"out-{output}"))
            lost = [n for n in range(self._sent) if n not in payloads]
            twice = sorted(n for n, count in payloads.items() if count > 1)
            if lost or twice:
                faults[output] = (lost, twice)
        for job in (each for site in SITES for each in engine(site).running()):
            if missing := job.ledger.missing():  # a loss that would be reported, and is none
                faults[job.submission.job_name] = (list(map(str, missing.items())), [])
        return faults


@contextmanager
def begin(
    folder: Path, seed: int, *, at_writes: bool = False, is_eager: bool = False
) -> Iterator[Trial]:
    """A trial with a service of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    sites = map(site_body, SITES)
    with service_in_turns(folder, sites, seed=seed, at_writes=at_writes) as (service, turns):
        trial = Trial(service, turns, is_eager=is_eager)
        yield trial
        trial.close()


def rewire(
    folder: Path,
    steps: Sequence[Step],
    seed: int = 0,
    *,
    at_writes: bool = False,
    is_eager: bool = False,
    may_drop: bool = False,
) -> dict[str, object]:
    """The faults after a sequence of changes; records flow from the end of the first one on. If it
    `may_drop` queues with consent, what these had is missing rightly, and nothing is looked for."""
    with begin(folder, seed, at_writes=at_writes, is_eager=is_eager) as trial:
        for number, step in enumerate(steps):
            trial.take(step)
            trial.send(4)
            if not number:
                trial.listen()
        return {} if may_drop and trial.has_dropped else dict(trial.find_faults())
