"""The queues that a plan drops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.deploy.planner.queues import keep_queues
from speck.model.composition import Composition, Reader
from speck.model.ids import sink_client_id, source_client_id
from speck.model.incarnation import EndState, Inventory, Session, StartState
from speck.model.job import DesiredState, Job, Upgrade
from speck.model.job_operations import Forget
from speck.model.link import Link
from speck.model.link_operations import Release
from speck.model.observation import BrokerView, Observation, RunState, Sent, Taken
from speck.model.plan import Plan
from tests.unit.deploy.planner.plans import (
    INSTALLATION,
    A,
    B,
    deployed,
    job,
    plan_composition,
    plan_jobs,
    running,
)

SINK_OF_A = sink_client_id(INSTALLATION, "A", A.source, A.sink)
READER_B = source_client_id(INSTALLATION, "B", B.source)
DB = Session("q-db", A.sink, "cloud", None)
TO_DB = Reader("q-db", A.sink, "cloud")


def with_db(*jobs: Job, **session: object) -> Inventory:
    inventory = deployed(*jobs)
    db = replace(DB, **session)  # type: ignore[arg-type]
    return replace(inventory, sessions=(*inventory.sessions, db))


def sent(inventory: Inventory, number: int, taken: dict[str, Taken] | None = None) -> Observation:
    """What A has sent to cloud/T-2; all jobs run."""
    numbers = {SINK_OF_A: Sent("p", 1, number, topic="T-2")} if number else {}
    return replace(running(inventory), brokers={"cloud": BrokerView(taken or {}, numbers)})


def desire(
    inventory: Inventory, observed: Observation, *jobs: Job, readers: tuple[Reader, ...] = ()
) -> Plan:
    return plan_composition(Composition("c", jobs, readers), inventory, observed)


def list_queues(plan: Plan) -> list[str]:
    return list(map(str, plan.queues))


def list_guarded(plan: Plan) -> list[str]:
    operations = (step.operation for step in plan.steps)
    return [o.client_id for o in operations if isinstance(o, Release) and o.guarded]


# -- readers outside speck ----------------------------------------------------------------


def test_the_queue_of_a_removed_outside_reader_is_named_first() -> None:
    inventory = with_db(A)
    plan = desire(inventory, sent(inventory, 650), A)
    assert (
        str(plan)
        == """\
drops the queue of q-db at cloud/T-2 (at most 650 messages, sent since the session was made):\
 its reader is outside speck
[] -> #1 release cloud/T-2 of q-db: left; drops its queue"""
    )
    assert plan.summary()["unchanged"] == 1


def test_only_what_was_sent_since_the_session_was_made_is_counted() -> None:
    inventory = with_db(A, since=(("p", 1, 600),))
    assert desire(inventory, sent(inventory, 650), A).queues[0].messages == 50
    assert desire(inventory, sent(inventory, 600), A).queues == ()


def test_numbers_of_sinks_that_have_left_are_counted_too() -> None:
    inventory = with_db(A, owed=(("former", 3, 7),))
    assert desire(inventory, sent(inventory, 5), A).queues[0].messages == 12


def test_an_outside_reader_to_which_nothing_was_sent_has_no_queue() -> None:
    inventory = with_db(A)
    plan = desire(inventory, sent(inventory, 0), A)
    assert plan.queues == ()
    assert list_guarded(plan) == ["q-db"], "something may come until it is released"


@pytest.mark.parametrize(
    "reader",
    [
        Reader("q-db", Link("cloud", "T-9"), "cloud"),
        Reader("q-db", Link("edge-b", "T-2"), "edge-b"),
        Reader("other", A.sink, "cloud"),
    ],
    ids=["topic", "site", "client id"],
)
def test_an_outside_reader_that_changes_leaves_a_queue(reader: Reader) -> None:
    inventory = with_db(A)
    plan = desire(inventory, sent(inventory, 650), A, readers=(reader,))
    assert [queue.messages for queue in plan.queues] == [650]


def test_an_outside_reader_that_stays_is_not_asked_about() -> None:
    inventory = with_db(A)
    assert desire(inventory, sent(inventory, 650), A, readers=(TO_DB,)).empty


def test_where_outsiders_publish_too_no_number_is_known() -> None:
    inventory = with_db(A, fed_outside=True)
    assert list_queues(desire(inventory, sent(inventory, 650), A)) == [
        "drops the queue of q-db at cloud/T-2 (number not known): its reader is outside speck"
    ]


def test_a_broker_that_does_not_answer_makes_no_queue_vanish() -> None:
    inventory = with_db(A)
    assert desire(inventory, running(inventory), A).queues[0].messages is None


# -- jobs that do not run -----------------------------------------------------------------


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.FINISHED, RunState.CANCELED])
def test_the_queue_of_a_job_that_has_ended_is_what_it_has_not_taken(state: RunState) -> None:
    inventory = deployed(A, B)
    taken = {READER_B: Taken(1, {"p": {1: 50}})}
    observed = replace(running(inventory, B=state), brokers=sent(inventory, 700, taken).brokers)
    assert list_queues(desire(inventory, observed, A)) == [
        "drops the queue of B at cloud/T-2 (about 650 messages): the job does not run"
    ]


