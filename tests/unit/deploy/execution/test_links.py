"""Drains, releases and clearings, as the executor carries them out."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pytest

from speck.errors import EngineRefusedError, UnreachableError
from speck.model.ids import engine_job_id, sink_client_id, source_client_id
from speck.model.incarnation import FormerSink, Session
from speck.model.job_operations import Forget
from speck.model.link_operations import Clear, Drain, LeftLink, Release, Reserve
from speck.model.observation import Sent, Taken
from speck.model.plan import Operation
from speck.model.plan_outline import OperationState
from speck.model.values import JsonObject
from tests.service_helpers import broker, engine
from tests.unit.deploy.bench import CANCELLED, DONE, FAILED, Bench, job, join, start, states
from tests.waiting import wait_for


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


@pytest.mark.parametrize(
    ("sent", "before", "last"),
    [
        ((Sent("i-P", 1, 7),), None, {"i-P": {1: 7}}),
        ((Sent("i-P", 1, 7), Sent("i-P", 2, 5)), {"i-P": {1: 6}}, {"i-P": {2: 5}}),
    ],
    ids=["another producer never sent", "sent under a former source too"],
)
def test_a_drain_waits_for_all_that_was_sent(
    bench: Bench,
    sent: tuple[Sent, ...],
    before: dict[str, dict[int, int]] | None,
    last: dict[str, dict[int, int]],
) -> None:
    drain = drain_of_two()
    queues = broker("edge-a")
    queues.sent.update(zip(drain.sinks, sent, strict=False))
    if before is not None:
        queues.taken[drain.client_id] = Taken(1, before)
    execution, thread = bench.start((drain, ()))
    wait_for(lambda: queues.count("view") > 3)
    assert states(execution.change) == [OperationState.RUNNING]
    queues.taken[drain.client_id] = Taken(2, last)
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
