"""Whether a broker has been restarted since a reader was asked to stop, or it is not known yet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from speck.deploy.operations.context import Context
from speck.deploy.operations.links import hand_over
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.deploy.operations.starting import start
from speck.errors import PermanentError
from speck.model.ids import source_client_id
from speck.model.incarnation import EndState, Incarnation, StartState
from speck.model.job_operations import Start
from speck.model.observation import BrokerView, Taken, TakenEpoch
from tests.service_helpers import broker
from tests.unit.deploy.bench import Bench, job
from tests.unit.deploy.operations.readers import (
    EPOCH,
    HAND_OVER,
    NEW,
    OLD,
    Reader,
    put,
    session,
    stored,
)

STOPPED = "1" * 32
HOUR_S = 3600.0


def stop(bench: Bench, *, clock_set_by_s: float = 0.0) -> None:
    """Let the reader be stopped now, and the wall clock be set later."""
    put(bench, session(OLD, "Old"), session(NEW, "New", follows=OLD))
    asked_ms = int((bench.clock.now().timestamp() - clock_set_by_s) * 1000)
    old = replace(job("A"), job_name="Old")
    stopped = Incarnation(old, 1, STOPPED, end=EndState.ENDED, asked_ms=asked_ms)
    bench.records.write(bench.records.incarnations.put("c", stopped))


@pytest.mark.parametrize("clock_set_by_s", [-HOUR_S, HOUR_S])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_wall_clock_that_is_set_changes_nothing(
    bench: Bench, reader: Reader, clock_set_by_s: float, is_restarted: bool
) -> None:
    context = reader.context()
    broker("edge-a").up_since = bench.clock.monotonic()
    context.resends.ask(STOPPED)
    stop(bench, clock_set_by_s=clock_set_by_s)
    assert isinstance(context.resends.put_ended("c", stopped_of(bench)), dict)  # it has ended
    if not is_restarted:
        assert hand_over(context, HAND_OVER) == Done()
        return
    broker("edge-a").up_since = bench.clock.monotonic()
    with pytest.raises(PermanentError, match="may have forgotten what it had taken"):
        hand_over(context, HAND_OVER)


def stopped_of(bench: Bench) -> Incarnation:
    incarnation = bench.records.incarnations.get("c", "Old")
    assert incarnation is not None
    return incarnation


def test_a_stop_in_the_future_of_a_clock_that_was_set_back_proves_nothing(
    bench: Bench, reader: Reader
) -> None:
    """It was asked for by an earlier life of the service."""
    stop(bench, clock_set_by_s=-HOUR_S)
    broker("edge-a").up_since = bench.clock.monotonic() - 5
    with pytest.raises(PermanentError, match="may have forgotten what it had taken"):
        hand_over(reader.context(), HAND_OVER)


class SlowlyToldBroker:
    """How long it has run it publishes every ten seconds: since then it may have run for longer."""

    def __init__(self, bench: Bench, started_s: float) -> None:
        """It was started so many seconds after the reader was asked to stop."""
        self._clock = bench.clock
        self._asked = self._clock.monotonic()
        self._started = self._asked + started_s
        self.published_s = 0
        """How long it had run then."""

    def view(self, site: str, client_ids: Collection[str] | None = None) -> BrokerView:
        up_since = self._clock.monotonic() - self.published_s
        return BrokerView(
            {}, {}, self.published_s, up_since=up_since, started_after=up_since - 11.0
        )

    def publish(self) -> None:
        self.published_s = int(self._clock.monotonic() - self._started)


def go_on(outcome: Outcome) -> Outcome:
    """Poll until the broker is asked again."""
    assert isinstance(outcome, Waiting)
    assert outcome.may_be_left and outcome.ready({})
    return outcome.finish()


def begin(bench: Bench, reader: Reader, slow: SlowlyToldBroker) -> Context:
    reader.view = slow.view  # type: ignore[method-assign]
    context = reader.context()
    context.resends.ask(STOPPED)
    stop(bench)
    return context


def test_a_broker_that_had_just_been_started_is_not_taken_for_one_that_was_restarted(
    bench: Bench, reader: Reader
) -> None:
    slow = SlowlyToldBroker(bench, started_s=-5)
    context = begin(bench, reader, slow)
    bench.clock.ahead_s += 3
    waiting = hand_over(context, HAND_OVER)
    assert isinstance(waiting, Waiting)
    assert not waiting.ready({}), "it is asked once in a while"
    bench.clock.ahead_s += 2
    waiting = go_on(waiting)
    slow.publish()
    bench.clock.ahead_s += 1
    assert go_on(waiting) == Done()
    assert stored(bench)[NEW].former == OLD


def test_a_broker_that_was_restarted_is_known_once_it_tells_how_long_it_has_run(
    bench: Bench, reader: Reader
) -> None:
    slow = SlowlyToldBroker(bench, started_s=1)
    context = begin(bench, reader, slow)
    bench.clock.ahead_s += 4
    waiting = hand_over(context, HAND_OVER)
    slow.publish()
    bench.clock.ahead_s += 1
    with pytest.raises(PermanentError, match="may have forgotten what it had taken"):
        go_on(waiting)
    assert stopped_of(bench).is_forgotten


def test_a_broker_that_tells_nothing_more_is_waited_for_no_longer_than_that_may_take(
    bench: Bench, reader: Reader
) -> None:
    context = begin(bench, reader, SlowlyToldBroker(bench, started_s=1))
    bench.clock.ahead_s += 4
    waiting = hand_over(context, HAND_OVER)
    bench.clock.ahead_s += 11
    with pytest.raises(PermanentError, match="may have forgotten what it had taken"):
        go_on(waiting)


def test_a_broker_that_was_certainly_restarted_is_not_waited_for(
    bench: Bench, reader: Reader
) -> None:
    context = begin(bench, reader, SlowlyToldBroker(bench, started_s=20))
    bench.clock.ahead_s += 20
    with pytest.raises(PermanentError, match="may have forgotten what it had taken"):
        hand_over(context, HAND_OVER)


# -- the start of a reader at another link -----------------------------------------------

ELSEWHERE = Start(replace(job("B"), job_name="Old"), 2, "2" * 32, False)
"""Of the reader that has stopped, while another one waits to follow it."""


def begin_elsewhere(bench: Bench, reader: Reader) -> Context:
    context = reader.context()
    broker("edge-a").up_since = bench.clock.monotonic()
    context.resends.ask(STOPPED)
    of = replace(job("A"), job_name="Old")
    own = source_client_id(bench.records.installation, of.job_name, of.source)
    put(bench, session(own, "Old"), session(NEW, "New", follows=own))
    stopped = Incarnation(of, 1, STOPPED, end=EndState.ENDED, asked_ms=1)
    bench.records.write(bench.records.incarnations.put("c", stopped))
    broker("edge-a").taken[own] = Taken(3, {"i-P": {EPOCH: 6}})
    return context


def find_skip(bench: Bench) -> set[TakenEpoch]:
    return {taken for each in stored(bench).values() for taken in each.skip}


def test_what_a_reader_had_taken_is_kept_before_it_starts_at_another_link(
    bench: Bench, reader: Reader
) -> None:
    """Once it runs there, nobody can say it again."""
    context = begin_elsewhere(bench, reader)
    start(context, ELSEWHERE)
    assert find_skip(bench) == {TakenEpoch("i-P", EPOCH, 6)}


def test_it_does_not_start_there_if_its_broker_may_have_forgotten_that(
    bench: Bench, reader: Reader
) -> None:
    context = begin_elsewhere(bench, reader)
    bench.clock.ahead_s += 1
    broker("edge-a").up_since = bench.clock.monotonic()
    with pytest.raises(
        PermanentError, match="cannot start Old: the broker of edge-a was restarted"
    ):
        start(context, ELSEWHERE)
    assert stopped_of(bench).is_forgotten
    assert find_skip(bench) == set()
    with pytest.raises(PermanentError):  # nor when that is stored
        start(context, ELSEWHERE)
    start(context, replace(ELSEWHERE, trusts=True))
    assert find_skip(bench) == {TakenEpoch("i-P", EPOCH, 6)}


@pytest.mark.parametrize("how", ["nobody follows it", "its link was handed over"])
def test_it_starts_there_if_nobody_waits_for_that(bench: Bench, reader: Reader, how: str) -> None:
    context = begin_elsewhere(bench, reader)
    (own,) = (each for each in stored(bench).values() if each.client_id not in (OLD, NEW))
    if how == "nobody follows it":
        put(bench, session(NEW, "New"))
    else:
        put(bench, replace(own, followed_by=NEW))
    bench.clock.ahead_s += 1
    broker("edge-a").up_since = bench.clock.monotonic()
    assert isinstance(start(context, ELSEWHERE), Waiting)
    assert not stopped_of(bench).is_forgotten


def test_where_a_start_was_refused_the_reader_before_it_counts(
    bench: Bench, reader: Reader
) -> None:
    context = reader.context()
    context.resends.ask(STOPPED)
    stop(bench)
    refused = Incarnation(ELSEWHERE.job, 2, "2" * 32, StartState.VOID, base=stopped_of(bench))
    bench.records.write(bench.records.incarnations.put("c", refused))
    bench.clock.ahead_s += 1
    broker("edge-a").up_since = bench.clock.monotonic()
    with pytest.raises(PermanentError, match="may have forgotten what it had taken"):
        hand_over(context, HAND_OVER)
    assert stopped_of(bench).void and stopped_of(bench).is_forgotten
    assert hand_over(context, replace(HAND_OVER, trusts=True)) == Done()
