"""Engines die, hang and come back."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from speck.fog.sites import Fog
from speck.fog.state import StateFile
from tests.faults.conftest import EACH_BROKER, MakeTrial
from tests.faults.test_requests import RUN, STOP
from tests.faults.trial import PAUSE, RATE, Flow, Trial, assert_nothing_lost, engine_jobs, report
from tests.waiting import wait_for

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster_fog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fog]:
    """One edge and a cloud, each with JobManager and TaskManager in JVMs of their own."""
    fog = Fog(tmp_path_factory.mktemp("cluster-fog"))
    fog.up(edges=2, slots=4, cloud_slots=4, runtime="cluster", shared_state=False)
    yield fog
    fog.down()


def kill_and_start(flow: Flow, site: str, what: str = "engine") -> None:
    """Kill, start again at once, and wait until the flow goes on."""
    flow.trial.fog.kill(site, what)
    flow.trial.fog.start(site)
    flow.recovered()


@EACH_BROKER
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_single_jvm_site_killed(make_trial: MakeTrial, delivery: str) -> None:
    trial = make_trial(delivery)
    with trial.flowing() as flow:
        kill_and_start(flow, "cloud")
        result = flow.finish()
    report("single-JVM site killed", "its jobs again from their checkpoints", trial, result)
    assert_nothing_lost(trial, result)


def test_single_jvm_site_killed_ten_times(trial: Trial) -> None:
    with trial.flowing() as flow:
        for round_ in range(10):
            kill_and_start(flow, ("cloud", "edge-a")[round_ % 2])
        result = flow.finish()
    report("single-JVM site killed, 10 times", "the same each time", trial, result)
    assert_nothing_lost(trial, result)


@EACH_BROKER
def test_site_loses_engine_and_broker_at_once(trial: Trial) -> None:
    """What was under way between the two comes from the checkpoints of the one and the files of
    the other."""
    with trial.flowing() as flow:
        flow.go_on(6)  # past an autosave, so that sessions are on disk
        for _ in range(2):
            for what in ("engine", "broker"):
                trial.fog.kill("cloud", what)
            trial.fog.start("cloud")
            flow.recovered()
            flow.go_on(6)
        result = flow.finish()
    fault = "engine and broker of a site killed at once, twice"
    report(fault, "its jobs again from their checkpoints, sent again", trial, result)
    assert_nothing_lost(trial, result)


def test_single_jvm_site_with_ten_jobs_killed(trial: Trial) -> None:
    """A chain of ten jobs at one site; the time until all of them run again."""
    names = [f"{trial.name}-{number}" for number in range(10)]
    chain = trial.chain()
    first, last = chain["jobs"]
    chain["jobs"] = [
        {
            **first,
            "job_name": name,
            "site": "cloud",
            "source_site": "edge-a" if number == 0 else "cloud",
            "source_topic": f"{trial.name}.{'in' if number == 0 else number}",
            "sink_topic": last["sink_topic"] if number == 9 else f"{trial.name}.{number + 1}",
        }
        for number, name in enumerate(names)
    ]
    engine = trial.proxies["cloud"]["engine"].http

    def all_run() -> bool:
        up = {
            it["name"]
            for it in engine_jobs(engine)
            if it["state"] == "RUNNING" and it["tasks"]["running"] == it["tasks"]["total"]
        }
        return up >= set(names)

    with trial.flowing(rate=RATE / 5, composition=chain) as flow:
        trial.fog.kill("cloud", "engine")
        began = time.monotonic()
        trial.fog.start("cloud")
        engine_up = time.monotonic() - began
        wait_for(all_run, "ten jobs to run")
        running = time.monotonic() - began
        flow.recovered()
        result = flow.finish()
    report(
        "single-JVM site with 10 jobs killed",
        "all run again from their checkpoints",
        trial,
        result,
        engine_up_s=round(engine_up, 1),
        all_running_s=round(running, 1),
    )
    assert_nothing_lost(trial, result)


@pytest.mark.parametrize("what", ["jobmanager", "taskmanager"])
def test_part_of_a_cluster_killed(make_trial: MakeTrial, what: str) -> None:
    trial = make_trial(fog="cluster_fog")
    with trial.flowing() as flow:
        kill_and_start(flow, "cloud", what)
        result = flow.finish()
    name = {"jobmanager": "JobManager", "taskmanager": "TaskManager"}[what]
    report(f"{name} killed", "its jobs again from their checkpoints", trial, result)
    assert_nothing_lost(trial, result)


@EACH_BROKER
@pytest.mark.parametrize(
    ("site", "row", "outcome"),
    [
        ("cloud", "source site dies in mid-move", "the move goes on when it is back"),
        ("edge-b", "target dies after the start", "started again on it, from the same state"),
    ],
    ids=["source", "target"],
)
def test_site_dies_in_mid_move(trial: Trial, site: str, row: str, outcome: str) -> None:
    """It has been asked to stop the job, or has taken the new incarnation on; it dies before it can
    report that, and forgets everything."""
    with trial.flowing() as flow:
        trap = trial.proxies[site]["engine"].trap(
            "lose the answer", STOP if site == "cloud" else RUN
        )
        change = trial.begin(trial.chain(second_at="edge-b"))
        assert trap.sprung.wait(240)
        trial.fog.kill(site, "engine")
        trial.fog.start(site)
        trial.await_change(change)
        flow.recovered()
        result = flow.finish()
    report(row, outcome, trial, result)
    assert_nothing_lost(trial, result)


@pytest.mark.parametrize("site", ["cloud", "edge-b"], ids=["source", "target"])
def test_hung_site(trial: Trial, site: str) -> None:
    """The engine of the move's source or target stands still for 20 s and then goes on."""
    with trial.flowing() as flow:
        state = StateFile(trial.fog.folder).load()
        assert state is not None
        engine = state.of(site)["engine"]
        pattern = STOP if site == "cloud" else RUN
        trap = trial.proxies[site]["engine"].trap("drop the request", pattern)
        change = trial.begin(trial.chain(second_at="edge-b"))
        assert trap.sprung.wait(240)
        engine.send(signal.SIGSTOP)
        try:
            PAUSE.wait(20)  # how long the fault lasts, not a wait for something
        finally:
            engine.send(signal.SIGCONT)
        trial.await_change(change)
        flow.recovered()
        result = flow.finish()
    report(f"hung {'source' if site == 'cloud' else 'target'} (20 s)", "waits", trial, result)
    assert_nothing_lost(trial, result)


def test_it_is_told_which_job_was_lost(trial: Trial) -> None:
    """The events name the job that its engine did not know any more, and that it runs again."""
    with trial.flowing() as flow:
        kill_and_start(flow, "cloud")
        result = flow.finish()
        events = wait_for(
            lambda: [
                it
                for it in trial.call("GET", "/events")["events"]
                if it.get("job_name") == trial.job("count") and "lost" in it["message"]
            ],
            "an event on the lost job",
        )
    assert events
    assert_nothing_lost(trial, result)
