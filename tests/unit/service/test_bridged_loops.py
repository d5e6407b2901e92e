"""Compositions that would send messages round over bridges."""

from __future__ import annotations

import threading

import pytest

from binders.memory import World
from speck.deploy.deployer import Deployer, PreparedPlan
from speck.errors import InvalidError
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import DONE, LIMIT_S, composition, job_body


def test_a_loop_over_a_bridge_is_refused_and_what_may_come_twice_is_a_warning(
    service: Service,
) -> None:
    for site in ("edge-a", "cloud"):
        World.current().broker(f"tcp://{site}.test:1883").bridges.add("edge-a.to-cloud")
    loop = job_body("A", source_topic="T", sink_topic="T", sink_site="cloud")
    with pytest.raises(InvalidError) as error:
        service.compositions.apply(composition(loop), ApplyRequest(dry_run=True))
    (problem,) = error.value.problems
    assert problem.path == "jobs[0].sink_topic"
    assert "the brokers of cloud, edge-a are bridged (edge-a.to-cloud)" in problem.message

    both = (
        job_body("A", source_topic="T", sink_topic="U", sink_site="edge-b"),
        job_body("B", "cloud", source_topic="T", sink_topic="U", sink_site="edge-b"),
    )
    body = service.compositions.apply(composition(*both), DONE)
    assert any("if a bridge carries T" in warning for warning in body.warnings)

    # what another composition does with it counts, too
    closing = job_body("C", "edge-b", source_topic="U", sink_topic="T", sink_site="cloud")
    with pytest.raises(InvalidError, match="closes the cycle"):
        service.compositions.apply(composition(closing, name="d"), DONE)


def test_a_loop_over_two_bridges_through_other_compositions_is_refused(service: Service) -> None:
    for number, pair in enumerate((("edge-a", "cloud"), ("edge-b", "edge-c"))):
        for site in pair:
            World.current().broker(f"tcp://{site}.test:1883").bridges.add(f"bridge-{number}")
    service.polls.broker_numbers.poll(service.records.sites.all())  # as the watch does
    one = job_body("A", source_topic="T", sink_topic="U", sink_site="edge-b")
    two = job_body("B", "edge-c", source_topic="U", sink_topic="V", sink_site="edge-a")
    service.compositions.apply(composition(one, name="one"), DONE)
    service.compositions.apply(composition(two, name="two"), DONE)
    closing = job_body("C", source_topic="V", sink_topic="T", sink_site="cloud")
    with pytest.raises(InvalidError, match="closes the cycle"):
        service.compositions.apply(composition(closing), DONE)


def test_of_two_applies_that_close_a_loop_over_a_bridge_together_only_one_is_accepted(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for site in ("edge-a", "cloud"):
        World.current().broker(f"tcp://{site}.test:1883").bridges.add("edge-a.to-cloud")
    service.polls.broker_numbers.poll(service.records.sites.all())  # as the watch does
    there = job_body("A", source_topic="T", sink_topic="U", sink_site="edge-b")
    back = job_body("C", "edge-b", source_topic="U", sink_topic="T", sink_site="cloud")
    is_planned, errors = threading.Event(), []
    accept = Deployer.accept

    def note(deployer: Deployer, prepared: PreparedPlan) -> None:
        accept(deployer, prepared)
        is_planned.set()

    def apply_back() -> None:
        try:
            service.compositions.apply(composition(back, name="d"), DONE)
        except InvalidError as error:
            errors.append(error)

    monkeypatch.setattr(Deployer, "accept", note)
    with service.compositions._locks.all_of([]):
        second = threading.Thread(target=apply_back)
        second.start()
        assert is_planned.wait(LIMIT_S)
        service.compositions.apply(composition(there), DONE)
    second.join(LIMIT_S)
    (error,) = errors
    assert "closes the cycle" in str(error.problems[0])
