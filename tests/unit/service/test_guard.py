"""What an apply is kept from: removing most by mistake, and racing another one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from speck.errors import ConflictError, StaleRevisionError
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import DONE, composition, engine
from tests.service_helpers import job_body as body
from tests.waiting import wait_for

A, B, C, D = body("A"), body("B", "cloud"), body("C"), body("D")
FORCED = ApplyRequest(wait_s=20, force=True)
AT_ONCE = 50


def test_removing_more_than_half_of_the_jobs_needs_force(service: Service) -> None:
    service.compositions.apply(composition(A, B, C), DONE)
    with pytest.raises(ConflictError) as error:
        service.compositions.apply(composition(A), DONE)
    assert str(error.value) == (
        "cannot apply composition 'c': it removes more than half of the deployed jobs (B, C);"
        " to remove them, apply with --force (?force=true)"
    )
    assert service.composition_views.revision("c") == 1
    preview = service.compositions.apply(composition(A), ApplyRequest(dry_run=True))
    assert preview.warnings[-1] == (
        "it removes more than half of the deployed jobs (B, C): this needs --force (?force=true)"
    )
    assert service.compositions.apply(composition(A), FORCED).state == "done"


def test_removing_half_of_the_jobs_or_a_single_one_needs_none(service: Service) -> None:
    service.compositions.apply(composition(A, B, C, D), DONE)
    assert service.compositions.apply(composition(A, B), DONE).state == "done"
    assert service.compositions.apply(composition(A), DONE).state == "done"
    assert service.compositions.apply(composition(D), DONE).state == "done"


def test_a_rollback_is_guarded_too_and_a_removal_is_explicit(service: Service) -> None:
    service.compositions.apply(composition(A), DONE)
    service.compositions.apply(composition(A, B, C), DONE)
    with pytest.raises(ConflictError, match="B, C"):
        service.compositions.rollback("c", 1, DONE)
    assert service.compositions.rollback("c", 1, FORCED).state == "done"
    change = service.changes.all()[0]
    assert (change.cause, change.revision) == ("rollback", 3)
    assert service.compositions.delete("c", 20).done


def test_an_apply_need_not_drain(service: Service) -> None:
    chain = [body("P", sink_topic="x"), body("Q", source_topic="x")]
    service.compositions.apply(composition(*chain), DONE)
    moved = [body("P", sink_topic="z"), body("Q", source_topic="z")]
    kinds = {}
    for drop_queues in (True, False):
        request = ApplyRequest(dry_run=True, drop_queues=drop_queues, drain_limit_s=0)
        plan = service.compositions.apply(composition(*moved), request).plan
        kinds[drop_queues] = {operation.kind for operation in plan.operations}
    assert "drain" in kinds[False] - kinds[True]


def test_of_many_applies_at_once_exactly_one_wins(service: Service) -> None:
    service.compositions.apply(composition(A), DONE)
    start = threading.Barrier(AT_ONCE)

    def apply(number: int) -> str:
        desired = composition({**A, "args": [f"--{number}"]})
        start.wait()
        try:
            answer = service.compositions.apply(desired, ApplyRequest(if_match=1))
        except (ConflictError, StaleRevisionError) as error:
            return type(error).__name__
        return f"accepted {number} as {answer.revision}"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(apply, range(AT_ONCE)))
    won = [answer for answer in answers if answer.startswith("accepted")]
    assert len(won) == 1, answers
    wait_for(lambda: not service.changes.all_under_way())
    (running,) = engine("edge-a").running()
    assert f"--{won[0].split()[1]}" in running.submission.args
    assert [r.revision for r in service.composition_views.revisions("c")] == [1, 2]
    assert service.composition_views.plan("c").operations == ()


def test_different_compositions_go_on_at_the_same_time(service: Service) -> None:
    engine("edge-a").hold_starts = True
    names = [f"c{number}" for number in range(8)]
    for name in names:
        service.compositions.apply(composition(body(f"J-{name}"), name=name), ApplyRequest())
    wait_for(lambda: engine("edge-a").count("submit") == len(names))
    assert len(service.changes.all_under_way()) == len(names)
    engine("edge-a").let_go()
    wait_for(lambda: not service.changes.all_under_way())
    assert {head.state for head in service.changes.all()} == {"done"}


def test_rollback_over_a_half_done_rewiring(service: Service) -> None:
    chain = [body("P", sink_topic="x"), body("Q", source_topic="x")]
    service.compositions.apply(composition(*chain), DONE)
    before = len(engine("edge-a").jobs)
    engine("edge-a").hold_starts = True
    rewired = [body("P", sink_topic="z"), body("Q", source_topic="z")]
    change = service.compositions.apply(composition(*rewired), ApplyRequest()).change
    wait_for(lambda: len(engine("edge-a").jobs) > before)
    engine("edge-a").unreachable = True
    wait_for(lambda: service.changes.get(change).state == "blocked")
    engine("edge-a").unreachable = False
    engine("edge-a").let_go()
    wait_for(lambda: not service.changes.all_under_way())
    assert service.compositions.rollback("c", 1, DONE).state == "done"
    topics = {
        i.submission.job_name: i.wiring.source_topic
        for i in engine("edge-a").running()
        if i.wiring is not None
    }
    assert topics == {"P": "P-in", "Q": "x"}


def test_rollback_over_a_blocked_change(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    engine("edge-a").unreachable = True
    desired = composition({**A, "args": ["--2"]}, B)
    change = service.compositions.apply(desired, ApplyRequest()).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    back = service.compositions.rollback("c", 1, ApplyRequest()).change
    superseded = service.changes.get(change)
    assert (superseded.state, superseded.superseded_by) == ("cancelled", back)
    engine("edge-a").unreachable = False
    wait_for(lambda: not service.changes.all_under_way())
    assert service.changes.get(back).state == "done"
    assert service.composition_views.plan("c").operations == ()
