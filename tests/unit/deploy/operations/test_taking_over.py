"""The start of a reader that goes on where another one ended, and the session in which it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binders.memory import World
from speck.errors import UnreachableError
from speck.model.incarnation import EndState, Incarnation, StartState
from speck.model.job import Job
from speck.model.link_operations import HandOver, Release
from speck.model.observation import Taken, TakenEpoch
from speck.spec.job_contract import render_taken
from tests.service_helpers import broker, engine
from tests.unit.deploy.bench import DONE, FAILED, Bench, job, start, states
from tests.unit.deploy.operations.readers import NEW, OLD, put, reader_of, session, stored


def handed_over(bench: Bench, **more: object) -> str:
    """A's session, in which it goes on where Old ended; gives its client id."""
    own = reader_of(bench, job("A"))
    taken = (TakenEpoch("i-P", 1, 2, ((4, 4),)),)
    new = session(own, "A", skip=taken, **{"former": OLD, **more})
    put(bench, session(OLD, "Old", followed_by=own), new)
    broker("edge-a").subscribe(own, "A-in")
    return own


def came_out() -> list[bytes]:
    World.current().pump()
    return [message.payload for message in broker("edge-a").published["A-out"]]


def test_a_start_says_what_others_have_taken_and_the_job_drops_it(bench: Bench) -> None:
    handed_over(bench)
    numbers = [str(number).encode() for number in range(1, 7)]
    World.current().feed("tcp://edge-a.test:1883", "A-in", numbers, "i-P")
    assert states(bench.run((start("A"), ()))) == [DONE]
    args = engine("edge-a").jobs[start("A").engine_job_id].submission.args
    taken = (TakenEpoch("i-P", 1, 2, ((4, 4),)),)
    assert args[args.index("--taken") + 1] == render_taken(taken)
    assert came_out() == [b"3", b"5", b"6"]


def test_a_start_of_a_reader_that_follows_nobody_says_nothing_of_it(bench: Bench) -> None:
    own = reader_of(bench, job("A"))
    put(bench, session(own, "A"))
    assert states(bench.run((start("A"), ()))) == [DONE]
    args = engine("edge-a").jobs[start("A").engine_job_id].submission.args
    assert "--taken" not in args
    assert broker("edge-a").count("reserve") == 0


def test_what_was_taken_of_another_link_is_not_dropped(bench: Bench) -> None:
    """A client id stands for a link; a record that says otherwise is not believed."""
    own = reader_of(bench, job("A"))
    put(bench, session(own, "A", link=job("B").source, skip=(TakenEpoch("i-P", 1, 2),)))
    bench.run((start("A"), ()))
    assert "--taken" not in engine("edge-a").jobs[start("A").engine_job_id].submission.args


def test_a_later_start_drops_the_same(bench: Bench) -> None:
    handed_over(bench)
    bench.run((start("A"), ()))
    engine("edge-a").fail(start("A").engine_job_id, "no memory")
    again = start("A", attempt=2)
    assert states(bench.run((again, ()))) == [DONE]
    assert "--taken" in engine("edge-a").jobs[again.engine_job_id].submission.args


def test_a_start_says_only_what_was_stored_at_the_handover(bench: Bench) -> None:
    """A start asks nobody what others have taken: a change that goes on says the same again."""
    own = handed_over(bench)
    broker("edge-a").taken[OLD] = Taken(9, {"i-P": {1: 99}})
    bench.run((start("A"), ()))
    args = engine("edge-a").jobs[start("A").engine_job_id].submission.args
    assert args[args.index("--taken") + 1] == render_taken(stored(bench)[own].skip)


def test_a_session_that_is_there_is_gone_on_with(bench: Bench) -> None:
    own = handed_over(bench)
    before = stored(bench)
    assert states(bench.run((start("A"), ()))) == [DONE]
    assert broker("edge-a").calls[:2] == [("identify", ""), ("reserve", own)]
    begun = replace(before[own], job=start("A").job, begun=True)
    assert stored(bench) == {**before, own: begun}
    assert broker("edge-a").thrown_out == []


def test_a_reader_does_not_start_in_a_session_that_the_broker_has_lost(bench: Bench) -> None:
    own = handed_over(bench)
    del broker("edge-a").sessions[own]
    change = bench.run((start("A"), ()))
    assert states(change) == [FAILED]
    assert change.error == (
        "cannot start A: the broker of edge-a has lost its session on A-in since it was reserved;"
        " apply again: Old then takes what came meanwhile"
    )
    assert engine("edge-a").count("submit") == 0
    assert bench.records.incarnations.get("c", "A") is None
    assert stored(bench) == {
        OLD: session(OLD, "Old"),
        own: session(own, "A", reserved=False, follows=OLD),
    }


