"""A flow of records through compositions in memory that change, where changes are interrupted.

A composition is one line of text: `a:in>m1 b@cloud:m1>out` is a job `a` that reads `in` and writes
`m1`, and a job `b` at another site; all topics are at the broker of the first site. A publisher
outside speck, which numbers its messages, sends a record at every call to an engine or a broker. A
job that publishes at once (`at_least_once`) has published it when the call arrives, and completes a
checkpoint only when the broker's numbers are read: one that is cancelled publishes it again.
Threads take turns (`tests/turns.py`): a sequence of changes has one result, and nobody sleeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest.mock import patch

from binders.memory import World
from speck.deploy.changes.ledger import ChangeLedger
from speck.deploy.execution.journal import Journal
from speck.deploy.operations import Done
from speck.errors import ConflictError, QueuesError
from speck.model.change import Change, ChangeState
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.schema import composition_from_data
from tests.memory_fog import HASTY, MemoryKeeper, service_in_turns, site_body
from tests.service_helpers import LIMIT_S, broker, engine, job_body
from tests.turns import Turns

HOME, SITES = "edge-a", ("edge-a", "cloud")
IN = "in"
MAKING = {"stop", "submit", "cancel"}
CALLS = {"stop", "submit", "cancel", "save_progress", "reserve", "release", "forget", "status"}
PATIENCE = replace(HASTY, connect_s=0.1, forgotten_s=0.1, drain_idle_s=0.5, drain_ask_s=0.1)
AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once"

_MOST_APPLIES = 3


class Interruption(StrEnum):
    """How a change ends early."""

    CANCELLED = "cancelled"
    """By its user."""
    SUPERSEDED = "superseded"
    """By the next apply, while it is blocked: its site does not answer."""
    UNANSWERED = "unanswered"
    """Like SUPERSEDED; but the last call has reached the engine, and only its answer is lost."""


def parse_composition(
    line: str, outputs: Sequence[str] = ("out",), delivery: str = AT_LEAST_ONCE
) -> JsonObject:
    """The composition that a line of text describes."""
    jobs = []
    for word in line.split():
        job, _, links = word.partition(":")
        (name, _, site), (source, _, sink) = job.partition("@"), links.partition(">")
        places = {"source_site": HOME, "sink_site": HOME, "delivery": delivery}
        more = {"source_topic": source, "sink_topic": sink, **places}
        jobs.append(job_body(name, site or HOME, **more))
    readers = [{"site": HOME, "topic": each, "client_id": f"out-{each}"} for each in outputs]
    return {
        "name": "c",
        "jobs": jobs,
        "inputs": [{"site": HOME, "topic": IN}],
        "outputs": readers,
    }


@dataclass
class Flow:
    """Numbered records that a publisher outside speck sends to a composition's input."""

    service: Service
    turns: Turns
    outputs: Sequence[str] = ("out",)
    delivery: str = AT_LEAST_ONCE
    sent: int = 0
    _done: int = 0
    _stop_after: int | None = None
    _how: Interruption = Interruption.CANCELLED
    _dies_after: int | None = None
    _deadly: Set[str] = frozenset(CALLS)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the operations that are done, and those of a former plan again when their change
        goes on with another one. An interruption comes then, or before the outcome is stored with
        the beginnings of the operations that it releases: none of these begins."""
        record_success, go_on = Journal.record_success, ChangeLedger.go_on

        def count(done: int) -> None:
            self._done += done
            if self._stop_after is not None and self._done >= self._stop_after:
                self._interrupt()

        def count_one(journal: Journal, step_id: int, outcome: Done) -> None:
            record_success(journal, step_id, outcome)
            count(1)

        def count_earlier(ledger: ChangeLedger, change: Change) -> None:
            go_on(ledger, change)
            count(sum(operation.state == "done" for operation in change.earlier))

        with (
            patch.object(Journal, "record_success", count_one),
            patch.object(ChangeLedger, "go_on", count_earlier),
        ):
            yield

    def send(self, count: int) -> None:
        payloads = [b"%d" % (self.sent + n) for n in range(count)]
        World.current().feed(f"tcp://{HOME}.test:1883", IN, payloads, "sensor")
        self.sent += count

    def begin(self, line: str) -> None:
        """Make the first change; the publisher begins after it."""
        assert self.apply(line) is ChangeState.DONE
        for site in SITES:
            engine(site).before = broker(site).before = self._called
        self.send(3)

    def apply(self, line: str) -> ChangeState:
        """Make a change; its state at its end."""
        return self._await(self._ask(line))

    def interrupt(self, line: str, how: Interruption, after: int) -> ChangeState:
        """Begin a change that is interrupted after so many operations; its state then."""
        self._done, self._stop_after, self._how = 0, after, how
        change = self._begin(line)
        if how is Interruption.CANCELLED:
            state = self._await(change)
        else:
            self.turns.poll(lambda: self._state(change) is not ChangeState.RUNNING)
            state = self._state(change)
        self._stop_after = None
        self.send(3)
        return state

    def let_die(self, after: int, kinds: Set[str] = CALLS) -> None:
        """Let the engine of the first site lose all its jobs after so many calls of these kinds
        from now on."""
        self._dies_after, self._deadly = after, kinds

    def complete(self, line: str) -> None:
        """Make a change that is not interrupted. It may be asked for several times: its plan may be
        made while a site does not answer, and be out of date when it does: jobs may have ended or
        been lost that counted as running."""
        state = self._await(self._begin(line))
        for _ in range(_MOST_APPLIES):
            if state is ChangeState.DONE and not self._differs():
                return
            state = self.apply(line)
        assert state is ChangeState.DONE

    def find_faults(self) -> dict[str, tuple[list[int], list[int]]]:
        """The lost and repeated records, by output."""
        for site in SITES:
            engine(site).before = broker(site).before = None
        self._dies_after = None
        World.current().pump()
        faults = {}
        for topic in self.outputs:
            payloads = Counter(int(payload) for payload in broker(HOME).take(f"out-{topic}"))
            lost = [n for n in range(self.sent) if n not in payloads]
            twice = sorted(n for n, count in payloads.items() if count > 1)
            if lost or twice:
                faults[topic] = (lost, twice)
        return faults

    def _begin(self, line: str) -> str | None:
        """Ask for a change. Sites that were silent answer again."""
        are_silent = any(engine(site).unreachable for site in SITES)
        changes: list[str | None] = []

        def ask() -> bool:
            try:
                changes.append(self._ask(line))
            except QueuesError:
                raise
            except ConflictError:  # a blocked one is trying again at this moment
                return False
            return True

        self.turns.poll(ask)
        if are_silent:
            for site in SITES:
                engine(site).unreachable = engine(site).hears = False
        return changes[0]

    def _differs(self) -> bool:
        """Whether what runs is not what is wanted."""
        return bool(self.service.composition_views.plan("c").operations)

    def _ask(self, line: str) -> str | None:
        description = composition_from_data(parse_composition(line, self.outputs, self.delivery))
        body = self.service.compositions.apply(description, ApplyRequest(force=True))
        return body.change or None

    def _await(self, change: str | None) -> ChangeState:
        if change is None:
            return ChangeState.DONE
        assert self.service.changes.await_end(change, LIMIT_S) is not None
        return self._state(change)

    def _state(self, change: str | None) -> ChangeState:
        return ChangeState(self.service.changes.get(change).state) if change else ChangeState.DONE

    def _called(self, kind: str, subject: str) -> None:
        self.turns.pass_on()
        if kind in CALLS:
            self.send(1)
            if self.delivery == AT_LEAST_ONCE:
                World.current().pump(checkpoint=False)
        if self._dies_after is not None and kind in self._deadly:
            self._dies_after -= 1
            if self._dies_after < 0:
                self._dies_after = None
                self._die()
        is_due = self._stop_after is not None and self._done >= self._stop_after
        if is_due and self._how is Interruption.UNANSWERED and kind in MAKING:
            self._silence(hears=True)

    def _die(self) -> None:
        """All that the jobs have sent is in a checkpoint: they would send what is not again."""
        with World.current().lock:
            World.current().pump()
            engine(HOME).forget_jobs()

    def _silence(self, hears: bool = False) -> None:
        for site in SITES:
            engine(site).unreachable, engine(site).hears = True, hears

    def _interrupt(self) -> None:
        if self._how is Interruption.UNANSWERED:
            return  # `_called` waits for the call
        if self._how is Interruption.SUPERSEDED:
            self._silence()
            return
        for running in self.service.changes.all_under_way():
            if running.execution is not None:
                running.execution.cancel()


@contextmanager
def flow(folder: Path, seed: int = 0, **more: Any) -> Iterator[Flow]:
    """A flow through a service of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    places = {"keeper": MemoryKeeper(), "apart": False}
    with service_in_turns(
        folder, map(site_body, SITES), seed=seed, patience=PATIENCE, **places
    ) as (service, turns):
        stream = Flow(service, turns, **more)
        with stream.counting():
            yield stream
