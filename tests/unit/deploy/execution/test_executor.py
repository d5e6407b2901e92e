"""The executor, on in-memory engines and brokers and a real store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from binders.memory import World
from binders.memory.queues import Queues
from binders.memory.slots import SlotPool
from speck.binding import Artifact
from speck.clock import SystemClock
from speck.deploy.execution import Bounds, Execution, executor
from speck.deploy.operations import Operations, Patience, Refills, ResendRun, Resends
from speck.errors import EngineRefusedError, TransientError, UnreachableError
from speck.model.change import Change, ChangeState
from speck.model.engines import ArtifactKind
from speck.model.ids import engine_job_id, sink_client_id, source_client_id
from speck.model.incarnation import FormerSink, Incarnation, Session, StartState
from speck.model.job import Job
from speck.model.job_operations import Forget, Start, Stop, Upload
from speck.model.link import Link
from speck.model.link_operations import Clear, Drain, LeftLink, Release, Reserve
from speck.model.observation import RunState, Sent, Taken
from speck.model.plan import Operation, Plan, Step
from speck.model.plan_outline import OperationOutcome, OperationState
from speck.model.values import JsonObject
from speck.service.agents import Agents
from speck.sites.connections import Connections
from speck.sites.identities import Identities
from speck.spec.site_schema import site_from_data
from speck.store.records import Records
from speck.store.tables import Batch
from tests.memory_fog import FAST, HASTY, site_body
from tests.waiting import wait_for

SITES = ("edge-a", "edge-b", "cloud")
LIMIT_S = 120.0
DONE, FAILED, SKIPPED = OperationState.DONE, OperationState.FAILED, OperationState.SKIPPED
CANCELLED, BLOCKED = OperationState.CANCELLED, OperationState.BLOCKED


class JumpingClock(SystemClock):
    """The machine's time, and what a test has added to it."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


class RecordingRecords(Records):
    """Notes in `log` each operation's state once it is on disk."""

    log: list[str]

    def write(self, *batches: Batch) -> None:
        super().write(*batches)
        for batch in batches:
            for record in batch.values():
                if isinstance(record, OperationOutcome):
                    self.log.append(f"{record.state} {record.kind} {record.site}")


@dataclass
class Bench:
    """Runs plans over three memory sites."""

    folder: Path
    records: RecordingRecords
    clock: JumpingClock = field(default_factory=JumpingClock)
    connections: Connections = field(init=False)

    def __post_init__(self) -> None:
        self.records.write(*(self.records.sites.put(site_from_data(site_body(s))) for s in SITES))
        self.connections = Connections(self.records.sites.all, self.folder)
        (self.folder / "a.jar").touch()

    def resends(self) -> Resends:
        run = ResendRun(
            self.connections,
            self.records,
            self.clock,
            lambda sha256: Artifact(sha256, self.folder / "a.jar", ArtifactKind.JAR),
            Agents(self.records, self.records.sites.all, self.clock),
        )
        return Resends(self.connections, self.records, self.clock, run)

    def execution(
        self, *steps: tuple[Operation, tuple[int, ...]], bounds: Bounds, patience: Patience
    ) -> Execution:
        numbered = tuple(
            Step(number, operation, after, "") for number, (operation, after) in enumerate(steps, 1)
        )
        return self.execution_of(numbered, bounds, patience)

    def execution_of(
        self, steps: tuple[Step, ...], bounds: Bounds = FAST, patience: Patience = HASTY
    ) -> Execution:
        operations = Operations(
            self.connections,
            self.records,
            self.clock,
            "c",
            lambda sha256: Artifact(sha256, self.folder / "a.jar", ArtifactKind.JAR),
            patience,
            Agents(self.records, self.records.sites.all, self.clock),
            Refills(self.connections, self.clock, patience.refill_s),
            self.resends(),
            Identities(self.records, self.connections, self.clock),
        )
        change = Change("1", Plan("c", (), steps), 1, "")
        return Execution(change, operations, self.connections, self.records, self.clock, bounds)

    def run(
        self,
        *steps: tuple[Operation, tuple[int, ...]],
        bounds: Bounds = FAST,
        patience: Patience = HASTY,
    ) -> Change:
        execution = self.execution(*steps, bounds=bounds, patience=patience)
        execution.run()
        return execution.change

    def start(
        self,
        *steps: tuple[Operation, tuple[int, ...]],
        bounds: Bounds = FAST,
        patience: Patience = HASTY,
    ) -> tuple[Execution, threading.Thread]:
        execution = self.execution(*steps, bounds=bounds, patience=patience)
        thread = threading.Thread(target=execution.run, daemon=True)
        thread.start()
        return execution, thread


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    World.reset(slots=64)
    records = RecordingRecords.open(tmp_path / "store", SystemClock())
    assert isinstance(records, RecordingRecords)
    records.log = []
    yield Bench(tmp_path, records)
    records.store.close()