def test_a_reader_that_has_taken_all_has_no_queue() -> None:
    inventory = deployed(A, B)
    taken = {READER_B: Taken(1, {"p": {1: 700}})}
    observed = replace(
        running(inventory, B=RunState.FAILED), brokers=sent(inventory, 700, taken).brokers
    )
    plan = desire(inventory, observed, A)
    assert plan.queues == ()
    assert list_guarded(plan) == [READER_B]


def test_a_job_that_never_started_and_one_that_is_stopped_have_queues() -> None:
    inventory = deployed(A, B)
    stopped = replace(inventory.jobs["B"], end=EndState.ENDED)
    only_a = {"A": inventory.jobs["A"]}
    for jobs in ({**only_a, "B": stopped}, only_a):
        there = replace(inventory, jobs=jobs)
        (queue,) = desire(there, sent(there, 3), A).queues
        assert (queue.reader, queue.messages, queue.why) == ("B", 3, "the job does not run")


def test_a_job_that_is_rewired_while_it_is_kept_stopped_leaves_its_queue() -> None:
    inventory = deployed(A, B)
    stopped = replace(inventory.jobs["B"], end=EndState.ENDED)
    inventory = replace(inventory, jobs={**inventory.jobs, "B": stopped})
    elsewhere = replace(job("B", "cloud/T-8", "cloud/T-3", "cloud"), state=DesiredState.STOPPED)
    assert [q.reader for q in desire(inventory, sent(inventory, 3), A, elsewhere).queues] == ["B"]


def test_a_job_in_a_crash_loop_or_stalled_takes_nothing() -> None:
    inventory = deployed(B)
    restarting = running(inventory, B=RunState.RESTARTING)
    (queue,) = plan_jobs(inventory, observed=restarting).queues
    assert queue.why == "the job takes nothing: it keeps failing or is stalled"
    assert [q.reader for q in plan_jobs(inventory, stuck_jobs=frozenset({"B"})).queues] == ["B"]


def test_a_running_job_is_drained_and_drops_no_queue() -> None:
    inventory = deployed(A, B)
    for desired in ((), (A,), (A, job("B", "cloud/T-8", "cloud/T-3", "cloud"))):
        plan = desire(inventory, sent(inventory, 650), *desired)
        assert plan.queues == ()
        assert list_guarded(plan) == []


def test_with_consent_running_jobs_are_drained_all_the_same() -> None:
    inventory = with_db(A, B)
    plan = plan_jobs(inventory, observed=sent(inventory, 650), drop_queues=True)
    assert (
        str(plan)
        == """\
drops the queue of q-db at cloud/T-2 (at most 650 messages, sent since the session was made):\
 its reader is outside speck
[] -> #1 stop A on edge-a: no longer wanted
[1] -> #2 drain cloud/T-2 for B: A left it; what it has not taken in 300 s is dropped
[2] -> #3 cancel B on cloud: no longer wanted
[1] -> #4 release edge-a/T-1 of A: left; abandons what is queued (number not known)
[3] -> #5 release cloud/T-2 of B: left
[1] -> #6 release cloud/T-2 of q-db: left; drops its queue
[1,2,4,5,6] -> #7 forget A: removed
[3,5] -> #8 forget B: removed"""
    )
    assert list_guarded(plan) == []
    plain = plan_jobs(inventory, observed=sent(inventory, 650))
    assert plain.queues == plan.queues
    assert str(plan).replace("; what it has not taken in 300 s is dropped", "") == str(plain)


def test_with_consent_what_does_not_answer_is_not_waited_for() -> None:
    """B, whose engine does not answer, is not drained; C does not wait for the stop of B."""
    inventory = deployed(A, replace(B, site="edge-b"), job("C", "cloud/T-3", "cloud/T-4", "cloud"))
    observed = sent(inventory, 650, {READER_B: Taken(1, {"p": {1: 50}})})
    engines = {site: view for site, view in observed.engines.items() if site != "edge-b"}
    observed = replace(observed, engines=engines, unreachable={"edge-b": "no answer"})
    plan = plan_jobs(inventory, observed=observed, drop_queues=True)
    assert (
        str(plan)
        == """\
drops the queue of B at cloud/T-2 (about 600 messages): the engine of edge-b does not answer
[] -> #1 cancel A on edge-a: no longer wanted
[] -> #2 stop B on edge-b: no longer wanted
[] -> #3 drain cloud/T-3 for C: B left it; what it has not taken in 300 s is dropped
[3] -> #4 cancel C on cloud: no longer wanted
[1] -> #5 release edge-a/T-1 of A: left; abandons what is queued (number not known)
[2] -> #6 release cloud/T-2 of B: left; drops its queue
[4] -> #7 release cloud/T-3 of C: left
[1,5,6] -> #8 forget A: removed
[2,3,6,7] -> #9 forget B: removed
[4,7] -> #10 forget C: removed"""
    )
    waiting = plan_jobs(inventory, observed=observed)
    assert waiting.queues == ()
    assert "drain cloud/T-2 for B: A left it" in str(waiting), "without consent it is waited for"


