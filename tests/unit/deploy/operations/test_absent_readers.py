"""Drains whose reader does not run, or cannot be asked about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.errors import PermanentError, UnreachableError
from speck.model.change import ChangeState
from speck.model.plan_outline import OperationState
from tests.service_helpers import LIMIT_S, engine
from tests.unit.deploy.bench import DONE, join, start, states
from tests.unit.deploy.operations.readers import PATIENT, SINK, Reader, ends, sent
from tests.waiting import wait_for


def test_a_drain_ends_soon_whose_reader_the_engine_does_not_know(reader: Reader) -> None:
    sent(7)
    drain = reader.drain(going_on=(SINK,))
    assert not ends(drain)
    reader.bench.clock.ahead_s += PATIENT.drain_ask_s / 2
    assert not ends(drain)
    reader.bench.clock.ahead_s += PATIENT.drain_ask_s
    with pytest.raises(PermanentError) as error:
        drain.poll()
    assert str(error.value) == (
        "cannot drain edge-a/A-in: Old is not known to edge-a any more; apply again"
    )


def test_a_drain_ends_soon_whose_reader_has_ended(reader: Reader) -> None:
    reader.bench.run((start("A"), ()))
    engine("edge-a").fail(start("A").engine_job_id, "no memory")
    sent(7)
    drain = reader.drain(going_on=(SINK,))
    assert not ends(drain)
    reader.bench.clock.ahead_s += PATIENT.drain_ask_s + 1
    with pytest.raises(
        PermanentError, match=r"^cannot drain edge-a/A-in: Old is failed; apply again$"
    ):
        drain.poll()


def test_a_drain_whose_reader_runs_goes_on(reader: Reader) -> None:
    reader.bench.run((start("A"), ()))
    sent(7)
    drain = reader.drain(going_on=(SINK,))
    for _ in range(4):
        assert not ends(drain)
        reader.bench.clock.ahead_s += PATIENT.drain_ask_s + 1
    reader.has_taken(7)
    assert ends(drain)


def test_a_drain_whose_reader_nobody_can_ask_about_waits_for_its_site(reader: Reader) -> None:
    sent(7)
    drain = reader.drain(going_on=(SINK,))
    assert not ends(drain)
    engine("edge-a").unreachable = True
    assert not ends(drain)
    reader.bench.clock.ahead_s += PATIENT.drain_ask_s + 1
    with pytest.raises(UnreachableError):
        drain.poll()


def test_a_followed_drain_whose_reader_nobody_can_stop_waits_for_its_site_at_once(
    reader: Reader,
) -> None:
    sent(7)
    drain = reader.drain(going_on=(SINK,), followed=True)
    assert not ends(drain)
    engine("edge-a").unreachable = True
    with pytest.raises(UnreachableError):
        drain.poll()


def test_a_change_is_blocked_while_nobody_can_ask_about_a_reader(reader: Reader) -> None:
    bench = reader.bench
    bench.run((start("A"), ()))
    sent(7)
    engine("edge-a").unreachable = True
    operation = reader.drain(going_on=(SINK,)).operation
    execution, thread = bench.start(
        (operation, ()), patience=replace(PATIENT, drain_ask_s=0.0, drain_idle_s=LIMIT_S)
    )
    blocked = (ChangeState.BLOCKED, [OperationState.BLOCKED])  # between two attempts it is running
    wait_for(lambda: (execution.change.state, states(execution.change)) == blocked)
    engine("edge-a").unreachable = False
    reader.has_taken(7)
    join(thread)
    assert states(execution.change) == [DONE]