def engine(site: str) -> SlotPool:
    return World.current().engine(f"http://{site}.test:8081")


def broker(site: str) -> Queues:
    return World.current().broker(f"tcp://{site}.test:1883")


def upload(site: str, jar: str = "a") -> Upload:
    return Upload(site, jar * 64)


def job(name: str, site: str = "edge-a") -> Job:
    return Job(
        job_name=name,
        site=site,
        source=Link(site, f"{name}-in"),
        sink=Link(site, f"{name}-out"),
        source_broker=f"tcp://{site}.test:1883",
        sink_broker=f"tcp://{site}.test:1883",
        entry_class="package.ExampleJob",
        artifact="a" * 64,
        artifact_kind=ArtifactKind.JAR,
    )


def start(name: str, site: str = "edge-a", attempt: int = 1, *, keeps_state: bool = False) -> Start:
    engine_id = engine_job_id("i", "c", name, 1, attempt)
    return Start(job(name, site), attempt, engine_id, False, keeps_state)


def has_state(bench: Bench, state: str) -> bool:
    stored = bench.records.changes.head("1")
    return stored is not None and stored.state == state


def states(change: Change) -> list[OperationState]:
    return [record.state for record in change.operations]


def join(thread: threading.Thread) -> None:
    thread.join(LIMIT_S)
    assert not thread.is_alive()


class Gauge:
    """A hook that sees how many calls of a kind run at the same time."""

    def __init__(self, kind: str, meet: int) -> None:
        self.kind, self.now, self.most = kind, 0, 0
        self._meet = meet
        self._changed = threading.Condition()

    def __call__(self, kind: str, subject: str) -> None:
        if kind != self.kind:
            return
        with self._changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self._changed.notify_all()
            # not a barrier: one call more than a multiple of `meet` would wait there alone
            assert self._changed.wait_for(lambda: self.most >= self._meet, LIMIT_S)
            self.now -= 1


def test_independent_operations_run_at_the_same_time(bench: Bench) -> None:
    meeting = threading.Barrier(6)
    for site in SITES:
        engine(site).before = lambda kind, subject: meeting.wait(LIMIT_S)
    change = bench.run(*((upload(site, jar), ()) for site in SITES for jar in "ab"))
    assert states(change) == [DONE] * 6
    assert change.state is ChangeState.DONE


def test_each_site_is_asked_for_so_much_at_once_and_no_more(bench: Bench) -> None:
    gauge = Gauge("upload", meet=3)
    engine("edge-a").before = gauge
    bounds = Bounds(per_site=3, poll_s=0.001)
    change = bench.run(*((upload("edge-a", jar), ()) for jar in "abcdefghi"), bounds=bounds)
    assert states(change) == [DONE] * 9
    assert gauge.most == 3


def test_what_ends_a_wait_is_bounded_too(bench: Bench) -> None:
    starts = [start(name) for name in "ABCDEFGHI"]
    bench.run(*((each, ()) for each in starts))
    gauge = Gauge("save_progress", meet=3)
    engine("edge-a").before = gauge
    engine("edge-a").hold_savepoints = True
    bounds = Bounds(per_site=3, poll_s=0.001)
    stops = [Stop("edge-a", each.job_name, 1, each.engine_job_id) for each in starts]
    execution, thread = bench.start(*((each, ()) for each in stops), bounds=bounds)
    wait_for(lambda: len(execution._waiting) == 9)
    engine("edge-a").let_go()
    join(thread)
    assert states(execution.change) == [DONE] * 9
    assert gauge.most == 3