def test_one_of_several_readers_whose_session_is_lost_has_the_sinks_send_again(
    bench: Bench,
) -> None:
    """It follows nobody: no other session holds what came for it."""
    own = reader_of(bench, job("A"))
    put(bench, session(OLD, "Old"), session(own, "A"))
    assert states(bench.run((start("A"), ()))) == [DONE]
    assert broker("edge-a").calls[:3] == [("identify", ""), ("reserve", own)]
    begun = session(own, "A", job=start("A").job, begun=True)
    assert stored(bench) == {OLD: session(OLD, "Old"), own: begun}


def before_it(of: Job, **more: object) -> Incarnation:
    return replace(Incarnation(of, 1, "1" * 32), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more",
    [
        {"start": StartState.CONFIRMED},
        {"start": StartState.ACCEPTED},
        {"end": EndState.ENDED},
        {},
    ],
)
def test_a_session_that_an_incarnation_may_hold_is_not_reserved_again(
    bench: Bench, more: dict[str, StartState | EndState]
) -> None:
    """That would throw it out."""
    handed_over(bench)
    bench.records.write(bench.records.incarnations.put("c", before_it(job("A"), **more)))
    bench.run((start("A", attempt=2), ()))
    assert broker("edge-a").count("reserve") == 0


def test_an_incarnation_before_one_that_never_ran_may_hold_the_session_too(bench: Bench) -> None:
    handed_over(bench)
    base = before_it(job("A"), start=StartState.CONFIRMED)
    void = Incarnation(job("A"), 2, "2" * 32, start=StartState.VOID, base=base)
    bench.records.write(bench.records.incarnations.put("c", void))
    bench.run((start("A", attempt=3), ()))
    assert broker("edge-a").count("reserve") == 0


@pytest.mark.parametrize("before", ["of another link", "that never ran"])
def test_an_incarnation_that_does_not_hold_the_session_does_not_vouch_for_it(
    bench: Bench, before: str
) -> None:
    own = handed_over(bench)
    del broker("edge-a").sessions[own]
    elsewhere = replace(job("A"), source=job("B").source)
    old = before_it(elsewhere, end=EndState.ENDED) if before == "of another link" else None
    bench.records.write(
        bench.records.incarnations.put(
            "c", old or before_it(job("A"), start=StartState.VOID, end=EndState.ENDED)
        )
    )
    change = bench.run((start("A", attempt=2), ()))
    assert states(change) == [FAILED]
    assert "has lost its session" in str(change.error)


def test_a_start_whose_answer_was_lost_does_not_throw_out_its_own_incarnation(
    bench: Bench,
) -> None:
    handed_over(bench)
    lost = UnreachableError("cannot reach edge-a: the answer was lost")
    engine("edge-a").refuse("submit", 1, lost, after=True)
    change = bench.run((start("A"), ()))
    assert states(change) == [DONE]
    assert change.operations[0].attempts == 2
    assert broker("edge-a").thrown_out == []


def test_each_of_two_that_follow_one_reader_sees_that_its_session_is_there(bench: Bench) -> None:
    """The broker lost that of the first; what it was to read waits in the old session only."""
    first, second = (reader_of(bench, job(name)) for name in "AB")
    put(bench, session(OLD, "Old"))
    put(bench, *(session(each, n, follows=OLD) for each, n in ((first, "A"), (second, "B"))))
    for client_id, name in ((first, "A"), (second, "B")):
        bench.run((HandOver("edge-a", job("A").source, client_id, name, OLD, "Old"), ()))
    broker("edge-a").subscribe(second, "A-in")
    assert states(bench.run((start("A"), ()))) == [FAILED]


def test_a_session_that_is_released_is_read_in_the_place_of_none(bench: Bench) -> None:
    """One that is made later under its client id is not meant."""
    put(bench, session(OLD, "Old"), session(NEW, "New", begun=True, instead_of=OLD))
    release = Release("edge-a", job("A").source, OLD, "Old", last_reader=False)
    assert states(bench.run((release, ()))) == [DONE]
    assert stored(bench) == {NEW: session(NEW, "New", begun=True)}
