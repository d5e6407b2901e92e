"""The loop that collects what sites do, over memory sites."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from speck.clock import SystemClock
from speck.errors import UnreachableError
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.reading import hold_files
from speck.metrics.dataset.schema import TABLES
from speck.metrics.dataset.writer import Writer
from speck.metrics.recorder import MAINTENANCE_RETRY_S, Recorder
from speck.metrics.sampler import PLANS_EVERY_S, Sampler
from speck.model.measurement import BrokerMeasures, JobMeasure, TaskMeasure
from speck.model.site import AgentReport
from speck.service import Service
from speck.sites.poll_scheduler import PollScheduler
from tests.calibrating import put_calibration
from tests.dataset_rows import FullDisk
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import DONE, LIMIT_S, broker, composition, engine, job_body
from tests.waiting import wait_for

SITES = ("edge-a", "edge-b", "cloud")


class Time(SystemClock):
    """The machine's time, and as much more as the test has let pass."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return super().monotonic() + self.passed


@dataclass
class Collected:
    """A service, and a collector of which the test says when it looks."""

    service: Service
    time: Time
    root: Path
    disk: FullDisk = field(default_factory=FullDisk)
    beats: dict[str, tuple[AgentReport, datetime | None]] = field(default_factory=dict)
    beginning: set[str] = field(default_factory=set)
    at_once: int = 32
    scheduler: PollScheduler = field(init=False)
    recorder: Recorder = field(init=False)
    sampler: Sampler = field(init=False)

    def __post_init__(self) -> None:
        self.disk.full = False
        self.scheduler = PollScheduler(self.time, at_once=lambda: self.at_once)
        writer = Writer(LocalStorage(self.root, self.disk), clock=self.time)
        self.recorder = Recorder(self.service.records, self.time, writer, 30)
        self.sampler = Sampler(
            self.service.records,
            self.service.polling,
            self.scheduler,
            self.time,
            self.recorder,
            0,
            lambda site: self.beats.get(site, (AgentReport(), None)),
            lambda _: self.beginning,
            lambda _: False,
        )

    def look(self, after: float = 5.0) -> None:
        """Look, and wait until all that can end has ended."""
        self.time.passed += after
        before = self.sampler.polls + self.sampler.gaps
        self.sampler.poll()
        total = before + 2 * len(self.service.records.sites.all())
        wait_for(lambda: self.sampler.polls + self.sampler.gaps >= total)

    def rows(self, table: str) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq

        self.recorder.flush()
        rows = [
            row
            for file in sorted((self.root / table).rglob("part-*.parquet"))
            for row in pq.ParquetFile(file).read().to_pylist()
        ]
        assert all(row.keys() == set(TABLES[table].schema.names) for row in rows)
        return sorted(rows, key=lambda row: row["at"])

    def job_id(self, name: str) -> str:
        return next(
            each.engine_job_id
            for (_, job_name), each in self.service.records.incarnations.all().items()
            if job_name == name
        )

    def works(self, name: str, site: str, records: int, busy_ms: float, idle_ms: float) -> None:
        """Let an engine tell this of a job."""
        task = TaskMeasure(
            "v", "x", 0, 1, True, True, busy_ms, idle_ms, 0.0, records, records // 2, 0, 0
        )
        job_id = self.job_id(name)
        engine(site).measures[job_id] = JobMeasure(job_id, (task,), restarts=0)


@pytest.fixture
def collected(tmp_path: Path) -> Iterator[Collected]:
    time = Time()
    with memory_service(tmp_path, map(site_body, SITES), clock=time) as service:
        jobs = (job_body("A", "edge-a", sink_site="cloud", sink_topic="mid"),
                job_body("B", "cloud", source_topic="mid"))  # fmt: skip
        service.compositions.apply(composition(*jobs), DONE)
        collected = Collected(service, time, tmp_path / "metrics")
        yield collected
        collected.scheduler.close()
        collected.sampler.close()


