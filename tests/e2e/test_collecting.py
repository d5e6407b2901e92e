"""What the collector writes of real jobs is what they did."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import requests

from speck.config import Config
from speck.fog.service import serving
from speck.fog.sites import Fog
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.reading import read
from speck.metrics.dataset.schema import TABLES
from speck.metrics.rows import MOMENT_MS
from speck.model.values import JsonObject
from speck.service import Service
from tests.e2e.harness import Speck, composition, job
from tests.waiting import wait_for

RECORDS = 400
CPU_US = 5000
SUBSCRIPTION_ID = 2  # bytes of a property that Mosquitto adds to each message of a subscription


@dataclass
class Collected:
    """A served speck of its own, which collects each half second, and its dataset."""

    speck: Speck
    home: Path

    def rates(self, name: str) -> JsonObject:
        jobs = self.speck.call("GET", "/rates")["jobs"]
        rates: JsonObject = next(each for each in jobs if each["job_name"] == name)
        return rates

    def looks(self) -> int:
        """That were answered so far."""
        text = requests.get(f"{self.speck.url}/metrics", timeout=60).text
        (line,) = [it for it in text.splitlines() if it.startswith("speck_collector_polls_total ")]
        return int(float(line.split()[1]))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows in files: all of them, once the service has ended."""
        rows: list[dict[str, Any]] = read(
            LocalStorage(self.home / "metrics"), TABLES[table]
        ).to_pylist()
        return sorted(rows, key=lambda row: row["at"])

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """A job's tasks, once it runs: Flink reports the busy time of a starting task as NaN."""
        rows = [row for row in self.rows("tasks") if row["job_name"] == name]
        return [row for row in rows if row["busy_ms"] is not None]


@pytest.fixture
def sampler(fog: Fog, jars: Path, tmp_path: Path) -> Callable[[], Any]:
    home = tmp_path / "home"
    once = Service(Config(home=home))
    installation = once.records.installation
    once.close()

    @contextmanager
    def running() -> Iterator[Collected]:
        with serving(home, [jars], more={"SPECK_METRICS_S": "0.5"}) as service:
            for body in fog.site_bodies():
                answer = requests.post(f"{service.url}/sites", json=body, timeout=30)
                assert answer.status_code == 201, answer.text
            speck = Speck(service.url, fog, jars, installation)
            try:
                yield Collected(speck, home)
            finally:
                speck.clean_up()

    return running


def packet(topic: str, payload: str) -> int:
    """Bytes of a PUBLISH at QoS 1 without a stamp, as a subscriber gets it (MQTT 5, 3.3)."""
    length = 2 + len(topic) + 2 + 1 + SUBSCRIPTION_ID + len(payload)
    return 1 + (1 if length < 128 else 2) + length


def check_times(rows: list[dict[str, Any]]) -> None:
    """No answer from the engine's cache is a row.

    Flink reads the three times one after another, and its REST API while its cache is filled. It
    books idle and back-pressured time when that ends or every five seconds, and the rest of the
    task's life counts as busy. So these two never shrink, but what is booked between two readings
    is missing in the sum of a row, or counts twice, and the next row may have a smaller one.
    """
    for booked in ("idle_ms", "back_pressured_ms"):
        values = [row[booked] for row in rows]
        assert values == sorted(values), booked
    lived = [row["busy_ms"] + row["idle_ms"] + row["back_pressured_ms"] for row in rows]
    repeated = [ms for before, ms in pairwise(lived) if abs(ms - before) < MOMENT_MS]
    assert repeated == []
    assert lived[-1] > lived[0]


