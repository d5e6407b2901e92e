"""Sessions are written under their locks, and together with outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any
from unittest.mock import patch

import pytest

from binders.memory import MemoryBroker
from speck.deploy.locks import NamedLocks, SessionLocks
from speck.deploy.operations import returning, starting
from speck.deploy.operations.beginnings import record_accepted, record_forms
from speck.deploy.operations.catching_up import switch
from speck.deploy.operations.context import Context
from speck.deploy.operations.draining import Draining
from speck.deploy.operations.ending import conclude
from speck.deploy.operations.links import give_up_release, reserve
from speck.deploy.operations.outcome import Done, Outcome
from speck.deploy.operations.returning import come_back
from speck.deploy.operations.shared_views import SharedViews
from speck.errors import PermanentError, UnreachableError
from speck.model.incarnation import EndState, Incarnation, Session, StartState
from speck.model.job_operations import Return, Stop, Switch
from speck.model.link import Link
from speck.model.link_operations import Drain, Release, Reserve
from speck.model.observation import BrokerView
from speck.store.tables import Batch
from tests.memory_fog import find_session
from tests.service_helpers import broker
from tests.unit.deploy.bench import Bench, job, start
from tests.unit.deploy.operations.readers import (
    HAND_OVER,
    NEW,
    OLD,
    SINK,
    Reader,
    put,
    release,
    sent,
    session,
    stored,
)


@pytest.mark.parametrize(
    "operate",
    [
        lambda reader: reader.drain(sinks=(SINK,), handed_over=True).poll(),
        lambda reader: reader.drain(sinks=(SINK,)).give_up("it hangs"),
        lambda reader: reserve(
            reader.context(), Reserve("edge-a", job("A").source, OLD, "Old", follows=NEW)
        ),
        lambda reader: switch(reader.context(), Switch("edge-a", (), joining=(HAND_OVER,))),
        lambda reader: switch(reader.context(), Switch("edge-a", (), (HAND_OVER,))),
        lambda reader: give_up_release(
            reader.context(), Release("edge-a", job("A").source, OLD, "Old", False), "it is away"
        ),
    ],
    ids=["drain", "given up", "reserve", "joining", "handover", "release given up"],
)
def test_what_others_write_to_a_session_before_the_outcome_is_stored_stays(
    bench: Bench, reader: Reader, operate: Callable[[Reader], Outcome]
) -> None:
    """Outcomes of many operations are stored together, after their sessions were written."""
    put(bench, session(NEW, "New", follows=OLD))
    sent(7)
    reader.has_taken(7)
    outcome = operate(reader)
    assert isinstance(outcome, Done)
    put(bench, *(replace(each, committed=True) for each in stored(bench).values()))
    bench.records.write(outcome.batch())
    assert [each.client_id for each in stored(bench).values() if not each.committed] == []


OTHER_JOB = replace(job("A"), sink=Link("edge-a", "other"))


class BusyLocks(NamedLocks):
    """Whoever wants a lock waits for others, who write to all sessions. Nobody else writes to one
    without its lock."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench
        self._write = bench.records.write
        self._held = set[str]()

    @contextmanager
    def __getitem__(self, name: str) -> Iterator[None]:
        with super().__getitem__(name):
            put = self._bench.records.sessions.put
            for each in stored(self._bench).values():
                self._write(put("c", replace(each, owed=OWED)))
            self._held.add(name)
            yield
            self._held.remove(name)

    def write(self, *batches: Batch) -> None:
        names = {find_session(key) for batch in batches for key in batch} - {None}
        assert names <= self._held
        self._write(*batches)


OWED = (("i-P", 1, 1),)


def commit_cut(context: Context) -> None:
    commits = ((NEW, job("A"), False),)
    record_accepted(context, Incarnation(job("A"), 1, start("A").engine_job_id, commits=commits))


def come_back_to_a_link(context: Context) -> None:
    once_more = Return(job("A"), 2, "second", False, "first", fed=True)
    with patch.object(returning, "start", lambda context, operation: Done()):
        outcome = come_back(context, once_more)
    assert isinstance(outcome, Done)
    context.records.write(outcome.store)


def start_without_session(context: Context) -> None:
    with pytest.raises(PermanentError, match="has lost its session"):
        starting.start(context, start("A"))


def put_accepted(context: Context, **more: object) -> Incarnation:
    accepted = Incarnation(job("A"), 1, start("A").engine_job_id, StartState.ACCEPTED)
    incarnation = replace(accepted, **more)  # type: ignore[arg-type]
    context.records.write(context.records.incarnations.put("c", incarnation))
    return incarnation


def end(context: Context) -> None:
    stop = Stop("edge-a", "A", 1, put_accepted(context).engine_job_id)
    context.store(conclude(context, stop, None))


def start_anew_while_the_broker_is_silent(context: Context) -> None:
    put_accepted(context, end=EndState.ENDED)

    def fail(site: str, client_ids: object) -> BrokerView:
        raise UnreachableError(f"cannot reach the broker of {site}")

    starting.start(replace(context, views=SharedViews(fail)), start("A", attempt=2))


def give_up_drain(context: Context) -> None:
    drain = Drain("edge-a", job("A").source, OLD, "Old", (), "edge-a", start("A").engine_job_id)
    context.store(Draining(drain, context).give_up("it hangs"))


