"""The executor stores outcomes, tries again, and releases what depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest

from speck.deploy.execution import Bounds
from speck.errors import EngineRefusedError, TransientError
from speck.model.change import ChangeState
from speck.model.incarnation import Incarnation, StartState
from speck.model.plan import Step
from speck.model.values import JsonObject
from tests.memory_fog import FAST, HASTY
from tests.service_helpers import engine
from tests.unit.deploy.bench import DONE, FAILED, SKIPPED, Bench, start, states, upload


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


def test_a_plan_without_steps_is_done_at_once(bench: Bench) -> None:
    assert bench.run().state is ChangeState.DONE
