"""What an engine or broker cannot do is refused before anything moves, or done without."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from binders.memory import MemoryEngine, World
from speck.binding import BrokerCapability, Checkpointing, EngineCapability, Submission
from speck.errors import ConflictError, InvalidError, UnreachableError
from speck.model.site import AgentReport
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.sites.agent_channel import SiteChannel
from speck.spec.site_schema import site_from_data
from tests.memory_fog import site_body
from tests.service_helpers import DONE, LIMIT_S, broker, composition, engine, job, job_body
from tests.third_party_kinds import third_party
from tests.waiting import wait_for
from tests.watching import Watched

DRY = ApplyRequest(dry_run=True)


def without(service: Service, *missing: EngineCapability) -> None:
    service.connections.close()  # a binder tells its capabilities when it is opened
    engine("edge-a").capabilities = frozenset(EngineCapability) - set(missing)


def test_an_engine_without_savepoints_takes_only_stateless_jobs(service: Service) -> None:
    without(service, EngineCapability.STATE)
    with pytest.raises(InvalidError) as error:
        service.compositions.apply(composition(job_body("B", "cloud"), job_body("A")), DONE)
    (problem,) = error.value.problems
    assert problem.path == "jobs[1].upgrade"
    assert problem.message == (
        "the engine of site edge-a has no capability `state`; set upgrade: stateless"
    )
    with pytest.raises(InvalidError) as error:
        service.jobs.post(job("A"), LIMIT_S)
    assert [problem.path for problem in error.value.problems] == ["upgrade"]


def test_on_an_engine_without_savepoints_a_job_is_cancelled_not_stopped(service: Service) -> None:
    without(service, EngineCapability.STATE)
    service.jobs.post(job("A", upgrade="stateless"), LIMIT_S)
    updated = service.jobs.put("A", job("A", upgrade="stateless", args=["--x"]), LIMIT_S)
    assert updated.job.attempt == 2
    assert engine("edge-a").count("stop") == 0
    assert engine("edge-a").count("cancel") == 1
    with pytest.raises(ConflictError, match="the engine of site edge-a has no capability `state`"):
        service.jobs.savepoint("A", LIMIT_S)


def test_only_an_engine_that_limits_single_jobs_takes_one_with_a_limit_of_memory(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int | None] = []
    submit = MemoryEngine.submit

    def read_limit(self: MemoryEngine, submission: Submission) -> str | None:
        limits.append(submission.memory_mb)
        return submit(self, submission)

    monkeypatch.setattr(MemoryEngine, "submit", read_limit)
    service.compositions.apply(composition(job_body("A", memory_mb=64)), DONE)
    service.compositions.apply(composition(job_body("A")), DONE)
    assert limits == [64, None]
    without(service, EngineCapability.MEMORY)
    with pytest.raises(InvalidError) as error:
        service.compositions.apply(composition(job_body("A", memory_mb=64)), DONE)
    (problem,) = error.value.problems
    assert problem.path == "jobs[0].memory_mb"
    assert problem.message == (
        "the engine of site edge-a has no capability `memory`: it limits no single job; leave"
        " memory_mb out"
    )


def test_what_an_engine_cannot_try_is_not_tried(service: Service) -> None:
    without(service, EngineCapability.TRIAL)
    applied = service.compositions.apply(composition(job_body("B"), name="b"), DONE)
    assert list(applied.warnings[-1:]) == [
        "the engine of site edge-a has no capability `trial`: an update stops what runs there"
        " without having tried the new program"
    ]
    service.jobs.post(job("A"), LIMIT_S)
    service.jobs.put("A", job("A", args=["--x"]), LIMIT_S)
    assert engine("edge-a").count("try_main") == 0
    assert [j.attempt for j in service.jobs.all()] == [2, 1]


def test_a_broker_without_sessions_carries_only_what_may_be_lost(service: Service) -> None:
    service.connections.close()
    World.current().broker("tcp://cloud.test:1883").capabilities = frozenset(
        {BrokerCapability.NUMBERS}
    )
    with pytest.raises(InvalidError) as error:
        service.jobs.post(job("A", source_site="cloud"), LIMIT_S)
    (problem,) = error.value.problems
    assert problem.path == "delivery"
    assert problem.message == (
        "the broker of site cloud has no capability `sessions`: it keeps no messages for a reader"
        " that is disconnected; set delivery: at_most_once"
    )
    allowed = job("A", source_site="cloud", delivery="at_most_once")
    assert service.jobs.post(allowed, LIMIT_S).created
    assert broker("cloud").count("reserve") == 1


def lacking(service: Service, *missing: BrokerCapability) -> None:
    service.connections.close()
    for site in ("edge-a", "cloud"):
        broker(site).capabilities = frozenset(BrokerCapability) - set(missing)


def test_a_plan_names_what_its_brokers_cannot_do(service: Service) -> None:
    lacking(service, BrokerCapability.MARKS, BrokerCapability.METRICS)
    described = composition(job_body("A"), job_body("B", "cloud"))
    assert list(service.compositions.apply(described, DONE).warnings[-4:]) == [
        f"the broker of site {site} has no capability {rest}"
        for site in ("cloud", "edge-a")
        for rest in (
            "`marks`: a drain whose end no numbers show waits there until its reader takes nothing"
            " more for a while",
            "`metrics`: there are no figures of the broker",
        )
    ]


def test_a_broker_that_passes_on_no_reports_is_sent_none(watched: Watched) -> None:
    """Over the life of a composition: another link, a stop, a lost session, the removal."""
    service = watched.service
    lacking(service, BrokerCapability.REPORTS)
    applied = service.compositions.apply(composition(job_body("A"), job_body("B", "cloud")), DONE)
    assert list(applied.warnings[-2:]) == [
        f"the broker of site {site} has no capability `reports`: sinks are not told there whether a"
        " link has readers: the broker has to keep what nobody reads yet"
        for site in ("cloud", "edge-a")
    ]
    other = job_body("A", sink_topic="elsewhere")
    service.compositions.apply(composition(other, job_body("B", "cloud")), DONE)
    service.compositions.apply(composition(job_body("A", state="stopped")), DONE)
    watched.look()
    broker("edge-a").restart()
    watched.look()
    wait_for(lambda: watched.watch.sessions.idle)
    assert len(broker("edge-a").sessions) == 1
    broker("edge-a").readers.clear()
    watched.look()
    wait_for(lambda: watched.watch.sessions.idle)
    service.compositions.delete("c", LIMIT_S, drop_queues=True)
    calls = {(site, call) for site in ("edge-a", "cloud") for call, _ in broker(site).calls}
    refused = {"announce", "confirm_sessions", "forget"}
    assert not {each for each in calls if each[1] in refused}
    assert ("edge-a", "release") in calls


def test_a_state_is_read_only_by_engines_of_the_kind_that_has_written_it(service: Service) -> None:
    """Another program of the job may be one for the engine beside the first."""
    silent = patch.object(SiteChannel, "status", side_effect=UnreachableError("no agent"))
    with third_party(), silent:
        body = site_body("edge-a")
        beside = {**body, "spe": {**body["spe"], "beside": {"kind": "loom"}}}
        service.sites.put(site_from_data(beside))
        service.jobs.post(job("A"), LIMIT_S)
        (service.config.jar_folders[0] / "upper.txt").write_text("weave upper")
        with pytest.raises(InvalidError) as error:
            service.jobs.put("A", job("A", job_path="upper.txt", entry_class=""), LIMIT_S)
        (problem,) = error.value.problems
        assert problem.path == "upgrade"
        assert problem.message == (
            "an engine of kind loom cannot read its state, which one of kind memory has written;"
            " set upgrade: stateless"
        )


def test_a_state_that_goes_on_with_its_own_parallelism_only_is_not_stopped_for_another(
    service: Service,
) -> None:
    original = MemoryEngine.checkpointing

    def checkpointing(self: MemoryEngine, engine_job_id: str) -> Checkpointing | None:
        known = original(self, engine_job_id)
        return known and replace(known, parallelism=1)

    assert service.compositions.apply(composition(job_body("A")), DONE).state == "done"
    wider = composition(job_body("A", parallelism=2))
    with patch.object(MemoryEngine, "checkpointing", checkpointing):
        for request in (DRY, DONE):
            with pytest.raises(InvalidError) as error:
                service.compositions.apply(wider, request)
            (problem,) = error.value.problems
            assert problem.path == "jobs[0].parallelism"
            assert problem.message == (
                "cannot run A with parallelism 2: its state was made with parallelism 1, which its"
                " engine cannot change; describe it so, or set upgrade: stateless"
            )
        anew = composition(job_body("A", parallelism=2, upgrade="stateless"))
        assert service.compositions.apply(anew, DRY).plan
        engine("edge-a").unreachable = True
        assert service.compositions.apply(wider, DRY).plan


def report_memory(service: Service, site: str, gib: float) -> None:
    service.sites.heartbeat(site, AgentReport(memory_bytes=int(gib * 2**30)))


def test_jobs_of_spark_are_refused_where_the_machine_is_too_small(service: Service) -> None:
    """At a site whose memory is not known they are not: nothing says that they do not fit."""
    body = site_body("edge-a")
    spark = {**body, "spe": {"kind": "spark"}}
    silent = patch.object(SiteChannel, "status", side_effect=UnreachableError("no agent"))
    (service.config.jar_folders[0] / "merge.py").write_text("import pyspark\n")
    merge = {"job_path": "merge.py", "entry_class": "", "engine": "spark"}
    with silent:
        service.sites.put(site_from_data(spark))
        wanted = composition(job_body("B", "cloud"), job_body("A", **merge))
        report_memory(service, "edge-a", 1.87)
        for request in (DRY, DONE):
            with pytest.raises(InvalidError) as error:
                service.compositions.apply(wanted, request)
            (problem,) = error.value.problems
            assert problem.path == "jobs[1].site", problem
            assert problem.message == (
                "cannot run A at edge-a: its machine has 1.9 GB of memory, and an engine of kind"
                " spark needs one with 4 GB; choose a larger site"
            )
        with pytest.raises(InvalidError) as error:
            service.jobs.post(job("A", **merge), LIMIT_S)
        assert [problem.path for problem in error.value.problems] == ["site"]
        report_memory(service, "edge-a", 3.7)  # a Raspberry Pi of 4 GB
        assert service.compositions.apply(wanted, DRY).plan


def test_a_job_that_runs_where_the_machine_is_too_small_may_be_changed(service: Service) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    with patch.object(MemoryEngine, "machine_memory_mb", 4096, create=True):
        report_memory(service, "edge-a", 2)
        assert service.jobs.put("A", job("A", args=["--x"]), LIMIT_S).job.attempt == 2
        with pytest.raises(InvalidError, match="cannot run B at edge-a: its machine has"):
            service.jobs.post(job("B"), LIMIT_S)
        report_memory(service, "cloud", 2)
        with pytest.raises(InvalidError, match="cannot run A at cloud"):
            service.jobs.put("A", job("A", "cloud"), LIMIT_S)
