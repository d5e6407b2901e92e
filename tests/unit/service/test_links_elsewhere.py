"""Links that join jobs of several compositions: no cycles, and warnings that know the others."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from speck.errors import InvalidError
from speck.model.composition import CompositionDescription
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import DONE, LIMIT_S, composition, engine, job, job_body, reopened
from tests.waiting import wait_for

DRY = ApplyRequest(dry_run=True)


def flow(name: str, source: str, sink: str, **more: Any) -> CompositionDescription:
    """A composition `name` of one job, `<name>-job`, at edge-a."""
    body = job_body(f"{name}-job", source_topic=source, sink_topic=sink, **more)
    return composition(body, name=name)


def refusal(service: Service, description: CompositionDescription) -> list[tuple[str, str]]:
    found = []
    for request in (DRY, DONE):
        with pytest.raises(InvalidError) as refused:
            service.compositions.apply(description, request)
        found = [(problem.path, problem.message) for problem in refused.value.problems]
    return found


def test_a_cycle_through_another_composition_is_refused(service: Service) -> None:
    service.compositions.apply(flow("one", "t1", "t2"), DONE)
    service.compositions.apply(flow("two", "t2", "t3"), DONE)
    submits = engine("edge-a").count("submit")
    assert refusal(service, flow("three", "t3", "t1")) == [
        (
            "jobs[0].sink_topic",
            "closes the cycle three-job -> one-job (composition 'one') ->"
            " two-job (composition 'two') -> three-job",
        )
    ]
    assert engine("edge-a").count("submit") == submits
    assert [head.name for head in service.composition_views.all()] == ["one", "two"]


def test_a_cycle_names_no_jobs_that_the_user_does_not_see(service: Service) -> None:
    service.compositions.apply(flow("one", "t1", "t2"), DONE)
    service.compositions.apply(flow("two", "t2", "t3"), DONE)
    with pytest.raises(InvalidError) as refused:
        service.compositions.apply(
            flow("three", "t3", "t1"), ApplyRequest(dry_run=True, sees=lambda scope: scope == "two")
        )
    assert refused.value.problems[0].message == (
        "closes the cycle three-job -> a job of somebody else -> two-job (composition 'two')"
        " -> three-job"
    )


def test_a_cycle_with_a_job_posted_alone_is_refused_both_ways(service: Service) -> None:
    service.jobs.post(job("A", source_topic="t1", sink_topic="t2"), LIMIT_S)
    back = job("B", source_topic="t2", sink_topic="t1")
    with pytest.raises(InvalidError) as refused:
        service.jobs.post(back, LIMIT_S)
    (problem,) = refused.value.problems
    assert (problem.path, problem.message) == (
        "sink_topic",
        "closes the cycle B -> A (posted alone) -> B",
    )
    assert refusal(service, flow("two", "t2", "t1"))
    with pytest.raises(InvalidError):
        service.jobs.put("A", job("A", source_topic="t2", sink_topic="t2"), LIMIT_S)


def test_a_cycle_that_several_own_jobs_share_is_refused(service: Service) -> None:
    service.compositions.apply(flow("one", "t2", "t3"), DONE)
    own = composition(
        job_body("A", source_topic="t1", sink_topic="t2"),
        job_body("B", source_topic="t3", sink_topic="t1"),
        name="two",
    )
    assert refusal(service, own) == [
        ("jobs[1].sink_topic", "closes the cycle A -> one-job (composition 'one') -> B -> A")
    ]


def test_the_same_topic_at_another_site_closes_nothing(service: Service) -> None:
    service.compositions.apply(flow("one", "t1", "t2"), DONE)
    other = flow("two", "t2", "t1", source_site="edge-b", sink_site="edge-b")
    assert service.compositions.apply(other, DONE).state == "done"


def test_addresses_are_compared_normalised(service: Service) -> None:
    service.compositions.apply(flow("one", "t1", "t2"), DONE)
    by_address = job_body("B", source_topic="t2", sink_topic="t1")
    del by_address["site"]
    by_address |= {"spe_address": "HTTP://edge-b.test:8081/"}
    by_address |= dict.fromkeys(("source_broker", "sink_broker"), "tcp://EDGE-A.test")
    assert refusal(service, composition(by_address, name="two"))


def test_stopped_jobs_count(service: Service) -> None:
    service.compositions.apply(flow("one", "t1", "t2", state="stopped"), DONE)
    assert refusal(service, flow("two", "t2", "t1"))


def test_a_composition_that_is_being_removed_counts_until_it_is_gone(service: Service) -> None:
    service.compositions.apply(flow("one", "t1", "t2"), DONE)
    engine("edge-a").unreachable = True
    change = service.compositions.delete("one", 0).change
    elsewhere = {"site": "edge-b", "source_site": "edge-a", "sink_site": "edge-a"}
    back = flow("two", "t2", "t1", **elsewhere)
    assert refusal(service, back)
    engine("edge-a").unreachable = False
    wait_for(lambda: service.changes.under_way("one") is None, "the removal")
    assert service.changes.get(change).state == "done"
    assert service.compositions.apply(back, DONE).state == "done"


def test_an_update_frees_its_former_links_only_when_it_is_done(service: Service) -> None:
    service.compositions.apply(flow("one", "t1", "t2"), DONE)
    engine("edge-a").unreachable = True
    change = service.compositions.apply(flow("one", "t1", "t9"), ApplyRequest()).change
    elsewhere = {"site": "edge-b", "source_site": "edge-a", "sink_site": "edge-a"}
    back = flow("two", "t2", "t1", **elsewhere)
    assert refusal(service, back)
    engine("edge-a").unreachable = False
    wait_for(lambda: service.changes.under_way("one") is None, "the update")
    assert service.changes.get(change).state == "done"
    assert service.compositions.apply(back, DONE).state == "done"
    assert refusal(service, flow("one", "t1", "t2"))
    with pytest.raises(InvalidError):
        service.compositions.rollback("one", 1, DONE)


def test_a_job_that_is_taken_in_is_no_other(service: Service) -> None:
    service.jobs.post(job("A", source_topic="t1", sink_topic="t2"), LIMIT_S)
    own = composition(job_body("A", source_topic="t2", sink_topic="t1"), name="c")
    adopting = ApplyRequest(wait_s=LIMIT_S, adopt=True)
    assert service.compositions.apply(own, adopting).state == "done"
    assert service.compositions.apply(flow("two", "t3", "t2"), DONE).state == "done"
    assert refusal(service, flow("three", "t1", "t3"))


def test_what_is_forgotten_does_not_count(service: Service) -> None:
    service.compositions.apply(flow("one", "t1", "t2"), DONE)
    service.forgetting.composition("one", force=True)
    assert service.compositions.apply(flow("two", "t2", "t1"), DONE).state == "done"


def test_others_are_known_after_a_restart(service: Service) -> None:
    service.compositions.apply(flow("one", "t1", "t2"), DONE)
    again = reopened(service)
    try:
        assert refusal(again, flow("two", "t2", "t1"))
    finally:
        again.close()


def test_of_two_requests_at_once_one_closes_the_cycle(service: Service) -> None:
    """Both have passed the check before either is accepted."""
    both = threading.Barrier(2)
    prepare = service.compositions._deployer.prepare
    outcomes: list[str] = []

    def prepare_together(*args: Any, **options: Any) -> Any:
        prepared = prepare(*args, **options)
        both.wait(LIMIT_S)
        return prepared

    def apply(description: CompositionDescription) -> None:
        try:
            outcomes.append(service.compositions.apply(description, DONE).state)
        except InvalidError:
            outcomes.append("refused")

    service.compositions._deployer.prepare = prepare_together  # type: ignore[method-assign]
    wanted = [flow("one", "t1", "t2"), flow("two", "t2", "t1")]
    threads = [threading.Thread(target=apply, args=(each,)) for each in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["done", "refused"]


def test_warnings_know_the_readers_and_writers_of_others(service: Service) -> None:
    one, two = flow("one", "t1", "t2"), flow("two", "t2", "t3")
    assert list(service.compositions.apply(two, DRY).warnings) == [
        "no job writes topic 't2' on edge-a (read by two-job); list it under inputs if it is fed"
        " from outside",
        "no job reads topic 't3' on edge-a (written by two-job); list it under outputs if it is"
        " read from outside",
    ]
    service.compositions.apply(one, DONE)
    service.jobs.post(job("A", source_topic="t3", sink_topic="t4"), LIMIT_S)
    assert service.compositions.apply(two, DRY).warnings == ()
    declared = composition(job_body("B"), name="three", inputs=[{"site": "edge-a", "topic": "t1"}])
    warnings = service.compositions.apply(declared, DRY).warnings
    assert not [each for each in warnings if "'t1'" in each]