def test_a_site_that_is_slow_does_not_hold_up_the_others(bench: Bench) -> None:
    stuck = threading.Event()
    for site in ("edge-a", "edge-b"):
        engine(site).before = lambda kind, subject: stuck.wait(LIMIT_S) and None
    slow = [(upload(site, jar), ()) for site in ("edge-a", "edge-b") for jar in "abcdefghijklmnop"]
    execution, thread = bench.start(*slow, (upload("cloud"), ()))
    wait_for(lambda: execution.change.operations[-1].state is DONE)
    stuck.set()
    join(thread)
    assert execution.change.state is ChangeState.DONE


def test_what_most_others_wait_for_goes_first(bench: Bench) -> None:
    steps = [(upload("edge-a", jar), ()) for jar in "bca"]
    change = bench.run(*steps, (start("A"), (3,)), (start("B"), (3,)), bounds=Bounds(per_site=1))
    assert states(change) == [DONE] * 5
    uploads = [subject[0] for kind, subject in engine("edge-a").calls if kind == "upload"]
    assert uploads == ["a", "b", "c"]


def test_the_loop_wakes_up_when_an_engine_is_to_be_polled(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_IDLE_S", 10 * LIMIT_S)
    execution, thread = bench.start((upload("edge-a"), ()), (start("A"), (1,)))
    join(thread)
    assert states(execution.change) == [DONE, DONE]


@contextmanager
def a_slow_start(
    bench: Bench, *more: tuple[Operation, tuple[int, ...]]
) -> Iterator[Callable[[], int]]:
    """A start that takes its time at edge-a, a call that does at edge-b, and `more`; gives how
    often the engine of edge-a was looked at. All ends well with the block."""
    engine("edge-a").hold_starts = True
    stuck = threading.Event()
    engine("edge-b").before = lambda kind, subject: stuck.wait(LIMIT_S) and None
    steps = ((start("A"), ()), (upload("edge-b"), ()), *more)
    execution, thread = bench.start(*steps, bounds=replace(FAST, poll_calm_s=LIMIT_S))
    wait_for(lambda: 1 in execution._waiting)
    try:
        yield lambda: engine("edge-a").count("view")
    finally:
        stuck.set()
        engine("edge-a").let_go()
        join(thread)
    assert set(states(execution.change)) == {DONE}


def test_no_engine_is_asked_while_calls_are_under_way_and_nothing_waits_for_its_answer(
    bench: Bench,
) -> None:
    in_turn = [(upload("cloud", jar), (n - 1,)) for n, jar in enumerate("bcdefghi", 4)]
    with a_slow_start(bench, (upload("cloud"), ()), *in_turn) as looks:
        wait_for(lambda: engine("cloud").count("upload") == len(in_turn) + 1)
        assert looks() == 0


def test_an_engine_is_asked_for_what_other_steps_wait_for(bench: Bench) -> None:
    with a_slow_start(bench, (start("B"), (1,))) as looks:
        wait_for(lambda: looks() > 1)


def test_a_dependent_starts_after_the_outcome_before_it_was_stored(bench: Bench) -> None:
    def called(kind: str, subject: str) -> None:
        if kind in ("upload", "submit"):
            bench.records.log.append(f"called {kind}")

    engine("edge-a").before = called
    bench.run((upload("edge-a"), ()), (start("A"), (1,)))
    assert bench.records.log == [
        "running upload edge-a",
        "called upload",
        "done upload edge-a",
        "running start edge-a",
        "called submit",
        "done start edge-a",
    ]


def test_an_outcome_and_what_it_releases_are_stored_with_one_sync(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[list[str]] = []
    write = bench.records.store.write

    def count(batch: Mapping[str, JsonObject | None]) -> None:
        states = [f"{r['state']} {r['site']}" for k, r in batch.items() if r and k[:3] == "op/"]
        syncs.append(states)
        write(batch)

    monkeypatch.setattr(bench.records.store, "write", count)
    bench.run((upload("edge-a"), ()), (upload("edge-b"), (1,)), (upload("cloud"), (2,)))
    assert syncs == [
        ["running edge-a"],
        ["done edge-a", "running edge-b"],
        ["done edge-b", "running cloud"],
        ["done cloud"],
    ]


def test_what_a_start_will_do_is_stored_before_the_engine_is_asked(bench: Bench) -> None:
    incarnations: list[Incarnation | None] = []

    def look(kind: str, subject: str) -> None:
        if kind == "submit":
            incarnations.append(bench.records.incarnations.get("c", "A"))

    engine("edge-a").before = look
    bench.run((start("A"), ()))
    operation = start("A")
    assert incarnations == [Incarnation(operation.job, 1, operation.engine_job_id)]
    confirmed = bench.records.incarnations.get("c", "A")
    assert confirmed == Incarnation(operation.job, 1, operation.engine_job_id, StartState.CONFIRMED)


def test_a_transient_error_is_tried_again_with_growing_pauses(bench: Bench) -> None:
    tries: list[float] = []
    engine("edge-a").before = lambda kind, subject: tries.append(bench.clock.monotonic())
    engine("edge-a").refuse("upload", 4, TransientError("cannot upload: busy"))
    bounds = Bounds(retry_first_s=0.002, retry_most_s=0.008)
    change = bench.run((upload("edge-a"), ()), bounds=bounds)
    assert states(change) == [DONE]
    assert change.operations[0].attempts == 5
    assert change.operations[0].error is None
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    least = (0.002, 0.004, 0.008, 0.008)
    assert all(pause >= expected for pause, expected in zip(pauses, least, strict=True))


def test_a_transient_error_that_stays_is_given_up(bench: Bench) -> None:
    engine("edge-a").refuse("upload", 10_000, TransientError("cannot upload: busy"))
    change = bench.run((upload("edge-a"), ()), (start("A"), (1,)))
    assert states(change) == [FAILED, SKIPPED]
    assert change.operations[0].attempts > 1
    assert change.operations[0].error == "cannot upload: busy"
    assert change.error == "cannot upload: busy"
    assert change.state is ChangeState.FAILED


def test_a_permanent_error_stops_its_dependents_only(bench: Bench) -> None:
    engine("edge-a").refuse("upload", 1, EngineRefusedError("cannot upload: no space"))
    execution = bench.execution(
        (upload("edge-a"), ()),
        (start("A"), (1,)),
        (start("B"), (2,)),
        (upload("cloud"), ()),
        (start("C", "cloud"), (4,)),
        bounds=FAST,
        patience=HASTY,
    )
    assert execution.run() is ChangeState.FAILED
    change = execution.change
    assert states(change) == [FAILED, SKIPPED, SKIPPED, DONE, DONE]
    assert change.operations[0].attempts == 1
    assert [o.error for o in change.operations[:3]] == [
        "cannot upload: no space",
        "step 1 failed: cannot upload: no space",
        "step 1 failed: cannot upload: no space",
    ]
    assert isinstance(execution.failure, EngineRefusedError)
    assert "edge-a" in str(execution.failure)
    stored = [
        record["state"] for _, record in bench.records.store.scan("op/1/") if record is not None
    ]
    assert stored == ["failed", "skipped", "skipped", "done", "done"]


def test_a_step_with_two_predecessors_is_skipped_once_and_not_started(bench: Bench) -> None:
    engine("edge-a").refuse("upload", 1, EngineRefusedError("cannot upload: no space"))
    change = bench.run((upload("edge-a"), ()), (upload("cloud"), ()), (start("A"), (1, 2)))
    assert states(change) == [FAILED, DONE, SKIPPED]
    assert engine("edge-a").count("submit") == 0


def test_a_step_may_wait_for_the_end_of_others_however_they_end(bench: Bench) -> None:
    engine("edge-a").refuse("upload", 1, EngineRefusedError("cannot upload: no space"))
    steps = (
        Step(1, upload("edge-a"), (), ""),
        Step(2, upload("cloud", "b"), (1,), ""),
        Step(3, upload("cloud"), (), ""),
        Step(4, start("C", "cloud"), (2, 3), "", frozenset({2})),
        Step(5, start("D", "cloud"), (1, 2), "", frozenset({2})),
    )
    execution = bench.execution_of(steps)
    execution.run()
    assert states(execution.change) == [FAILED, SKIPPED, DONE, DONE, SKIPPED]


def test_a_fault_of_a_binder_fails_its_step_with_its_name(bench: Bench) -> None:
    def faulty(kind: str, subject: str) -> None:
        raise ZeroDivisionError("oops")

    engine("edge-a").before = faulty
    change = bench.run((upload("edge-a"), ()), (upload("cloud"), ()))
    assert states(change) == [FAILED, DONE]
    assert change.operations[0].error == (
        "cannot carry out upload aaaaaaaa to edge-a: ZeroDivisionError('oops') (a fault in speck)"
    )


def test_a_fault_while_an_engine_is_looked_at_does_not_hang_the_change(bench: Bench) -> None:
    def faulty(kind: str, subject: str) -> None:
        if kind == "view":
            raise ZeroDivisionError("oops")

    engine("edge-a").before = faulty
    change = bench.run((start("A"), ()))
    assert states(change) == [FAILED]
    assert "ZeroDivisionError" in str(change.error)


def test_a_site_that_does_not_answer_blocks_its_steps_until_it_does(bench: Bench) -> None:
    engine("edge-a").unreachable = True
    execution, thread = bench.start(
        (upload("edge-a"), ()), (start("A"), (1,)), (upload("cloud"), ())
    )
    change = execution.change
    wait_for(lambda: change.state is ChangeState.BLOCKED)
    wait_for(lambda: states(change) == [BLOCKED, OperationState.PENDING, DONE])
    assert change.operations[0].error == (
        "cannot reach http://edge-a.test:8081: made unreachable by a test"
    )
    wait_for(lambda: has_state(bench, "blocked"))
    engine("edge-a").unreachable = False
    join(thread)
    assert states(change) == [DONE, DONE, DONE]
    assert change.state is ChangeState.DONE
    assert change.operations[0].error is None


def test_waiting_for_a_site_has_no_end_and_uses_up_no_patience(bench: Bench) -> None:
    engine("edge-a").unreachable = True
    execution, thread = bench.start((upload("edge-a"), ()))
    wait_for(lambda: execution.change.state is ChangeState.BLOCKED)
    bench.clock.ahead_s += 100_000
    engine("edge-a").refuse("upload", 2, TransientError("cannot upload: still waking up"))
    engine("edge-a").unreachable = False
    join(thread)
    assert states(execution.change) == [DONE]


def test_a_start_whose_site_falls_silent_is_blocked_and_not_given_up(bench: Bench) -> None:
    engine("edge-a").hold_starts = True
    execution, thread = bench.start((start("A"), ()))
    change = execution.change
    wait_for(lambda: bool(execution._waiting))
    engine("edge-a").unreachable = True
    wait_for(lambda: change.state is ChangeState.BLOCKED)
    tried = engine("edge-a").count("view")
    bench.clock.ahead_s += 100_000
    wait_for(lambda: engine("edge-a").count("view") > tried + 2)
    assert states(change) == [BLOCKED]
    engine("edge-a").unreachable = False
    wait_for(lambda: change.state is ChangeState.RUNNING)
    engine("edge-a").let_go()
    join(thread)
    assert states(change) == [DONE]
    assert engine("edge-a").count("submit") == 1


def test_a_start_that_never_runs_fails_in_the_end_with_its_cause(bench: Bench) -> None:
    engine("edge-a").hold_starts = True
    execution, thread = bench.start((start("A"), ()))
    wait_for(lambda: bool(execution._waiting))
    bench.clock.ahead_s += 100_000
    join(thread)
    assert states(execution.change) == [FAILED]
    assert execution.change.error == (
        "cannot start A: it is starting; see the engine's log at edge-a"
    )


def test_a_lost_answer_to_a_start_adopts_the_incarnation(bench: Bench) -> None:
    lost = UnreachableError("cannot reach edge-a: the answer was lost")
    engine("edge-a").refuse("submit", 1, lost, after=True)
    change = bench.run((start("A"), ()))
    assert states(change) == [DONE]
    assert change.operations[0].attempts == 2
    assert len(engine("edge-a").jobs) == 1


def test_a_lost_request_to_start_is_sent_again_under_the_same_id(bench: Bench) -> None:
    engine("edge-a").refuse("submit", 1, UnreachableError("cannot reach edge-a"))
    change = bench.run((start("A"), ()))
    assert states(change) == [DONE]
    assert list(engine("edge-a").jobs) == [start("A").engine_job_id]


def test_a_start_goes_on_from_the_newest_state_also_at_its_second_try(bench: Bench) -> None:
    first = start("A")
    bench.run((first, ()))
    stop = Stop("edge-a", "A", 1, first.engine_job_id)
    bench.run((stop, ()))
    incarnation = bench.records.incarnations.get("c", "A")
    assert incarnation is not None and incarnation.ended and incarnation.savepoint is not None
    engine("edge-a").refuse("submit", 1, UnreachableError("cannot reach edge-a"))
    again = start("A", attempt=2, keeps_state=True)
    change = bench.run((again, ()))
    assert states(change) == [DONE]
    submission = engine("edge-a").jobs[again.engine_job_id].submission
    assert submission.state == incarnation.savepoint


def test_starts_that_fail_do_not_pile_up_in_the_record(bench: Bench) -> None:
    first = start("A")
    bench.run((first, ()))
    bench.run((Stop("edge-a", "A", 1, first.engine_job_id), ()))
    base = bench.records.incarnations.get("c", "A")
    refusal = EngineRefusedError("cannot start A: no")
    for attempt in range(2, 6):
        engine("edge-a").refuse("submit", 1, refusal)
        bench.run((start("A", attempt=attempt, keeps_state=True), ()))
        incarnation = bench.records.incarnations.get("c", "A")
        assert incarnation is not None and incarnation.attempt == attempt
        assert incarnation.base == base


def test_a_start_without_any_state_to_be_found_is_refused(bench: Bench) -> None:
    first = start("A")
    bench.run((first, ()))
    engine("edge-a").forget_jobs()
    change = bench.run((start("A", attempt=2, keeps_state=True), ()))
    assert change.error == (
        "cannot start A from its newest state: edge-a knows none of its attempt 1"
        f" (cannot find the state of {first.engine_job_id}: no such job): cannot reach state"
        " at edge-a: the site has no agent; run `speck agent --site edge-a --state-folder FOLDER`"
        " beside its engine, or give sites that share storage the same label state_uri;"
        " or set `upgrade: stateless` to start it without state"
    )
    assert engine("edge-a").count("submit") == 1


def test_a_job_that_failed_before_its_first_checkpoint_starts_anew(bench: Bench) -> None:
    first = start("A")
    bench.run((first, ()))
    engine("edge-a").fail(first.engine_job_id, "no memory")
    change = bench.run((start("A", attempt=2, keeps_state=True), ()))
    assert change.state is ChangeState.DONE, change.error


def test_a_stop_that_cannot_take_its_savepoint_ends_the_job_all_the_same(bench: Bench) -> None:
    engine("edge-a").hold_savepoints = True
    first = start("A")
    bench.run((first, ()))
    stop = Stop("edge-a", "A", 1, first.engine_job_id)
    execution, thread = bench.start((stop, ()), (start("A", attempt=2), (1,)))
    wait_for(lambda: bool(engine("edge-a").held))
    engine("edge-a").jobs[first.engine_job_id].state = RunState.RESTARTING
    engine("edge-a").let_go()
    join(thread)
    assert states(execution.change) == [DONE, DONE]
    assert engine("edge-a").jobs[first.engine_job_id].state is RunState.CANCELED


def test_cancel_starts_nothing_more_and_lets_end_what_is_under_way(bench: Bench) -> None:
    engine("edge-a").hold_starts = True
    execution, thread = bench.start((start("A"), ()), (start("B"), (1,)), (start("C"), (2,)))
    wait_for(lambda: bool(execution._waiting))
    execution.cancel()
    wait_for(lambda: states(execution.change)[1:] == [CANCELLED, CANCELLED])
    assert thread.is_alive()
    engine("edge-a").let_go()
    join(thread)
    assert states(execution.change) == [DONE, CANCELLED, CANCELLED]
    assert execution.change.state is ChangeState.CANCELLED
    assert len(engine("edge-a").running()) == 1


def test_cancel_ends_a_step_that_awaits_its_next_try(bench: Bench) -> None:
    engine("edge-a").refuse("upload", 10_000, TransientError("cannot upload: busy"))
    bounds = Bounds(retry_first_s=1000, retry_most_s=1000, retry_for_s=1e6)
    execution, thread = bench.start((upload("edge-a"), ()), bounds=bounds)
    wait_for(lambda: bool(execution._retries))
    execution.cancel()
    join(thread)
    assert states(execution.change) == [CANCELLED]
    assert execution.change.state is ChangeState.CANCELLED


def test_cancel_ends_a_change_whose_site_is_silent(bench: Bench) -> None:
    engine("edge-a").hold_starts = True
    execution, thread = bench.start((start("A"), ()), (start("B"), (1,)))
    wait_for(lambda: bool(execution._waiting))
    engine("edge-a").unreachable = True
    wait_for(lambda: execution.change.state is ChangeState.BLOCKED)
    execution.cancel()
    join(thread)
    assert states(execution.change) == [CANCELLED, CANCELLED]


def drain_of_two() -> Drain:
    sinks = tuple(sink_client_id("i", name, job(name).source, job(name).sink) for name in "PQ")
    reader = source_client_id("i", "A", job("A").source)
    running = engine_job_id("i", "c", "A", 1, 1)
    return Drain("edge-a", job("A").source, reader, "A", sinks, "edge-a", running)


def test_a_drain_ends_when_the_last_number_of_each_producer_was_taken(bench: Bench) -> None:
    drain = drain_of_two()
    queues = broker("edge-a")
    queues.sent[drain.sinks[0]] = Sent("i-P", 1, 7)
    queues.sent[drain.sinks[1]] = Sent("i-Q", 1, 5)
    execution, thread = bench.start((drain, ()))
    for taken in ({}, {"i-P": {1: 7}}, {"i-P": {1: 7}, "i-Q": {1: 4}}):
        queues.taken[drain.client_id] = Taken(1, taken)
        looked = queues.count("view")
        wait_for(lambda looked=looked: queues.count("view") > looked + 2)
        assert thread.is_alive()
    queues.taken[drain.client_id] = Taken(2, {"i-P": {1: 7}, "i-Q": {1: 5}})
    join(thread)
    assert states(execution.change) == [DONE]


def test_a_drain_waits_also_when_another_producer_never_sent(bench: Bench) -> None:
    drain = drain_of_two()
    queues = broker("edge-a")
    queues.sent[drain.sinks[0]] = Sent("i-P", 1, 7)
    execution, thread = bench.start((drain, ()))
    wait_for(lambda: queues.count("view") > 3)
    assert states(execution.change) == [OperationState.RUNNING]
    queues.taken[drain.client_id] = Taken(1, {"i-P": {1: 7}})
    join(thread)
    assert states(execution.change) == [DONE]


def test_a_drain_needs_no_engine(bench: Bench) -> None:
    engine("edge-a").unreachable = True
    assert states(bench.run((drain_of_two(), ()))) == [DONE]


def test_a_drain_that_stands_still_is_given_up_with_the_number(bench: Bench) -> None:
    drain = drain_of_two()
    broker("edge-a").sent[drain.sinks[0]] = Sent("i-P", 1, 7)
    execution, thread = bench.start((drain, ()))
    while thread.is_alive():  # a look at each second: its engine is asked only after more
        looks = broker("edge-a").count("view")
        bench.clock.ahead_s += 1
        wait_for(
            lambda looks=looks: broker("edge-a").count("view") > looks or not thread.is_alive()
        )
    assert states(execution.change) == [FAILED]
    assert execution.change.error == (
        "cannot drain edge-a/A-in: A has not taken 7 messages and takes no more; see `speck job A`,"
        " or apply with --drop-queues to drop them"
    )


def test_cancel_does_not_wait_for_a_drain(bench: Bench) -> None:
    drain = drain_of_two()
    broker("edge-a").sent[drain.sinks[0]] = Sent("i-P", 1, 7)
    execution, thread = bench.start((drain, ()))
    wait_for(lambda: bool(execution._waiting))
    execution.cancel()
    join(thread)
    assert states(execution.change) == [CANCELLED]


def test_a_drain_waits_for_what_was_sent_under_a_former_source(bench: Bench) -> None:
    drain = drain_of_two()
    queues = broker("edge-a")
    queues.sent[drain.sinks[0]] = Sent("i-P", 1, 7)
    queues.sent[drain.sinks[1]] = Sent("i-P", 2, 5)
    queues.taken[drain.client_id] = Taken(1, {"i-P": {1: 6}})
    execution, thread = bench.start((drain, ()))
    wait_for(lambda: queues.count("view") > 3)
    assert states(execution.change) == [OperationState.RUNNING]
    queues.taken[drain.client_id] = Taken(2, {"i-P": {2: 5}})
    join(thread)
    assert states(execution.change) == [DONE]


def test_a_start_stores_the_former_sinks_with_the_incarnation(bench: Bench) -> None:
    former = tuple(FormerSink(job("A").sink, sink) for sink in ("x-out", "y-out"))
    bench.run((replace(start("A"), former_sinks=former), ()))
    deployed = bench.records.incarnations.get("c", "A")
    assert deployed is not None
    assert deployed.confirmed
    assert deployed.former_sinks == former


@pytest.mark.parametrize(
    "operation",
    [
        Clear("edge-a", "A", job("A").sink, ("x-out", "y-out")),
        Forget("edge-b", "A", (LeftLink(job("A").sink, ("x-out", "y-out")),)),
    ],
)
def test_the_numbers_of_all_sinks_are_cleared(bench: Bench, operation: Operation) -> None:
    queues = broker("edge-a")
    for sink in ("x-out", "y-out", "z-out"):
        queues.sent[sink] = Sent("i-A", 1, 7)
    assert states(bench.run((operation, ()))) == [DONE]
    assert set(queues.sent) == {"z-out"}
    assert queues.calls == [("identify", ""), ("forget", "x-out, y-out")]


def test_a_release_clears_its_readers_numbers_in_one_call(bench: Bench) -> None:
    queues = broker("edge-a")
    queues.taken = {"gone": Taken(1, {}), "stays": Taken(1, {})}
    queues.refuse("release", 1, UnreachableError("cannot reach edge-a"), after=True)
    release = Release("edge-a", job("A").source, "gone", "A", last_reader=True)
    assert states(bench.run((release, ()))) == [DONE]
    assert set(queues.taken) == {"stays"}
    asked, *calls = queues.calls
    assert asked == ("identify", "")
    assert calls == [("release", "gone")] * 2  # the first one's answer was lost
    assert bench.records.inventory("c").sessions == ()


def test_sessions_that_are_released_together_share_a_sync(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = ("r1", "r2", "r3", "r4")
    link = job("A").source
    sessions = [Session(reader, link, "edge-a", reader) for reader in readers]
    bench.records.write(*(bench.records.sessions.put("c", session) for session in sessions))
    write, first = bench.records.store.write, threading.Lock()

    def sync(batch: Mapping[str, JsonObject | None]) -> None:
        if any(key.startswith("ses/") for key in batch) and first.acquire(blocking=False):
            others = len(readers) - sum(key.startswith("ses/") for key in batch)
            wait_for(lambda: bench.records.queued == others, "the others", 10)
        write(batch)

    monkeypatch.setattr(bench.records.store, "write", sync)
    steps = [(Release("edge-a", link, r, r, last_reader=False), ()) for r in readers]
    assert states(bench.run(*steps)) == [DONE] * 4


def test_a_session_is_remembered_before_the_broker_is_asked(bench: Bench) -> None:
    queues = broker("edge-a")
    queues.refuse("reserve", 1, EngineRefusedError("cannot reserve: no"))
    reader = source_client_id("i", "A", job("A").source)
    reserve = Reserve("edge-a", job("A").source, reader, "A")
    bench.run((reserve, ()))
    assert [s.reserved for s in bench.records.inventory("c").sessions] == [False]
    bench.run((reserve, ()))
    assert [s.reserved for s in bench.records.inventory("c").sessions] == [True]


def test_a_plan_without_steps_is_done_at_once(bench: Bench) -> None:
    assert bench.run().state is ChangeState.DONE


def test_what_several_producers_that_leave_a_link_owe_is_all_noted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = job("A").sink
    bench.records.write(bench.records.sessions.put("c", Session("r", link, "edge-a", "R")))
    queues = broker("edge-a")
    queues.sent = {"x-out": Sent("i-X", 1, 7), "y-out": Sent("i-Y", 1, 9)}
    read, both = bench.records.sessions.get, threading.Barrier(2)

    def slowly(scope: str, client_id: str, site: str) -> Session | None:
        numbers = read(scope, client_id, site)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # until both have read, if they may at the same time
        return numbers

    monkeypatch.setattr(bench.records.sessions, "get", slowly)
    clears = [(Clear("edge-a", name, link, (f"{name}-out",), ("r",)), ()) for name in ("x", "y")]
    bench.run(*clears)
    noted = read("c", "r", "edge-a")
    assert noted is not None and noted.owed == (("i-X", 1, 7), ("i-Y", 1, 9))