def test_a_look_makes_rows_of_all_tables(collected: Collected) -> None:
    collected.works("A", "edge-a", 100, 10.0, 90.0)
    broker("edge-b").measures = BrokerMeasures(messages_in=7)
    collected.look()
    assert {(row["job_name"], row["records_in"]) for row in collected.rows("tasks")} == {
        ("A", 100),
        ("B", 0),
    }
    assert {row["site"] for row in collected.rows("sites")} == set(SITES)
    (edge_b,) = [row for row in collected.rows("brokers") if row["site"] == "edge-b"]
    assert (edge_b["messages_in"], edge_b["messages_out"]) == (7, None)
    ends = {(row["topic"], row["role"], row["job_name"]) for row in collected.rows("links")}
    assert ends == {
        ("A-in", "reader", "A"),
        ("mid", "producer", "A"),
        ("mid", "reader", "B"),
        ("B-out", "producer", "B"),
    }
    assert {row["job_name"] for row in collected.rows("plans")} == {"A", "B"}


def test_restarts_are_those_of_the_last_look_though_no_task_tells_anything(
    collected: Collected,
) -> None:
    collected.works("A", "edge-a", 100, 10.0, 90.0)
    collected.look()
    job_id = collected.job_id("A")
    engine("edge-a").measures[job_id] = JobMeasure(job_id, (), restarts=5)
    collected.look()
    rates = {job.job_name: job.rates.restarts for job in collected.sampler.rate_jobs()}
    assert rates["A"] == 5


def test_a_site_that_does_not_answer_leaves_a_gap_and_holds_up_nobody(
    collected: Collected,
) -> None:
    collected.works("A", "edge-a", 100, 10.0, 90.0)
    collected.look()
    engine("edge-a").unreachable = True
    broker("edge-a").unreachable = True
    collected.works("A", "edge-a", 200, 20.0, 180.0)
    collected.works("B", "cloud", 50, 20.0, 180.0)
    collected.look()
    assert [row["records_in"] for row in collected.rows("tasks") if row["job_name"] == "A"] == [100]
    assert [row["records_in"] for row in collected.rows("tasks") if row["job_name"] == "B"] == [
        0,
        50,
    ]
    assert len([row for row in collected.rows("sites") if row["site"] == "edge-a"]) == 1
    jobs = {job.job_name: job.rates for job in collected.sampler.rate_jobs()}
    assert (jobs["A"].at, jobs["A"].in_rate, jobs["A"].records_in) == (None, None, None)
    assert jobs["B"].records_in == 50


def test_a_site_that_is_slow_misses_looks_and_holds_up_nobody(collected: Collected) -> None:
    has_begun, let_go = threading.Event(), threading.Event()

    def wait(kind: str, _: str) -> None:
        if kind == "measure" and not let_go.is_set():
            has_begun.set()
            let_go.wait(LIMIT_S)

    engine("edge-a").before = wait
    sampler = collected.sampler
    for number in (1, 2):
        collected.time.passed += 11
        sampler.poll()
        assert has_begun.wait(LIMIT_S)
        wait_for(lambda: sampler.polls == 5 * number)  # noqa: B023
    assert sampler.gaps == 1
    let_go.set()
    wait_for(lambda: sampler.gaps == 2)  # it came too late to tell of when it began
    names = [row["site"] for row in collected.rows("sites")]
    assert sorted(names) == ["cloud", "cloud", "edge-b", "edge-b"]
    collected.look()
    assert "edge-a" in {row["site"] for row in collected.rows("sites")}


def test_the_rows_of_a_poll_that_waited_for_a_thread_have_the_time_when_it_began(
    collected: Collected,
) -> None:
    sampler = collected.sampler
    collected.scheduler._pool = ThreadPoolExecutor(1)
    has_begun, let_go = threading.Event(), threading.Event()
    collected.scheduler._pool.submit(lambda: (has_begun.set(), let_go.wait(LIMIT_S)))
    assert has_begun.wait(LIMIT_S)
    due = collected.time.now()
    sampler.poll()
    collected.time.passed += 11
    let_go.set()
    wait_for(lambda: sampler.gaps + sampler.polls == 6)
    assert sampler.polls == 6
    assert {row["at"] >= due + timedelta(seconds=11) for row in collected.rows("sites")} == {True}


def test_many_sites_that_do_not_answer_hold_up_nobody(tmp_path: Path) -> None:
    names = [f"edge-{number}" for number in range(80)]
    starts, let_go = threading.Semaphore(0), threading.Event()

    def wait(*_: str) -> None:
        starts.release()
        let_go.wait(LIMIT_S)

    with memory_service(tmp_path, map(site_body, [*names, "zoo"])) as service:
        for name in names:
            engine(name).before = wait
        collected = Collected(service, Time(), tmp_path / "metrics")
        try:
            collected.sampler.poll()
            for _ in names:
                assert starts.acquire(timeout=LIMIT_S)
            wait_for(lambda: "zoo" in {row["site"] for row in collected.rows("sites")})
            assert collected.sampler.gaps == 0
        finally:
            let_go.set()
            collected.sampler.close()


