"""Readers change at the same record only if their broker has what they said at their ends."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from unittest.mock import patch

import pytest

from binders.memory import World
from speck.deploy.operations.catching_up import catch_up, switch
from speck.deploy.operations.context import Context
from speck.deploy.operations.outcome import Done
from speck.errors import PermanentError
from speck.model.incarnation import EndState, Incarnation, StartState
from speck.model.job_operations import CatchUp, Stop, Switch
from speck.model.link_operations import HandOver
from speck.model.observation import BrokerView, TakenEpoch
from tests.service_helpers import broker
from tests.unit.deploy.bench import DONE, Bench, job, start, states
from tests.unit.deploy.operations.readers import NEW, OLD, Reader, put, reader_of, session
from tests.unit.deploy.operations.test_final_reports import SlowlyToldBroker, go_on

JOB = replace(job("A"), job_name="Old")
STOPPED = "1" * 32
CATCH_UP = CatchUp(JOB, 2, "2" * 32, OLD, (OLD, NEW), True)
SWITCH = Switch("edge-a", (), readers=(("edge-a", OLD), ("edge-a", NEW)))
FORGOTTEN = "may have forgotten what they had taken; apply again"


def stop_both(bench: Bench, reader: Reader) -> Context:
    """Let two readers of a link be asked to stop now, and end."""
    broker("edge-a").up_since = bench.clock.monotonic()
    put(bench, session(OLD, "Old"), session(NEW, "New"))
    asked_ms, context = int(bench.clock.now().timestamp() * 1000), reader.context()
    for name, engine_job_id in (("Old", STOPPED), ("New", "3" * 32)):
        of, states = replace(JOB, job_name=name), (StartState.CONFIRMED, EndState.ENDED)
        ended = Incarnation(of, 1, engine_job_id, *states, asked_ms=asked_ms)
        bench.records.write(bench.records.incarnations.put("c", ended))
        context.resends.ask(engine_job_id)
    return context


def restart(bench: Bench) -> None:
    bench.clock.ahead_s += 1
    broker("edge-a").up_since = bench.clock.monotonic()


def find(bench: Bench, name: str) -> Incarnation:
    incarnation = bench.records.incarnations.get("c", name)
    assert incarnation is not None
    return incarnation


def test_readers_that_have_ended_at_the_same_record_change_there(
    bench: Bench, reader: Reader
) -> None:
    context = stop_both(bench, reader)
    assert catch_up(context, CATCH_UP) == Done()
    assert switch(context, SWITCH) == Done()
    assert not find(bench, "Old").is_forgotten


def test_readers_do_not_change_if_their_broker_was_restarted(bench: Bench, reader: Reader) -> None:
    context = stop_both(bench, reader)
    restart(bench)
    with pytest.raises(PermanentError, match=f"since Old, New stopped, and {FORGOTTEN}"):
        catch_up(context, CATCH_UP)
    assert find(bench, "Old").is_forgotten and find(bench, "New").is_forgotten


def test_nor_if_it_was_restarted_after_they_had_caught_up(bench: Bench, reader: Reader) -> None:
    context = stop_both(bench, reader)
    assert catch_up(context, CATCH_UP) == Done()
    restart(bench)
    with pytest.raises(PermanentError, match=FORGOTTEN):
        switch(context, SWITCH)
    assert find(bench, "Old").is_forgotten


def test_nor_if_a_start_was_refused_meanwhile(bench: Bench, reader: Reader) -> None:
    """What has run is the incarnation before it."""
    context = stop_both(bench, reader)
    refused = Incarnation(JOB, 2, "4" * 32, StartState.VOID, base=find(bench, "Old"))
    bench.records.write(bench.records.incarnations.put("c", refused))
    restart(bench)
    with pytest.raises(PermanentError, match=FORGOTTEN):
        switch(context, SWITCH)
    assert find(bench, "Old").void and find(bench, "Old").is_forgotten


@pytest.mark.parametrize("operation", ["catch up", "switch"])
def test_a_broker_that_has_just_been_started_is_asked_until_that_is_known(
    bench: Bench, reader: Reader, operation: str
) -> None:
    slow = SlowlyToldBroker(bench, started_s=-5)
    reader.view = slow.view  # type: ignore[method-assign]
    context = stop_both(bench, reader)
    bench.clock.ahead_s += 3
    outcome = switch(context, SWITCH) if operation == "switch" else catch_up(context, CATCH_UP)
    slow.publish()
    bench.clock.ahead_s += 1
    assert go_on(outcome) == Done()


def test_a_reader_says_again_what_it_has_taken_and_takes_nothing(bench: Bench) -> None:
    """Its broker knew of four records of six."""
    own = reader_of(bench, job("A"))
    put(bench, session(own, "A"))
    bench.run((start("A"), ()))
    take(4)
    broker("edge-a").autosave()
    take(2)
    stop = Stop("edge-a", "A", 1, start("A").engine_job_id)
    assert states(bench.run((stop, ()))) == [DONE]
    broker("edge-a").kill()
    take(3)
    bench.records.write(bench.records.incarnations.put("c", find(bench, "A").forgotten()))
    again = start("A", attempt=2)
    operation = CatchUp(again.job, 2, again.engine_job_id, own, (), False)
    assert states(bench.run((operation, ()))) == [DONE]
    assert broker("edge-a").taken[own].taken == {"sensor": {1: 6}}
    assert len(broker("edge-a").published["A-out"]) == 6
    ended = find(bench, "A")
    assert (ended.attempt, ended.ended, ended.is_forgotten) == (2, True, False)


def test_what_nobody_has_taken_of_other_links_is_not_waited_for(bench: Bench) -> None:
    """A reader that was elsewhere before hands on what it has taken there, with its holes."""
    own = reader_of(bench, job("A"))
    elsewhere = (TakenEpoch("i-Z", 1, 3, ((8, 9),)), TakenEpoch("i-Y", 1, 0, ((5, 6),)))
    put(bench, session(own, "A", skip=elsewhere))
    bench.run((start("A"), ()))
    take(4)
    bench.run((Stop("edge-a", "A", 1, start("A").engine_job_id), ()))
    bench.records.write(bench.records.incarnations.put("c", find(bench, "A").forgotten()))
    again = start("A", attempt=2)
    operation = CatchUp(again.job, 2, again.engine_job_id, own, (), False)
    assert states(bench.run((operation, ()))) == [DONE]


def take(count: int) -> None:
    World.current().feed("tcp://edge-a.test:1883", "A-in", [b"r"] * count, "sensor")
    World.current().pump()


def test_none_goes_on_by_what_is_forgotten_unless_it_has_to_do(
    bench: Bench, reader: Reader
) -> None:
    """Of two that catch up at a time, the first may have stored it just now."""
    context = stop_both(bench, reader)
    for name in ("Old", "New"):
        bench.records.write(bench.records.incarnations.put("c", find(bench, name).forgotten()))
    with pytest.raises(PermanentError, match=FORGOTTEN):
        catch_up(context, CATCH_UP)
    with pytest.raises(PermanentError, match=FORGOTTEN):
        switch(context, SWITCH)
    assert catch_up(context, replace(CATCH_UP, trusts=(OLD, NEW))) == Done()
    assert switch(context, replace(SWITCH, trusts=(OLD, NEW))) == Done()


def test_what_is_handed_over_at_a_switch_was_read_before_its_broker_was_asked_for_a_restart(
    bench: Bench, reader: Reader
) -> None:
    """It may be restarted between two looks at it."""
    context, view = stop_both(bench, reader), reader.view

    def look(site: str, client_ids: Collection[str] | None = None) -> BrokerView:
        seen = view(site, client_ids)
        restart(bench)
        return seen

    joining = HandOver("edge-a", JOB.source, "speck-i-Third-1", "Third", OLD, "Old")
    with patch.object(context.views, "_view", look), pytest.raises(PermanentError, match=FORGOTTEN):
        switch(context, replace(SWITCH, joining=(joining,)))
