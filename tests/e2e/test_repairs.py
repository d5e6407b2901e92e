"""Faults at an engine are reported and repaired without loss; silent sites are left alone."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import requests

from speck.fog.state import StateFile
from speck.model.values import JsonObject
from tests.e2e.harness import Speck, await_all, composition, flowing, job, session_present
from tests.waiting import wait_for


def events(speck: Speck, **about: str) -> list[str]:
    """Messages of the events that are about all this, oldest first."""
    after, messages = 0, []
    while page := speck.call("GET", "/events", params={"after": after})["events"]:
        after = page[-1]["id"]
        messages += [it["message"] for it in page if about.items() <= it.items()]
    return messages


def runs_again(speck: Speck, name: str, before: JsonObject) -> JsonObject:
    """Wait until another incarnation of a job runs."""

    def look() -> JsonObject | None:
        now = speck.job(name)
        another = now["engine_job_id"] != before["engine_job_id"]
        return now if another and now["state"] == "running" else None

    job = wait_for(look, f"{name} to run again")
    assert job is not None
    return job


def find_both_messages(speck: Speck, name: str) -> list[str]:
    """The events of a job that failed and runs again; empty before."""
    messages = events(speck, kind="job", job_name=name)
    return messages if len(messages) >= 2 else []


def end_at_engine(speck: Speck, name: str) -> None:
    """Cancel a job as a person would who does not know of speck."""
    job = speck.job(name)
    site = next(it for it in speck.fog.sites() if it.name == job["site"])
    address = f"{site.engine_address.rstrip('/')}/jobs/{job['engine_job_id']}"
    assert requests.patch(address, params={"mode": "cancel"}, timeout=20).status_code == 202


def chain(name: str, *sites: str, drift: str | None = None) -> JsonObject:
    """<name>-1 -> <name>-2 -> ..., one at each site, all links at the first."""
    first, jobs = sites[0], []
    for number, site in enumerate(sites, 1):
        ends = f"{name}/{number - 1}", f"{name}/{number}"
        more = {"source_site": first, "sink_site": first}
        jobs.append(job(f"{name}-{number}", site, *ends, **more))
    content = composition(
        name,
        *jobs,
        inputs=[(first, f"{name}/0")],
        outputs=[(first, f"{name}/{len(sites)}", f"e2e-{name}")],
    )
    return content if drift is None else {**content, "drift": drift}


def test_an_engine_that_was_killed_gets_its_jobs_back(speck: Speck) -> None:
    names = ("kill-1", "kill-2", "kill-3")
    speck.apply(chain("kill", "edge-a", "edge-a", "edge-a"))
    out = speck.reader("edge-a", "kill/3", "e2e-kill")
    with flowing(speck.publisher("edge-a", "kill/0")) as flow:
        wait_for(lambda: speck.count_taken("kill-3", "edge-a", "kill/2") > 50, "all jobs to take")
        before = {name: speck.job(name) for name in names}
        speck.fog.kill("edge-a")
        speck.fog.start("edge-a")
        for name in names:
            runs_again(speck, name, before[name])
        flow.go_on()
        count = flow.end()
    await_all(count, out)

    assert len(speck.running()) == 3
    for name in names:
        lost, again = wait_for(partial(find_both_messages, speck, name), "both events")
        assert lost.startswith(f"{name} is lost: the engine of edge-a answers and does not know it")
        assert again.startswith(f"{name} runs again at edge-a after ")


@pytest.mark.long
def test_a_job_that_is_cancelled_behind_specks_back_is_repaired(speck: Speck) -> None:
    speck.apply(chain("drift", "edge-a", "edge-b"))
    out = speck.reader("edge-a", "drift/2", "e2e-drift")
    with flowing(speck.publisher("edge-a", "drift/0")) as flow:
        wait_for(lambda: speck.count_taken("drift-2", "edge-a", "drift/1") > 50, "all jobs to take")
        before = speck.job("drift-1")
        untouched = speck.job("drift-2")["engine_job_id"]
        end_at_engine(speck, "drift-1")
        again = runs_again(speck, "drift-1", before)
        assert again["attempt"] == before["attempt"] + 1
        assert speck.job("drift-2")["engine_job_id"] == untouched
        flow.go_on()
        count = flow.end()
    await_all(count, out)

    assert events(speck, kind="drift") == [
        "drift-1 has ended at edge-a though speck did not stop it; it is started again"
    ]
    changes = speck.call("GET", "/changes", params={"composition": "drift"})["changes"]
    assert [it["cause"] for it in changes] == ["repair", "apply"]


@pytest.mark.long
def test_with_drift_report_it_is_only_shown(speck: Speck) -> None:
    speck.apply(chain("shown", "edge-a", drift="report"))
    before = speck.job("shown-1")
    end_at_engine(speck, "shown-1")
    wait_for(lambda: events(speck, kind="drift", job_name="shown-1"), "the drift")

    def looks() -> int:
        """How often the watch has looked since: each look begins with the engine's jobs."""
        return len(events(speck, composition="probe", kind="drift"))

    # by the time another composition's job is repaired, this one was passed over
    speck.apply(chain("probe", "edge-a"))
    other = speck.job("probe-1")
    end_at_engine(speck, "probe-1")
    runs_again(speck, "probe-1", other)

    assert looks() == 1
    assert speck.job("shown-1")["engine_job_id"] == before["engine_job_id"]
    [drift] = speck.call("GET", "/compositions/shown/drift")["drift"]
    assert (drift["job_name"], drift["expected"]) == ("shown-1", "running")