def test_looks_at_many_sites_are_begun_a_few_at_a_time(collected: Collected) -> None:
    """Each waits for another one that goes on; a third would be seen."""
    collected.at_once = 2
    both, lock = threading.Barrier(2, timeout=LIMIT_S), threading.Lock()
    at_once: list[int] = [0]

    def meet(kind: str, _: str) -> None:
        if kind == "measure":
            with lock:
                at_once.append(at_once[-1] + 1)
            both.wait()
            both.wait()
            with lock:
                at_once.append(at_once[-1] - 1)

    for name in SITES:
        engine(name).before = broker(name).before = meet
    collected.look()
    assert (max(at_once), at_once[-1]) == (2, 0)
    assert (collected.sampler.polls, collected.sampler.gaps) == (2 * len(SITES), 0)


def test_what_did_not_answer_the_last_time_takes_nobodys_turn(
    collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speck.sites.poll_scheduler.PATIENCE_S", LIMIT_S)
    collected.at_once = 1
    let_go = threading.Event()

    def silent(kind: str, _: str) -> None:
        if kind == "measure":
            if collected.time.passed > 6:
                let_go.wait(LIMIT_S)
            raise UnreachableError("no answer")

    for name in ("cloud", "edge-a"):  # those before edge-b
        engine(name).before = broker(name).before = silent
    collected.look()
    assert collected.sampler.gaps == 4
    collected.time.passed += 5
    collected.sampler.poll()
    wait_for(lambda: collected.sampler.polls == 4)
    let_go.set()
    wait_for(lambda: collected.sampler.gaps == 8)


def test_who_did_not_get_a_turn_misses_a_look_and_is_the_first_in_the_next(
    collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speck.sites.poll_scheduler.PATIENCE_S", LIMIT_S)
    hurried = Collected(collected.service, Time(), collected.root / "hurried")
    hurried.sampler._every_s, hurried.at_once = 0.05, 1
    let_go, order = threading.Event(), list[str]()

    def wait(kind: str, at: str) -> None:
        if kind == "measure":
            order.append(at)
            let_go.wait(LIMIT_S)

    for name in SITES:
        engine(name).before = lambda kind, _, name=name: wait(kind, f"engine of {name}")
        broker(name).before = lambda kind, _, name=name: wait(kind, f"broker of {name}")
    try:
        hurried.sampler.poll()
        wait_for(lambda: len(order) == 1)
        assert hurried.sampler.gaps == 2 * len(SITES) - 1
        let_go.set()
        wait_for(lambda: hurried.sampler.polls == 1)
        while len(order) < 2 * len(SITES):
            hurried.sampler.poll()
        assert len(set(order[: 2 * len(SITES)])) == 2 * len(SITES)
    finally:
        let_go.set()
        hurried.sampler.close()


def test_nobody_waits_for_a_turn_while_it_ends(
    collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speck.sites.poll_scheduler.PATIENCE_S", LIMIT_S)
    ended = Collected(collected.service, Time(), collected.root / "ended", at_once=0)
    ended.sampler._every_s = LIMIT_S  # so long it would wait for a turn
    looking = threading.Thread(target=ended.sampler.poll)
    looking.start()
    looking.join(0.3)
    assert looking.is_alive()
    ended.sampler.close()
    looking.join(LIMIT_S / 2)
    assert not looking.is_alive()
    assert ended.sampler.polls == 0


def test_rates_are_those_between_the_last_two_looks_that_told_something(
    collected: Collected,
) -> None:
    collected.works("A", "edge-a", 100, 1000.0, 9000.0)
    collected.look()
    collected.works("A", "edge-a", 300, 3000.0, 11000.0)
    collected.look()
    collected.look()  # nothing new
    job = next(job for job in collected.sampler.rate_jobs() if job.job_name == "A")
    assert (job.rates.in_rate, job.rates.out_rate, job.rates.busy) == (
        50.0,
        25.0,
        0.5,
    )
    assert (job.composition, job.site, job.rates.seconds) == (
        "c",
        "edge-a",
        4.0,
    )
    assert len([row for row in collected.rows("tasks") if row["job_name"] == "A"]) == 2


def test_a_plan_is_written_once_and_again_each_hour(collected: Collected) -> None:
    collected.look()
    collected.look()
    assert len(collected.rows("plans")) == 2
    collected.look(after=PLANS_EVERY_S)
    assert len(collected.rows("plans")) == 4


def test_the_machine_is_as_its_agent_says_while_that_is_fresh(collected: Collected) -> None:
    now = collected.time.now()
    collected.beats["edge-a"] = (AgentReport(cpu=0.75, cores=4), now + timedelta(seconds=5))
    collected.beats["cloud"] = (AgentReport(cpu=0.75, cores=4), now - timedelta(minutes=5))
    collected.look()
    hosts = {row["site"]: (row["host_cpu"], row["host_cores"]) for row in collected.rows("sites")}
    assert hosts == {"edge-a": (0.75, 4), "cloud": (None, None), "edge-b": (None, None)}


def test_a_calibrated_site_has_its_cores_and_pace(collected: Collected) -> None:
    service = collected.service
    service.records.write(put_calibration(service, "edge-a", 0.25, 0.5))
    collected.look()
    capacities = {row["site"]: (row["cores"], row["core_speed"]) for row in collected.rows("sites")}
    assert capacities == {"edge-a": (0.25, 0.5), "cloud": (None, None), "edge-b": (None, None)}


def test_a_disk_that_takes_nothing_is_told_once_and_tried_again(collected: Collected) -> None:
    collected.look()
    collected.disk.full = True
    collected.recorder.flush()
    collected.look()
    collected.recorder.flush()
    messages = [e.message for e in collected.service.records.events.after() if e.kind == "metrics"]
    assert len(messages) == 1
    assert messages[0].startswith("cannot write metrics of ")
    collected.disk.full = False
    assert len(collected.rows("sites")) == 6
    messages = [e.message for e in collected.service.records.events.after() if e.kind == "metrics"]
    assert messages[1:] == ["metrics are written again"]


def test_the_dataset_is_tended_soon_after_somebody_has_read_it(collected: Collected) -> None:
    """Else analyses that follow each other would keep old days for ever."""
    old = collected.root / "sites" / "day=2020-01-01"
    old.mkdir(parents=True)

    def maintain() -> None:
        collected.recorder.start_maintenance()
        assert collected.recorder._maintenance is not None
        collected.recorder._maintenance.result(LIMIT_S)

    with hold_files(LocalStorage(collected.root)):
        maintain()
    assert old.exists()
    collected.time.passed += MAINTENANCE_RETRY_S + 1
    maintain()
    assert not old.exists()


def test_jobs_that_a_change_begins_are_left_out(collected: Collected) -> None:
    collected.works("A", "edge-a", 100, 10.0, 90.0)
    collected.beginning.add(collected.job_id("A"))
    collected.look()
    assert {row["job_name"] for row in collected.rows("tasks")} == {"B"}
    assert {row["site"] for row in collected.rows("sites")} == set(SITES)
    collected.beginning.clear()
    collected.look()
    assert {row["job_name"] for row in collected.rows("tasks")} == {"A", "B"}


def test_a_site_that_is_removed_is_forgotten(collected: Collected) -> None:
    collected.look()
    latest = collected.sampler.latest
    assert all(latest.engine(site) for site in SITES)
    collected.service.sites.delete("edge-b")
    collected.look()
    assert [site for site in SITES if latest.engine(site)] == ["edge-a", "cloud"]


@pytest.mark.parametrize("every_s", [0.0, 0.01])
def test_it_looks_by_itself_unless_that_is_switched_off(tmp_path: Path, every_s: float) -> None:
    with memory_service(tmp_path, [site_body("edge-a")]) as service:
        writer = Writer(LocalStorage(tmp_path / "metrics"))
        sampler = Sampler(
            service.records,
            service.polling,
            service.scheduler,
            SystemClock(),
            Recorder(service.records, SystemClock(), writer, 30),
            every_s,
            lambda _: (AgentReport(), datetime.now(UTC)),
            lambda _: (),
            lambda _: False,
        )
        sampler.start()
        if sampler.on:
            wait_for(lambda: sampler.polls >= 4)
        sampler.close()
        assert (sampler.polls > 0) is (every_s > 0)
        assert writer.waiting == 0
