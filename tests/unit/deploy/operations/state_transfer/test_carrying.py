"""State goes with a job: to another site, and to an engine that was restarted."""

from __future__ import annotations

from pathlib import Path

import pytest

from binders.memory import World
from speck.errors import EngineRefusedError
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.memory_fog import MemoryKeeper, memory_service, site_body
from tests.service_helpers import composition, engine, look_anew
from tests.service_helpers import job_body as job
from tests.unit.deploy.operations.state_transfer.moves import (
    SITES,
    apply,
    at,
    await_state,
    begin,
    deployed,
    feed,
    operation,
    running,
)
from tests.waiting import wait_for


def test_state_is_carried_between_the_stop_and_the_start(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1", b"2")
    change = apply(service, at("cloud"))
    kinds = [operation.kind for operation in change.operations]
    assert kinds == ["upload", "try", "stop", "carry", "start", "return"]
    assert [operation.state for operation in change.operations] == ["done"] * 5 + ["skipped"]
    incarnation = running()["cloud"]
    assert incarnation.submission.state.startswith("memory:/cloud/carried/")
    assert incarnation.ledger.messages == 2
    assert service.composition_views.plan("c").operations == ()


def test_a_savepoint_lies_in_the_folder_of_its_site_job_and_incarnation(service: Service) -> None:
    apply(service, at("edge-a"))
    job_id = running()["edge-a"].id
    apply(service, at("edge-a", state="stopped"))
    assert deployed(service).savepoint.startswith(f"memory:/edge-a/savepoints/A/{job_id}/")


def test_a_carry_that_is_slow_says_how_far_it_is(service: Service, keeper: MemoryKeeper) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    keeper.looks = 1_000_000
    change = begin(service, at("cloud"))
    wait_for(lambda: "of 1000000 bytes" in str(operation(service, change, "carry")))
    keeper.looks = 1
    await_state(service, change, "done")
    assert operation(service, change, "carry").progress is None


def test_a_carry_waits_for_a_silent_agent(service: Service, keeper: MemoryKeeper) -> None:
    apply(service, at("edge-a"))
    keeper.silent = {"cloud"}
    change = begin(service, at("cloud"))
    await_state(service, change, "blocked")
    assert operation(service, change, "carry").state == "blocked"
    keeper.silent = set()
    await_state(service, change, "done")
    assert list(running()) == ["cloud"]


def test_state_is_carried_anew_when_newer_is_there(service: Service, keeper: MemoryKeeper) -> None:
    """The way back has taken something since the state was carried the first time."""
    apply(service, at("edge-a"))
    feed(b"1")
    engine("cloud").refuse("submit", 1, EngineRefusedError("cannot start A: no"))
    apply(service, at("cloud"), state="failed")
    feed(b"2", b"3")
    apply(service, at("cloud"))
    assert running()["cloud"].ledger.messages == 3
    assert ("carry", "cloud") in keeper.calls


def test_a_stopped_job_is_moved_with_its_state_when_it_runs_again(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    apply(service, at("edge-a", state="stopped"))
    apply(service, at("edge-b", state="stopped"))
    apply(service, at("cloud", state="stopped"))
    feed(b"2")
    apply(service, at("cloud"))
    feed(b"3")
    assert running()["cloud"].ledger.messages == 3


def test_the_states_of_the_last_two_starts_are_kept(service: Service) -> None:
    for turn in range(4):
        for site in ("edge-a", "cloud"):
            apply(service, at(site))
            feed(str(turn).encode())
    saved = [path for path in World.current().saved if "chk-" not in path]
    wait_for(lambda: len([p for p in World.current().saved if "chk-" not in p]) <= 4)
    assert saved
    assert running()["cloud"].ledger.messages == 8


@pytest.mark.parametrize("site", ["edge-a", "cloud"])
def test_a_job_whose_engine_was_restarted_goes_on_from_its_newest_state(
    service: Service, site: str
) -> None:
    apply(service, at("edge-a"))
    feed(b"1", b"2")
    engine("edge-a").forget_jobs()
    apply(service, at(site))
    assert running()[site].ledger.messages == 2


def test_a_job_that_completed_nothing_since_its_move_goes_on_from_what_was_carried(
    service: Service,
) -> None:
    apply(service, at("edge-a"))
    feed(b"1", b"2")
    apply(service, at("cloud"))
    engine("cloud").forget_jobs()
    feed(b"3")
    apply(service, at("cloud"))
    World.current().pump()
    assert running()["cloud"].ledger.messages == 3


def test_a_job_that_never_took_anything_starts_anew(service: Service) -> None:
    apply(service, at("edge-a"))
    engine("edge-a").forget_jobs()
    apply(service, at("edge-a"))
    feed(b"1")
    assert running()["edge-a"].ledger.messages == 1


def test_a_job_whose_state_is_gone_is_never_started_without(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    engine("edge-a").forget_jobs()
    World.current().saved.clear()
    change = apply(service, at("edge-a"), state="failed")
    assert "its state is gone, unless its main sets a checkpoint folder" in change.error
    assert not engine("edge-a").running()


OWN = ["--checkpoints", "memory:/own"]


def look(service: Service) -> None:
    """Let the watch ask the engines for checkpoints."""
    look_anew(service)
    service.watch.poll()


def test_checkpoints_in_a_folder_of_the_job_s_own_are_found_at_a_restarted_engine(
    service: Service,
) -> None:
    apply(service, at("edge-a", args=OWN))
    feed(b"1", b"2")
    look(service)
    feed(b"3")  # newer than what was reported last
    engine("edge-a").forget_jobs()
    apply(service, at("edge-a", args=OWN))
    assert running()["edge-a"].ledger.messages == 3


def test_a_restored_job_with_a_folder_of_its_own_does_not_go_back_to_what_it_began_with(
    service: Service,
) -> None:
    apply(service, at("edge-a", args=OWN))
    feed(b"1", b"2")
    apply(service, at("cloud", args=OWN))
    feed(b"3")
    look(service)
    engine("cloud").forget_jobs()
    apply(service, at("cloud", args=OWN))
    assert running()["cloud"].ledger.messages == 3


def test_state_that_is_gone_from_a_folder_of_the_job_s_own_is_named(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    apply(service, at("cloud", args=OWN))
    feed(b"2")
    look(service)
    job_id = running()["cloud"].id
    engine("cloud").forget_jobs()
    saved = World.current().saved
    for path in [path for path in saved if path.startswith("memory:/own")]:
        del saved[path]
    change = apply(service, at("cloud", args=OWN), state="failed")
    assert f"its main has set memory:/own/{job_id} for its checkpoints, and none" in change.error
    assert not engine("cloud").running()


def test_a_job_in_the_site_s_folder_is_not_written_again(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    before = deployed(service)
    look(service)
    assert deployed(service) is before


def test_a_silent_agent_blocks_a_start(service: Service, keeper: MemoryKeeper) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    engine("edge-a").forget_jobs()
    keeper.silent = {"edge-a"}
    change = begin(service, at("edge-a"))
    await_state(service, change, "blocked")
    keeper.silent = set()
    await_state(service, change, "done")
    assert running()["edge-a"].ledger.messages == 1


def test_the_plan_asks_each_site_once_whether_states_can_be_carried(
    service: Service, keeper: MemoryKeeper
) -> None:
    names = [f"J{n}" for n in range(5)]
    apply(service, *(job(name, "edge-a") for name in names))
    keeper.calls.clear()
    moved = composition(*(job(name, "cloud") for name in names))
    service.compositions.apply(moved, ApplyRequest(dry_run=True))
    assert sorted(keeper.calls) == [("newest", "cloud"), ("newest", "edge-a")]


def test_a_state_that_several_sites_share_is_kept_while_one_was_started_from_it(
    tmp_path: Path,
) -> None:
    sites = [site_body(site) for site in SITES]
    with memory_service(tmp_path, sites, keeper=MemoryKeeper(), apart=False) as service:
        apply(service, at("edge-a"))
        feed(b"1")
        apply(service, at("edge-b"))
        for before, after in (("edge-b", "cloud"), ("cloud", "edge-a"), ("edge-a", "cloud")):
            engine(before).forget_jobs()  # before its first checkpoint
            apply(service, at(after))
        assert running()["cloud"].ledger.messages == 1