@pytest.fixture
def trial(speck: Speck, trial_jar: Path) -> Iterator[None]:
    shutil.copy(trial_jar, speck.jars / "trial.jar")
    yield
    (speck.jars / "trial.jar").unlink()


def trial_job(name: str, *args: str) -> JsonObject:
    """A job that reads nothing, and does as its arguments say."""
    more = {"entry_class": "TrialJob", "job_path": "trial.jar", "args": list(args)}
    return job(name, "edge-c", f"{name}/in", f"{name}/out", **more)


@pytest.mark.long
def test_a_job_whose_sources_end_is_finished_and_not_repaired(speck: Speck, trial: None) -> None:
    speck.apply(composition("brief", trial_job("brief-1", "--records", "1000")))
    wait_for(lambda: speck.job("brief-1")["state"] == "finished", "the end of its sources")
    assert speck.running() == []
    changes = speck.call("GET", "/changes", params={"composition": "brief"})["changes"]
    assert "repair" not in [it["cause"] for it in changes]
    assert events(speck, kind="drift", job_name="brief-1") == []


@pytest.mark.long
def test_a_job_whose_operator_fails_is_told_with_its_exception(
    speck: Speck, trial: None, tmp_path: Path
) -> None:
    fail = tmp_path / "fail"  # not before the job runs: its start would have failed
    speck.apply(composition("bad", trial_job("bad-1", "--fail-when", str(fail))))
    fail.touch()

    def error() -> str | None:
        message: str | None = speck.job("bad-1")["error"]
        return message

    assert "cannot count" in str(wait_for(error, "the exception"))
    wait_for(
        lambda: any("cannot count" in it for it in events(speck, kind="job", job_name="bad-1")),
        "its event",
    )


@contextmanager
def frozen(speck: Speck, *sites: str) -> Iterator[None]:
    """Engines that hang until the block ends."""
    state = StateFile(speck.fog.folder).load()
    assert state is not None
    engines = [state.of(site)["engine"] for site in sites]
    for engine in engines:
        engine.send(signal.SIGSTOP)
    try:
        yield
    finally:
        for engine in engines:
            engine.send(signal.SIGCONT)


@pytest.mark.long
def test_while_half_of_the_sites_hang_nothing_is_repaired(speck: Speck) -> None:
    speck.apply(chain("hang", "edge-a", "edge-b", "edge-c"))
    out = speck.reader("edge-a", "hang/3", "e2e-hang")
    with flowing(speck.publisher("edge-a", "hang/0")) as flow:
        wait_for(lambda: speck.count_taken("hang-3", "edge-a", "hang/2") > 50, "all jobs to take")
        before = {name: speck.job(name) for name in ("hang-1", "hang-2", "hang-3")}
        with frozen(speck, "edge-b", "edge-c"):
            wait_for(
                lambda: any("at the same time" in it for it in events(speck, kind="site")),
                "the hold",
            )
            end_at_engine(speck, "hang-1")
            wait_for(lambda: events(speck, kind="drift", job_name="hang-1"), "the drift")
            assert speck.job("hang-2")["state"] == "unreachable"
            flow.go_on()
            changes = speck.call("GET", "/changes", params={"composition": "hang"})["changes"]
            assert [it["cause"] for it in changes] == ["apply"]
        runs_again(speck, "hang-1", before["hang-1"])
        flow.go_on()
        count = flow.end()
    await_all(count, out)

    for name in ("hang-2", "hang-3"):
        assert speck.job(name)["engine_job_id"] == before[name]["engine_job_id"]
    assert any("answers again after" in it for it in events(speck, kind="site", site="edge-b"))


@pytest.mark.long
def test_a_stopped_jobs_session_that_a_broker_lost_is_reserved_again(speck: Speck) -> None:
    running = chain("kept", "edge-b")
    stopped = {**running, "jobs": [{**it, "state": "stopped"} for it in running["jobs"]]}
    speck.apply(running)
    speck.apply(stopped)
    reader = speck.reader_id("kept-1", "edge-b", "kept/0")
    address = speck.broker("edge-b")
    speck.fog.kill("edge-b", "broker")
    for database in (speck.fog.folder / "sites" / "edge-b").rglob("mosquitto.db"):
        database.unlink()  # the surest way to lose a session
    speck.fog.start("edge-b")
    wait_for(
        lambda: [it for it in events(speck, kind="session", site="edge-b") if "was lost" in it],
        "the session",
    )
    assert session_present(address, reader)
