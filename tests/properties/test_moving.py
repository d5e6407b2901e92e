"""Any sequence of changes to a chain, with faults at random: nothing is lost or runs twice.

The memory world sends what it publishes at once, so that repeats come of a cancellation alone.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from binders.memory import World
from binders.memory.queues import Queues
from binders.memory.slots import SlotPool
from speck.errors import EngineRefusedError, QueuesError, UnreachableError
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.schema import composition_from_data
from tests.drawn_chains import ENDS, SITES, draw_chain
from tests.examples import costly
from tests.memory_fog import MemoryKeeper, service_in_turns, site_body
from tests.service_helpers import job_body
from tests.turns import Threads, Turns

ORDER = "ABC"
DONE = ApplyRequest(wait_s=20, force=True)
SOON = ApplyRequest(wait_s=0, force=True)


@st.composite
def chains(draw: st.DrawFn) -> JsonObject:
    """One to three of the same jobs in any order, from `in` at edge-a to `out` at cloud, over a
    few links: they change hands often."""
    may_stop = draw(st.integers(0, 5)) == 0
    names = draw(st.permutations(ORDER))[: draw(st.integers(1, len(ORDER)))]
    jobs = draw_chain(draw, names, "XY")
    for job in jobs:
        stops = job["job_name"] == "A" and may_stop and draw(st.integers(0, 3)) == 0
        job["state"] = "stopped" if stops else "running"
    return {"name": "c", "jobs": jobs, **ENDS}


FIRST = job_body("A", source_topic="in", sink_site="cloud", sink_topic="out")
BEGINNING: JsonObject = {"name": "c", "jobs": [FIRST], **ENDS}
"""What runs before anything is sent: from then on `in` has its reader."""

KINDS = (
    "refused start",
    "start without answer",
    "start that never arrived",
    "stop without answer",
    "stop that never arrived",
    "failing savepoint",
    "silent engine",
    "silent broker",
    "cancel",
    "restarted engine",
)


@dataclass(frozen=True)
class Fault:
    kind: str
    site: str
    after: int


faults = st.builds(Fault, st.sampled_from(KINDS), st.sampled_from(SITES), st.integers(1, 40))
steps = st.lists(st.tuples(chains(), st.lists(faults, max_size=2)), min_size=2, max_size=5)


def engine(site: str) -> SlotPool:
    return World.current().engine(f"http://{site}.test:8081")


def broker(site: str) -> Queues:
    return World.current().broker(f"tcp://{site}.test:1883")


@dataclass
class DuplicateMonitor:
    """Sees every call to an engine: feeds the chain, counts what runs, and lets faults happen."""

    service: Service
    turns: Turns | Threads
    sent: int = 0
    calls: int = 0
    twice: list[str] = field(default_factory=list)
    cancel_at: int | None = None

    def __post_init__(self) -> None:
        for site in SITES:
            engine(site).before = self

    def send(self, count: int) -> None:
        payloads = [str(self.sent + n).encode() for n in range(count)]
        World.current().feed("tcp://edge-a.test:1883", "in", payloads, "sensor")
        self.sent += count

    def __call__(self, kind: str, subject: str) -> None:
        self.turns.pass_on()
        self.calls += 1
        live = Counter(
            job.submission.job_name
            for site in SITES
            for job in engine(site).jobs.values()
            if not job.state.terminal
        )
        self.twice += [name for name, count in live.items() if count > 1]
        if kind in ("stop", "submit", "cancel", "save_progress"):
            self.send(1)
        if self.cancel_at is not None and self.calls >= self.cancel_at:
            self.cancel_at = None
            for running in self.service.changes.all_under_way():
                if running.execution is not None:
                    running.execution.cancel()

    def let(self, fault: Fault) -> None:
        """Let a fault happen to the next change."""
        at, error = engine(fault.site), UnreachableError(f"cannot reach {fault.site}: a test")
        match fault.kind:
            case "refused start":
                at.refuse("submit", 1, EngineRefusedError("cannot start: refused by a test"))
            case "start without answer":
                at.refuse("submit", 1, error, after=True)
            case "start that never arrived":
                at.refuse("submit", 1, error)
            case "stop without answer":
                at.refuse("stop", 1, error, after=True)
            case "stop that never arrived":
                at.refuse("stop", 1, error)
            case "failing savepoint":
                at.failing_savepoints = 1
            case "silent engine":
                at.unreachable = True
            case "silent broker":
                broker(fault.site).unreachable = True
            case "cancel":
                self.cancel_at = self.calls + fault.after
            case "restarted engine":
                at.forget_jobs()

    def mend(self) -> None:
        """Let all faults be over."""
        self.cancel_at = None
        for site in SITES:
            engine(site).unreachable = broker(site).unreachable = False
            engine(site).failing_savepoints = 0
            engine(site)._refusals.clear()


def ask(service: Service, desired: JsonObject, witness: DuplicateMonitor) -> str:
    """Apply, with consent if a queue is to be dropped; once nothing moves any more let all faults
    be over, and see how it ends."""
    description = composition_from_data(desired)
    try:
        body = service.compositions.apply(description, SOON)
    except QueuesError:
        body = service.compositions.apply(description, replace(SOON, drop_queues=True))
    change = body.change
    if change is None:
        return "done"
    witness.turns.poll(lambda: service.changes.get(change).state != "running")
    witness.mend()
    witness.turns.poll(lambda: not service.changes.all_under_way())
    return str(service.changes.get(change).state)


SEEDS = st.integers(0, 2**16)
"""They decide whose turn it is."""
SEVERAL = costly()


@SEVERAL
@given(steps, st.booleans(), SEEDS)
def test_nothing_is_lost_and_nothing_runs_twice_whatever_fails(
    sequence: list[tuple[JsonObject, list[Fault]]], apart: bool, seed: int
) -> None:
    with opened(apart, seed) as (service, witness):
        for desired, happening in sequence:
            for fault in happening:
                witness.let(fault)
            ask(service, desired, witness)
            assert ask(service, desired, witness) == "done"
            assert service.composition_views.plan("c").operations == ()
            witness.send(3)
        assert ask(service, all_running(sequence[-1][0]), witness) == "done"
        missing, repeated = arrived(witness)
        faults = {fault.kind for _, happening in sequence for fault in happening}
        if "restarted engine" in faults or has_stopped(
            sequence
        ):  # who does not run empties no link
            assert set(missing) <= abandoned()
            assert not missing or said_so(service)
        else:
            assert missing == [], "lost"
        assert not repeated or faults & MAY_REPEAT, repeated


@SEVERAL
@given(steps, st.booleans(), SEEDS)
def test_what_is_lost_when_wishes_change_in_between_was_said_to_be_abandoned(
    sequence: list[tuple[JsonObject, list[Fault]]], apart: bool, seed: int
) -> None:
    with opened(apart, seed) as (service, witness):
        for desired, happening in sequence:
            for fault in happening:
                witness.let(fault)
            ask(service, desired, witness)
            witness.send(3)
        assert ask(service, all_running(sequence[-1][0]), witness) == "done"
        missing, repeated = arrived(witness)
        assert set(missing) <= abandoned()
        assert not missing or said_so(service)
        faults = {fault.kind for _, happening in sequence for fault in happening}
        assert not repeated or faults & MAY_REPEAT, repeated


def has_stopped(sequence: list[tuple[JsonObject, list[Fault]]]) -> bool:
    """Whether a job was kept stopped: removed then, it abandons what waits for it."""
    return any(job["state"] == "stopped" for desired, _ in sequence for job in desired["jobs"])


@contextmanager
def opened(apart: bool, seed: int) -> Iterator[tuple[Service, DuplicateMonitor]]:
    """A service over three sites, and at the end: never two incarnations, no session taken."""
    with (
        tempfile.TemporaryDirectory() as folder,
        service_in_turns(
            Path(folder),
            map(site_body, SITES),
            seed=seed,
            at_writes=True,
            keeper=MemoryKeeper(),
            apart=apart,
        ) as (service, turns),
    ):
        started = service.compositions.apply(composition_from_data(BEGINNING), DONE)
        assert started.state == "done"
        witness = DuplicateMonitor(service, turns)
        yield service, witness
        assert witness.twice == []
        assert [name for site in SITES for name in broker(site).thrown_out] == []
        assert service.composition_views.plan("c").operations == ()


def said_so(service: Service) -> bool:
    """Whether a plan has named what a release abandons."""
    changes = [service.changes.get(head.id) for head in service.changes.all()]
    reasons = [o.reason for change in changes for o in change.operations]
    return any("; abandons" in reason or "; drops its queue" in reason for reason in reasons)


def all_running(desired: JsonObject) -> JsonObject:
    return {**desired, "jobs": [{**job, "state": "running"} for job in desired["jobs"]]}


def arrived(witness: DuplicateMonitor) -> tuple[list[int], list[int]]:
    """The numbers that never came to the end of the chain, and those that came again."""
    World.current().pump()
    payloads = Counter(int(payload) for payload in broker("cloud").take("checker"))
    missing = [number for number in range(witness.sent) if number not in payloads]
    return missing, [number for number, count in payloads.items() if count > 1]


def abandoned() -> set[int]:
    queues = [queue for site in SITES for queue in broker(site).abandoned.values()]
    return {int(message.payload) for queue in queues for message in queue}


MAY_REPEAT = {"failing savepoint", "restarted engine", "silent engine", "silent broker"}
"""Under these a job may be ended without a savepoint: what it has published since its last
checkpoint is published again."""