def give_up_releasing(context: Context) -> None:
    released = Release("edge-a", job("A").source, OLD, "Old", False)
    give_up_release(context, released, "it is away")


@pytest.mark.parametrize(
    ("operate", "own", "new"),
    [
        (commit_cut, {}, {"instead_of": OLD}),
        (come_back_to_a_link, {"instead_of": NEW}, {}),
        (start_without_session, {"former": NEW}, {"followed_by": OLD}),
        (end, {}, {}),
        (lambda context: record_forms(context, [start("A")]), {"job": OTHER_JOB}, {}),
        (
            start_anew_while_the_broker_is_silent,
            {"drained": True},
            {"link": job("A").sink, "job_name": None},
        ),
        (give_up_drain, {}, {}),
        (give_up_releasing, {}, {}),
    ],
    ids=["commit", "return", "lost session", "end", "forms", "silent", "drain", "release"],
)
def test_a_session_is_read_under_its_lock_by_whoever_writes_it(
    bench: Bench,
    reader: Reader,
    operate: Callable[[Context], None],
    own: dict[str, object],
    new: dict[str, object],
) -> None:
    locks = BusyLocks(bench)
    session_locks = SessionLocks()
    session_locks.writing = locks
    context = replace(reader.context(), session_locks=session_locks)
    client_id = context.source_client_id(job("A"))
    put(bench, session(client_id, "A", **own), session(NEW, "New", **new))
    put(bench, session(OLD, "Old"))
    before = stored(bench)
    with patch.object(bench.records, "write", locks.write):
        operate(context)
    after = stored(bench)
    changed = [n for n in after if replace(after[n], owed=()) != before[n]]
    assert changed, "nothing was written"
    assert [each for each in changed if after[each].owed != OWED] == []


@pytest.mark.parametrize("operate", [end, give_up_drain], ids=["end", "drain given up"])
def test_a_session_is_written_together_with_the_outcome(
    bench: Bench, reader: Reader, operate: Callable[[Context], None]
) -> None:
    """A service that is killed leaves either both or neither of them."""
    context = reader.context()
    own = session(context.source_client_id(job("A")), "A")
    put(bench, own, session(OLD, "Old"))
    before, seen = stored(bench), list[dict[str, Session]]()
    store = Context.store

    def look(context: Context, outcome: Done) -> None:
        seen.append(stored(bench))
        store(context, outcome)

    with patch.object(Context, "store", look):
        operate(context)
    assert seen == [before]
    assert stored(bench) != before


@pytest.mark.parametrize(
    "operation",
    [
        Switch("edge-a", (start("A"),), (HAND_OVER,)),
        Switch("edge-a", (start("A"),), joining=(HAND_OVER,)),
    ],
    ids=["handover", "joining"],
)
def test_a_switch_that_is_repeated_changes_nothing(
    bench: Bench, reader: Reader, operation: Switch
) -> None:
    """The service may be killed between its one write and that of its outcome."""
    context = reader.context()
    put(bench, session(OLD, "Old"), session(NEW, "New", follows=OLD))
    put(bench, session(context.source_client_id(job("A")), "A", begun=True))
    reader.has_taken(7)
    before = stored(bench)
    assert switch(context, operation) == Done()
    after, incarnation = stored(bench), context.find_incarnation("A")
    assert incarnation is not None and after != before
    broker("edge-a").taken.clear()
    assert switch(context, operation) == Done()
    assert (stored(bench), context.find_incarnation("A")) == (after, incarnation)


@pytest.mark.parametrize(
    "operate",
    [
        lambda context: reserve(
            context,
            Reserve("edge-a", job("A").source, context.source_client_id(job("A")), "A"),
        ),
        release,
        start_without_session,
        lambda context: starting.start(context, start("A")),
    ],
    ids=["reserve", "release", "lost session", "start"],
)
def test_a_session_is_reached_and_begins_to_be_read_under_its_lock(
    bench: Bench,
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
    operate: Callable[[Context], object],
) -> None:
    """Otherwise what renews or restores it at the same time would end it or disconnect the
    reader."""
    context = reader.context()
    client_id = context.source_client_id(job("A"))
    others = operate is start_without_session
    put(bench, session(client_id, "A", former=NEW if others else None))
    if others:
        put(bench, session(NEW, "New", followed_by=OLD), session(OLD, "Old"))
    seen: list[bool] = []

    def note() -> None:
        """Whether another thread could have the lock now."""
        lock: Any = context.reserving[client_id]
        with ThreadPoolExecutor(1) as other:
            seen.append(not other.submit(lock.acquire, blocking=False).result())

    for name in ("reserve", "release"):
        original = getattr(MemoryBroker, name)

        def reach(*args: Any, original: Any = original, **more: Any) -> Any:
            note()
            return original(*args, **more)

        monkeypatch.setattr(MemoryBroker, name, reach)
    write = bench.records.write

    def note_start(*batches: Batch) -> None:
        if any(
            key == "inv/c/A" and context.find_incarnation("A") is None for key in chain(*batches)
        ):
            note()
        write(*batches)

    monkeypatch.setattr(bench.records, "write", note_start)
    operate(context)
    assert set(seen) == {True}