@pytest.mark.long
def test_records_bytes_and_busy_time_are_those_of_the_job(
    sampler: Callable[[], Any],
) -> None:
    burn = job(
        "col-burn",
        "edge-a",
        "col/in",
        "col/mid",
        sink_site="cloud",
        entry_class="io.speck.jobs.Burn",
        args=["--cpu-us", str(CPU_US), "--selectivity", "0.5"],
    )
    rest = job("col-rest", "cloud", "col/mid", "col/out")
    with sampler() as collected:
        speck: Speck = collected.speck
        outputs = [("cloud", "col/out", "e2e-col")]
        speck.apply(composition("col", burn, rest, outputs=outputs))
        # between two looks that tell of its time: what comes then is told from its beginning
        wait_for(lambda: collected.rates("col-burn")["seconds"], "two looks")
        speck.publisher("edge-a", "col/in", plain=True).count(range(1, RECORDS + 1))
        for name, end, records in (
            ("col-rest", "records_in", RECORDS // 2),
            ("col-burn", "records_in", RECORDS),
            ("col-burn", "records_out", RECORDS // 2),
        ):

            def all_told(name: str = name, end: str = end, records: int = records) -> bool:
                return bool(collected.rates(name)[end] == records)

            wait_for(all_told, f"all {end} of {name}")
        wait_for(
            lambda: (
                speck.count_taken("col-rest", "cloud", "col/mid") == RECORDS // 2
                and collected.rates("col-rest")["lag"] == 0
            ),
            "the links' numbers",
        )
        enough = collected.looks() + 4 * 8  # all engines and brokers, several times
        wait_for(lambda: collected.looks() >= enough, "looks at all that")

    tasks = collected.tasks("col-burn")
    first, last = tasks[0], tasks[-1]
    grown = {
        name: last[name] - first[name]
        for name in ("records_in", "records_out", "bytes_in", "busy_ms")
    }
    payloads = [json.dumps({"n": number}) for number in range(1, RECORDS + 1)]
    assert grown["records_in"] == RECORDS
    assert grown["records_out"] == RECORDS // 2
    assert grown["bytes_in"] == sum(packet("col/in", payload) for payload in payloads)
    assert grown["busy_ms"] >= 0.9 * RECORDS * CPU_US / 1000  # a thread is busy while it burns
    after = collected.tasks("col-rest")[-1]
    # with the topic in each packet to a reader, an alias in each from a sink
    more = (len("col/mid") + SUBSCRIPTION_ID - 3) * (RECORDS // 2 - 1)
    assert after["bytes_in"] - last["bytes_out"] == pytest.approx(more, abs=8)
    for row in tasks:
        assert (row["composition"], row["site"], row["attempt"]) == ("col", "edge-a", 1)
        assert (row["is_source"], row["is_sink"], row["subtasks"]) == (True, True, 1)
        assert 0 <= row["host_cpu"] <= 1
    check_times(tasks)

    # all looks: the last ones may have met jobs that were being removed
    counters: dict[tuple[str, str, str], set[tuple[int | None, int | None]]] = {}
    for row in collected.rows("links"):
        end = (row["topic"], row["role"], row["job_name"])
        counters.setdefault(end, set()).add((row["messages"], row["lag"]))
    assert (RECORDS // 2, None) in counters["col/mid", "producer", "col-burn"]
    assert (RECORDS // 2, 0) in counters["col/mid", "reader", "col-rest"]
    assert {lag for _, lag in counters["col/in", "reader", "col-burn"]} == {None}  # no numbers come
    (plan,) = [row for row in collected.rows("plans") if row["job_name"] == "col-burn"]
    assert "burn" in plan["description"]
    assert (plan["source_site"], plan["sink_site"], plan["sink_topic"]) == (
        "edge-a",
        "cloud",
        "col/mid",
    )
    cloud = [row for row in collected.rows("sites") if row["site"] == "cloud"][-1]
    assert (cloud["tier"], cloud["slots_total"]) == ("cloud", 24)
    assert cloud["cpu_ms"] > 0
    assert cloud["memory_bytes"] > cloud["heap_used_bytes"] > 0
    brokers = [row for row in collected.rows("brokers") if row["site"] == "edge-a"]
    assert brokers[-1]["messages_in"] - brokers[0]["messages_in"] >= RECORDS / 2


@pytest.mark.long
def test_a_site_that_was_killed_leaves_a_gap(sampler: Callable[[], Any], fog: Fog) -> None:
    jobs = [job(f"gap-{site}", site, "gap/in", "gap/out") for site in ("edge-c", "edge-b")]
    with sampler() as collected:
        speck: Speck = collected.speck
        speck.apply(composition("gap", *jobs))
        for each in jobs:
            name = str(each["job_name"])
            # its engine tells the busy time of a task only once it runs
            wait_for(lambda: collected.rates(name)["busy"] is not None, "two looks")  # noqa: B023
        fog.kill("edge-c")
        try:
            wait_for(lambda: collected.rates("gap-edge-c")["at"] is None, "the gap")
            rates = collected.rates("gap-edge-c")
            assert (rates["busy"], rates["records_in"], rates["tasks"]) == (None, None, [])
            before = collected.rates("gap-edge-b")["at"]
            wait_for(lambda: collected.rates("gap-edge-b")["at"] > before, "the others")
        finally:
            fog.start("edge-c")
    rows, others = collected.tasks("gap-edge-c"), collected.tasks("gap-edge-b")
    lived = [row["busy_ms"] + row["idle_ms"] for row in rows]
    assert len({row["engine_job_id"] for row in rows}) == 1
    assert lived == sorted(set(lived))
    assert lived[0] > 0, "no zero was made up"
    assert rows[-1]["at"] < others[-1]["at"]
