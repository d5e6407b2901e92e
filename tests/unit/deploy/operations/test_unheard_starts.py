"""What is stored of a start whose answer was lost, once it is known what became of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binders.memory import World
from speck.model.ids import source_client_id
from speck.model.incarnation import EndState, Incarnation, Session, StartState
from speck.model.job_operations import Fence, Start
from speck.model.observation import RunState
from tests.service_helpers import engine
from tests.unit.deploy.bench import Bench, job, start, states, upload

A = job("A")
OTHER = Session("other", A.source, A.source_site, "B", begun=True)
COMMITS = (("other", job("B"), False),)


def put(bench: Bench) -> Incarnation:
    """A's start, with a cut behind which it begins, is stored and not heard of."""
    records = bench.records
    own = source_client_id(records.installation, "A", A.source)
    other = replace(OTHER, link=job("B").source)
    unheard = Incarnation(A, 1, start("A").engine_job_id, commits=COMMITS)
    records.write(
        records.incarnations.put("c", unheard),
        records.sessions.put("c", Session(own, A.source, A.source_site, "A")),
        records.sessions.put("c", other),
    )
    return unheard


def fence(of: Incarnation) -> Fence:
    return Fence("edge-a", "A", of.attempt, of.engine_job_id)


def find_begun(bench: Bench) -> dict[str, bool]:
    """Whether the sessions are begun, or committed to, by reader."""
    return {s.reader: s.begun or s.committed for s in bench.records.inventory("c").sessions}


def find_stored(bench: Bench) -> Incarnation:
    stored = bench.records.incarnations.get("c", "A")
    assert stored is not None
    return stored


def test_a_fence_that_is_carried_out_twice_lets_nothing_begin(bench: Bench) -> None:
    """The service died before the outcome was stored: the engine lists a fenced id as over."""
    unheard = put(bench)
    bench.connections.engine_of(A.engine).fence(unheard.engine_job_id, A.artifact_kind)
    change = bench.run((fence(unheard), ()))
    assert [str(state) for state in states(change)] == ["done"]
    stored = find_stored(bench)
    assert stored.void and stored.ended and stored.commits == ()
    assert not bench.records.sessions.get("c", "other", "edge-a").committed  # type: ignore[union-attr]
    assert find_begun(bench)["A"] is False


def test_one_that_has_arrived_has_begun_before_it_is_ended(bench: Bench) -> None:
    unheard = put(bench)
    bench.run((upload("edge-a"), ()), (replace(start("A"), commits=()), (1,)))
    bench.records.write(bench.records.incarnations.put("c", unheard))
    World.current().pump()
    bench.run((fence(unheard), ()))
    stored = find_stored(bench)
    assert stored.end is EndState.ENDED and stored.savepoint is not None and not stored.commits
    assert find_begun(bench)["A"] is True


@pytest.mark.parametrize("has_state", [True, False])
def test_one_that_has_failed_had_begun_if_it_left_state(bench: Bench, has_state: bool) -> None:
    unheard = put(bench)
    bench.run((upload("edge-a"), ()), (start("A"), (1,)))
    if has_state:
        World.current().pump()
    engine("edge-a").jobs[unheard.engine_job_id].state = RunState.FAILED
    bench.records.write(bench.records.incarnations.put("c", unheard))
    own = source_client_id(bench.records.installation, "A", A.source)
    session = bench.records.sessions.get("c", own, "edge-a")
    assert session is not None
    bench.records.write(bench.records.sessions.put("c", replace(session, begun=False)))
    change = bench.run((Start(A, 1, unheard.engine_job_id, False), ()))
    assert [str(state) for state in states(change)] == ["failed"]
    assert find_begun(bench)["A"] is has_state
    assert find_stored(bench).start is (StartState.ACCEPTED if has_state else StartState.VOID)