def test_with_consent_a_broker_that_does_not_answer_is_not_waited_for() -> None:
    inventory = deployed(A, B)
    observed = replace(running(inventory), unreachable={"cloud": "no answer"})
    plan = plan_jobs(inventory, observed=observed, drop_queues=True)
    assert list_queues(plan) == [
        "drops the queue of B at cloud/T-2 (number not known): the broker of cloud does not answer"
    ]
    assert "drain" not in str(plan)
    limits = {
        step.operation.limit_s
        for step in plan.steps
        if isinstance(step.operation, Release | Forget) and step.operation.site == "cloud"
    }
    assert 0 in limits


def test_a_job_that_takes_nothing_is_not_drained_and_needs_consent() -> None:
    inventory = deployed(A, B)
    restarting = replace(
        running(inventory, B=RunState.RESTARTING), brokers=sent(inventory, 650).brokers
    )
    for options in ({"observed": restarting}, {"stuck_jobs": frozenset({"B"})}):
        options = {"observed": sent(inventory, 650), **options}
        for drops in (False, True):
            plan = plan_jobs(inventory, drop_queues=drops, **options)
            assert [(q.reader, q.messages) for q in plan.queues] == [("B", 650)]
            assert "drain" not in str(plan)


def test_with_consent_and_no_time_to_drain_running_jobs_leave_their_queues() -> None:
    inventory = deployed(A, B)
    taken = {READER_B: Taken(1, {"p": {1: 50}})}
    observed = sent(inventory, 700, taken)
    plan = plan_jobs(inventory, A, observed=observed, drop_queues=True, drain_limit_s=0)
    assert list_queues(plan) == [
        "drops the queue of B at cloud/T-2 (about 650 messages): the job leaves it undrained"
    ]
    assert list_guarded(plan) == []


def test_what_a_change_has_stopped_itself_is_not_asked_about_again() -> None:
    """The service was killed after the stop: the change is planned again."""
    inventory = deployed(A, B)
    stopped = replace(inventory.jobs["B"], end=EndState.ENDED)
    inventory = replace(inventory, jobs={**inventory.jobs, "B": stopped})
    observed = sent(inventory, 650)
    plan = plan_jobs(inventory, A, observed=observed, readers_stopped=frozenset({"B"}))
    assert plan.queues == ()


def test_a_change_that_begins_with_reading_a_backlog_names_what_it_drops_later() -> None:
    """B, which was lost, reads first what waits for it; q-db is dropped in the second part."""
    inventory = with_db(A, B)
    lost = {**running(inventory).engines["cloud"].jobs}
    del lost[inventory.jobs["B"].engine_job_id]
    observed = sent(inventory, 650)
    cloud = replace(observed.engines["cloud"], jobs=lost)
    observed = replace(observed, engines={**observed.engines, "cloud": cloud})
    plan = desire(inventory, observed, A)
    assert plan.gate
    assert [queue.reader for queue in plan.queues] == ["q-db"]


# -- plans that may not drop anything -----------------------------------------------------


def test_a_repair_keeps_the_session_and_does_the_rest() -> None:
    inventory = with_db(A)
    observed = replace(running(inventory, A=RunState.FAILED), brokers=sent(inventory, 5).brokers)
    plan = desire(inventory, observed, A)
    assert "release cloud/T-2 of q-db" in str(plan)
    kept = keep_queues(plan)
    assert kept is not None
    assert "q-db" not in str(kept)
    assert "start A on edge-a" in str(kept)


def test_a_repair_that_needs_the_client_id_elsewhere_is_impossible() -> None:
    inventory = with_db(A)
    there = Reader("q-db", Link("cloud", "T-9"), "cloud")
    assert keep_queues(desire(inventory, sent(inventory, 5), A, readers=(there,))) is None


# -- state --------------------------------------------------------------------------------


def test_a_plan_says_that_a_job_starts_without_its_state() -> None:
    new = replace(A, args=("--x",), upgrade=Upgrade.STATELESS)
    (change,) = plan_jobs(deployed(A), new).jobs
    assert change.reason.endswith("; starts WITHOUT its state (upgrade: stateless)")
    moved = replace(new, site="edge-b")
    assert "WITHOUT its state" in plan_jobs(deployed(A), moved).jobs[0].reason
    kept = replace(A, args=("--x",))
    assert "WITHOUT" not in str(plan_jobs(deployed(A), kept))
    never_ran = deployed(A)
    void = replace(never_ran.jobs["A"], start=StartState.VOID)
    assert "WITHOUT" not in str(plan_jobs(replace(never_ran, jobs={"A": void}), new))


def test_a_plan_says_that_a_renamed_job_starts_without_its_state() -> None:
    plan = plan_jobs(deployed(A, B), replace(A, job_name="A2"), B)
    reasons = {change.job_name: change.reason for change in plan.jobs}
    assert reasons["A2"] == (
        "new job; starts WITHOUT the state of A: a job that is renamed is a new job"
    )
    other = replace(A, job_name="A2", entry_class="package.Other")
    assert "WITHOUT" not in str(plan_jobs(deployed(A, B), other, B))
