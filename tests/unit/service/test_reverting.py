"""Where a change ended early and the next one wants a third wiring, the deployed one comes back
first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binders.memory import World
from speck.errors import ConflictError, EngineRefusedError
from speck.model.change import ChangeReport
from speck.model.composition import CompositionDescription
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import DONE, LIMIT_S, broker, composition, engine, reopened
from tests.service_helpers import job_body as body
from tests.waiting import wait_for

CONSENT = ApplyRequest(wait_s=LIMIT_S, drop_queues=True)
FORCED = ApplyRequest(wait_s=LIMIT_S, force=True)


def chain(*names: str, site: str = "edge-a", **more: JsonObject) -> CompositionDescription:
    """Jobs in line, from `in` to `out`, over links that have the names of their readers."""
    topics = ["in", *names[1:], "out"]
    jobs = [
        body(
            name, **{"site": site, "source_topic": source, "sink_topic": sink, **more.get(name, {})}
        )
        for name, source, sink in zip(names, topics[:-1], topics[1:], strict=True)
    ]
    return composition(*jobs, inputs=[{"site": "edge-a", "topic": "in"}])


HERE = {"source_site": "edge-a", "sink_site": "edge-a"}
ONE, TWO, THREE = chain("A", "B"), chain("C", "D", "B"), chain("E")


def refuse_starts(service: Service, *names: str) -> None:
    """The engine of edge-a refuses the starts of these jobs from now on, until none is given."""

    def refuse(kind: str, subject: str) -> None:
        for name in names if kind == "submit" else ():
            incarnation = service.records.incarnations.get("c", name)
            if incarnation is not None and incarnation.engine_job_id == subject:
                raise EngineRefusedError(f"cannot start {name}: no")

    engine("edge-a").before = refuse if names else None


def end_early(service: Service, first: CompositionDescription = ONE) -> None:
    """One wiring runs, and another one was begun; D could not be started."""
    service.compositions.apply(first, DONE)
    refuse_starts(service, "D")
    assert service.compositions.apply(TWO, FORCED).state == "failed"
    refuse_starts(service)


def newest(service: Service) -> ChangeReport:
    return service.changes.get(service.composition_views.head("c").last_change)


def running() -> set[str]:
    return {each.submission.job_name for each in engine("edge-a").running()}


def test_the_deployed_revision_comes_back_before_a_third_wiring(service: Service) -> None:
    end_early(service)
    preview = service.compositions.apply(THREE, ApplyRequest(dry_run=True, force=True))
    assert preview.plan.reverts_to == 1
    started = {o.job_name for o in preview.plan.operations if o.kind == "start"}
    assert started <= {"A", "B"}
    accepted = service.compositions.apply(THREE, FORCED)
    assert (accepted.state, accepted.plan.reverts_to) == ("done", 1)
    assert newest(service).reverts_to is None, "its last stage was its own"
    assert running() == {"E"}


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        (ONE, "the deployed wiring"),
        (TWO, "the wiring of the change that ended early"),
        (chain("C", "D", "B", D={"args": ["--other"]}), "the same links in other words"),
        (chain("A", "B", A=HERE, B={**HERE, "site": "cloud"}), "the same links from another site"),
        (chain("C", "D", "B", C=HERE, D=HERE), "the same links written out"),
        (chain("C", "D", "B", D={"state": "stopped"}), "the job that could not start is stopped"),
    ],
)
def test_nothing_comes_back_first(
    service: Service, wanted: CompositionDescription, what: str
) -> None:
    end_early(service)
    preview = service.compositions.apply(wanted, ApplyRequest(dry_run=True, force=True))
    assert preview.plan.reverts_to is None, what


def with_job(description: CompositionDescription, *jobs: JsonObject) -> CompositionDescription:
    more = composition(*jobs).jobs
    return replace(description, jobs=(*description.jobs, *more))


def test_nothing_comes_back_where_jobs_were_only_added(service: Service) -> None:
    service.compositions.apply(ONE, DONE)
    refuse_starts(service, "D")
    assert service.compositions.apply(with_job(ONE, body("N"), body("D")), DONE).state == "failed"
    refuse_starts(service)
    added = service.jobs.get("N").engine_job_id
    wanted = with_job(ONE, body("N"), body("D", sink_topic="other"))
    answer = service.compositions.apply(wanted, DONE)
    assert (answer.state, answer.plan.reverts_to) == ("done", None)
    assert service.jobs.get("N").engine_job_id == added


@pytest.mark.parametrize("is_beside", [False, True])
def test_a_new_job_stays_unless_it_shares_a_link_with_those_that_were_changed(
    service: Service, is_beside: bool
) -> None:
    new = body("N", source_topic="C-N") if is_beside else body("N")
    begun = with_job(TWO, new, body("M", source_topic="M-in", sink_topic=new["source_topic"]))
    joined = (
        begun if not is_beside else with_job(begun, body("K", source_topic="D", sink_topic="C-N"))
    )
    service.compositions.apply(ONE, DONE)
    refuse_starts(service, "D")
    assert service.compositions.apply(joined, FORCED).state == "failed"
    refuse_starts(service)
    before = service.jobs.get("N").engine_job_id
    wanted = with_job(THREE, new)
    accepted = service.compositions.apply(wanted, FORCED)
    assert (accepted.state, accepted.plan.reverts_to) == ("done", 1)
    assert running() == {"E", "N"}
    assert (service.jobs.get("N").engine_job_id == before) is not is_beside


X_READ = {"site": "edge-a", "topic": "X-out", "client_id": "q-x"}


def with_x(description: CompositionDescription) -> CompositionDescription:
    """With a job beside the others whose output is read from outside."""
    more = composition(body("X"), outputs=[X_READ])
    return replace(description, jobs=(*description.jobs, *more.jobs), outputs=more.outputs)


def feed_x(first: int, last: int) -> None:
    payloads = [b"%d" % n for n in range(first, last)]
    World.current().feed("tcp://edge-a.test:1883", "X-in", payloads, "sensor")
    World.current().pump()


def test_what_stays_loses_no_records_while_the_revision_cannot_come_back(service: Service) -> None:
    service.compositions.apply(ONE, DONE)
    refuse_starts(service, "D")
    assert service.compositions.apply(with_x(TWO), FORCED).state == "failed"
    feed_x(0, 5)
    refuse_starts(service, "A")
    assert service.compositions.apply(with_x(THREE), FORCED).state == "failed"
    feed_x(5, 10)
    refuse_starts(service)
    assert service.compositions.apply(with_x(THREE), FORCED).state == "done"
    feed_x(10, 15)
    assert [int(each) for each in broker("edge-a").take("q-x")] == list(range(15))


def test_a_repair_ends_though_it_keeps_a_queue_that_a_first_stage_would_drop(
    service: Service,
) -> None:
    service.compositions.apply(ONE, DONE)
    refuse_starts(service, "D")
    assert service.compositions.apply(with_x(TWO), FORCED).state == "failed"
    engine("edge-a").before = lambda kind, subject: feed_x(0, 3) if kind == "cancel" else None
    service.compositions.apply(THREE, FORCED)
    engine("edge-a").before = None
    for each in engine("edge-a").running():
        engine("edge-a").fail(each.id, "no memory")
    repair = service.repairs.repair("c")
    assert repair is not None and repair.wait_for_end(LIMIT_S)


def test_nothing_comes_back_if_the_last_change_was_done(service: Service) -> None:
    service.compositions.apply(ONE, DONE)
    service.compositions.apply(TWO, FORCED)
    preview = service.compositions.apply(THREE, ApplyRequest(dry_run=True, force=True))
    assert preview.plan.reverts_to is None


def test_nothing_comes_back_where_nothing_was_deployed(service: Service) -> None:
    refuse_starts(service, "D")
    assert service.compositions.apply(TWO, DONE).state == "failed"
    refuse_starts(service)
    assert service.compositions.apply(THREE, FORCED).plan.reverts_to is None
    assert running() == {"E"}


def test_a_revision_that_cannot_come_back_is_gone_on_without_only_by_consent(
    service: Service,
) -> None:
    end_early(service)
    refuse_starts(service, "A")
    for _ in range(2):  # it is tried again
        assert service.compositions.apply(THREE, FORCED).state == "failed"
        change = newest(service)
        assert change.reverts_to == 1
        assert str(change.error).endswith(
            "revision 1 is to be brought back first: apply again, or go on without that with"
            " --drop-queues (?drop_queues=true); records may be lost or come twice then"
        )
    request = ApplyRequest(wait_s=LIMIT_S, drop_queues=True, force=True)
    assert service.compositions.apply(THREE, request).state == "done"
    assert running() == {"E"}
    assert newest(service).reverts_to is None


def test_the_change_that_was_to_follow_still_brings_it_back_when_it_is_made_again(
    service: Service,
) -> None:
    """Its own wiring was not begun, so what is there is still between the two before it."""
    end_early(service)
    refuse_starts(service, "A")
    assert service.compositions.apply(THREE, FORCED).state == "failed"
    refuse_starts(service)
    assert service.composition_views.plan("c").reverts_to == 1
    repair = service.repairs.repair("c")
    assert repair is not None and repair.wait_for_end(LIMIT_S)
    assert service.changes.get(repair.change.id).state == "done"
    assert running() == {"E"}


def test_the_next_life_of_the_service_goes_on_with_what_comes_back(service: Service) -> None:
    end_early(service)
    engine("edge-a").unreachable = True
    assert service.compositions.apply(THREE, ApplyRequest(force=True)).plan.reverts_to == 1
    change_id = newest(service).id
    again = reopened(service)
    try:
        assert again.changes.get(change_id).reverts_to == 1
        engine("edge-a").unreachable = False
        wait_for(lambda: again.changes.get(change_id).state == "done")
        assert running() == {"E"}
    finally:
        again.close()


def test_a_composition_of_which_a_part_was_removed_comes_back_first(service: Service) -> None:
    service.compositions.apply(chain("A", "B", B={"site": "cloud"}), DONE)
    engine("cloud").unreachable = True
    _, removal = service.compositions.remove("c")
    wait_for(lambda: removal.change.state == "blocked")
    service.runner.cancel(removal.change.id)
    wait_for(lambda: not service.changes.all_under_way())
    engine("cloud").unreachable = False
    assert service.compositions.apply(THREE, FORCED).plan.reverts_to == 1
    assert running() == {"E"}


def test_a_silent_site_is_not_waited_for_by_consent(service: Service) -> None:
    end_early(service)
    engine("edge-a").unreachable = True
    preview = service.compositions.apply(
        chain("E", site="cloud"), ApplyRequest(dry_run=True, force=True, drop_queues=True)
    )
    assert preview.plan.reverts_to is None
    assert preview.warnings[-1] == (
        "revision 1 is not brought back first, though the change before this one ended early:"
        " records may be lost or come twice (no answer from edge-a)"
    )


def test_a_revision_that_cannot_even_be_planned_does_not_come_back(service: Service) -> None:
    lonely = {"A": {"site": "edge-b", "source_site": "edge-a", "sink_site": "edge-a"}}
    end_early(service, chain("A", "B", **lonely))
    service.records.write(service.records.sites.drop("edge-b"))
    preview = service.compositions.apply(THREE, ApplyRequest(dry_run=True, force=True))
    assert preview.plan.reverts_to is None
    assert any("revision 1 is not brought back first" in each for each in preview.warnings)


def test_no_job_is_taken_in_before_it_has_come_back(service: Service) -> None:
    end_early(service)
    service.jobs.post(composition(body("X")).jobs[0], 20)
    wanted = composition(*(body(n) for n in "XYZ"))
    with pytest.raises(ConflictError, match="revision 1 has to be brought back first"):
        service.compositions.apply(wanted, ApplyRequest(adopt=True, force=True))
    assert newest(service).revision == 2, "nothing was accepted"
