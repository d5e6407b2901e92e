"""A job whose `main` never returns: its start fails once, and it never runs later."""

from __future__ import annotations

import pytest

from binders.memory import World
from speck.binding import Artifact, Submission
from speck.errors import (
    DuplicateJobError,
    MainTimeoutError,
    NotFoundError,
    SpeckError,
    UnreachableError,
)
from speck.model.engines import ArtifactKind
from speck.service import Service
from tests.service_helpers import (
    DONE,
    LIMIT_S,
    composition,
    engine,
    everything,
    job,
    job_body,
    look_anew,
    reopened,
)
from tests.waiting import wait_for

HUNG = MainTimeoutError("cannot run main of A: it did not return within 60 s")
A = job_body("A")


def submit_late(service: Service, attempt: int = 1) -> None:
    """What happens when `main` returns after all: Flink's `execute` submits under the first id."""
    job_id = next(subject for kind, subject in engine("edge-a").calls if kind == "submit")
    jar = service.config.jar_folders[0] / "test-1.jar"
    late = Submission(job_id, "A", Artifact("", jar, ArtifactKind.JAR), "package.ExampleJob", ())
    service.connections.engine("edge-a").submit(late)


def test_the_start_fails_with_the_reason_and_its_id_is_used_up(service: Service) -> None:
    engine("edge-a").refuse("submit", 1, HUNG)
    change = service.compositions.apply(composition(A), DONE)
    assert change.state == "failed"
    starts = [o for o in service.changes.get(change.change).operations if o.error]
    assert ["did not return within 60 s" in o.error for o in starts] == [True]
    with pytest.raises(DuplicateJobError):
        submit_late(service)
    assert engine("edge-a").running() == []


def test_a_job_posted_alone_leaves_nothing_behind(service: Service) -> None:
    before = everything(service)
    engine("edge-a").refuse("submit", 1, HUNG)
    with pytest.raises(MainTimeoutError, match=r"did not return within 60 s.*edge-a"):
        service.jobs.post(job("A"), LIMIT_S)
    assert everything(service) == before
    assert engine("edge-a").count("submit") == 1, "main runs once"
    with pytest.raises(NotFoundError):
        service.jobs.get("A")


@pytest.mark.parametrize("refusals", [0, 1], ids=["fenced at once", "fenced by the removal"])
def test_it_is_removed_without_running_main_again(service: Service, refusals: int) -> None:
    engine("edge-a").refuse("submit", 1, HUNG)
    unfenced = UnreachableError("cannot fence: no thread is free")
    engine("edge-a").refuse("fence", refusals, unfenced)
    service.compositions.apply(composition(A), DONE)
    assert service.compositions.delete("c", LIMIT_S, drop_queues=True).done
    assert engine("edge-a").count("submit") == 1
    with pytest.raises(DuplicateJobError):
        submit_late(service)


def test_it_may_be_applied_again_under_another_id(service: Service) -> None:
    engine("edge-a").refuse("submit", 1, HUNG)
    service.compositions.apply(composition(A), DONE)
    assert service.compositions.apply(composition(A), DONE).state == "done"
    assert service.jobs.get("A").attempt == 2
    with pytest.raises(DuplicateJobError):
        submit_late(service)


def test_a_start_that_has_arrived_meanwhile_is_adopted(service: Service) -> None:
    engine("edge-a").refuse("submit", 1, HUNG, after=True)
    assert service.compositions.apply(composition(A), DONE).state == "done"
    assert len(engine("edge-a").running()) == 1


def test_the_former_incarnation_comes_back_from_an_update_that_hangs(service: Service) -> None:
    service.compositions.apply(composition(A), DONE)
    World.current().pump()
    engine("edge-a").refuse("submit", 1, HUNG)
    update = composition(job_body("A", args=["--x"]))
    assert service.compositions.apply(update, DONE).state == "failed"
    (back,) = engine("edge-a").running()
    assert back.submission.args.count("--x") == 0


def test_an_update_whose_trial_hangs_stops_nothing(service: Service) -> None:
    service.compositions.apply(composition(A), DONE)
    running = engine("edge-a").running()
    engine("edge-a").refuse("try_main", 1, HUNG)
    update = composition(job_body("A", args=["--x"]))
    assert service.compositions.apply(update, DONE).state == "failed"
    assert engine("edge-a").running() == running


def test_a_repair_runs_a_main_that_hangs_only_once(service: Service) -> None:
    service.compositions.apply(composition(A), DONE)
    engine("edge-a").fail(next(iter(engine("edge-a").jobs)), "no memory")
    submits = engine("edge-a").count("submit")
    engine("edge-a").refuse("submit", 9, HUNG)

    def has_failed() -> bool:
        look_anew(service)
        service.watch.poll()
        return service.changes.all("c")[0].state == "failed"

    wait_for(has_failed, "the repair to fail")
    for _ in range(5):
        look_anew(service)
        service.watch.poll()
    assert engine("edge-a").count("submit") == submits + 1
    assert service.jobs.get("A").state == "failed"
    assert "did not return" in service.jobs.get("A").error


def test_after_a_restart_of_the_service_it_is_still_fenced(service: Service) -> None:
    engine("edge-a").refuse("submit", 1, HUNG)
    engine("edge-a").refuse("fence", 1, UnreachableError("cannot fence: no thread is free"))
    service.compositions.apply(composition(A), DONE)
    again = reopened(service)
    try:
        assert again.compositions.delete("c", LIMIT_S, drop_queues=True).done
    finally:
        again.close()
    with pytest.raises(SpeckError):
        submit_late(service)
