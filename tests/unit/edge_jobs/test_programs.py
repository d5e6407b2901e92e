"""The jobs as programs: they judge records as the Java jobs do (DetectionReaderTest), and give what
the plain computation of the traffic application gives."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from speck_link.arguments import ArgumentFaultError, Arguments
from speck_link.job import Job
from speck_link.state import State
from speck_programs.clean import Clean
from speck_programs.detections import read_detection
from speck_programs.local_stats import LocalStats
from speck_programs.stream_clock import StreamClock

from speck.fog.replay import end_markers, expand
from speck.fog.trace import read_trace
from traffic.reference import compare_local, compute_local

TRACE = Path(__file__).parents[3] / "compositions/traffic/trace/trace.csv.gz"
GOOD = (
    '{"id":17,"stream":"A1","time_ms":28800123,"sensor":"A1-03","vehicle":"v1",'
    '"speed_mps":13.2,"length_m":4.5,"type":"car"}'
)


class FakeJob:
    """A job without links; a new one on the same folder goes on with the state."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.arguments = Arguments(words)
        self.counters: Counter[str] = Counter()
        self.state = State(folder)
        self.table = self.state.table

    def save(self) -> None:
        self.state.commit({}, (), ())
        self.state.close()


def open_stats(folder: Path, *words: str) -> tuple[LocalStats, FakeJob]:
    job, stats = FakeJob(folder, "--streams", "A1", "--lateness", "2m", *words), LocalStats()
    stats.open(cast(Job, job))
    return stats, job


def judge(record: str | bytes) -> str:
    counters: Counter[str] = Counter()
    content = record.encode("utf-8", "surrogatepass") if isinstance(record, str) else record
    if read_detection(content, counters) is not None:
        return "good"
    return next(iter(counters))


@pytest.mark.parametrize(
    "record",
    [
        *("", " ", "nonsense", "17,A1,28800123", '{"id":17,"stream"', "[]", "17", "null", '"x"'),
        *("{} {}", '{"speed_mps":NaN}', "\0", "{'id':1}", '{"a":' * 100_000),
    ],
)
def test_malformed(record: str) -> None:
    assert judge(record) == "malformed"


def test_bytes_that_are_no_text_are_malformed() -> None:
    content = bytearray(GOOD.encode())
    content[-4] = 0xC0
    assert judge(bytes(content)) == "malformed"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"id":17', '"id":0'),
        ('"id":17', '"id":1.5'),
        ('"id":17', '"id":"17"'),
        ('"id":17', '"id":99999999999999999999'),
        ('"id":17', '"id":true'),
        ('"id":17', '"number":17'),
        ('"A1"', '""'),
        ('"A1"', "1"),
        ('"A1"', "null"),
        ('"A1"', '"\\ud800"'),
        ("28800123", "-1"),
        ("28800123", '"8:00"'),
        ("28800123", "9223372036854775807"),
        ("13.2", "0"),
        ("13.2", "-3"),
        ("13.2", "70.1"),
        ("13.2", '"fast"'),
        ("13.2", "1e999"),
        ("13.2", "1" + "0" * 400),
        ("13.2", "true"),
        ("4.5", "0"),
        ("4.5", "30.5"),
        ("4.5", "null"),
        ('"car"', "7"),
        ('"v1"', "[]"),
        ('"A1-03"', "{}"),
    ],
)
def test_impossible(old: str, new: str) -> None:
    assert old in GOOD
    assert judge(GOOD.replace(old, new)) == "impossible"


@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        ("{}", "impossible"),
        ('{"end":true}', "impossible"),
        ('{"end":true,"stream":"A1"}', "impossible"),
        ('{"end":"true","stream":"A1","time_ms":5}', "impossible"),
        ('{"end":true,"stream":"A1","time_ms":5}', "good"),
        (GOOD, "good"),
        (GOOD.replace("13.2", "70"), "good"),
        (GOOD.replace("4.5", "30.0"), "good"),
        (GOOD.replace("28800123", "0"), "good"),
    ],
)
def test_others(record: str, verdict: str) -> None:
    assert judge(record) == verdict


def test_no_record_stops_it() -> None:
    chance = random.Random(1)
    for _ in range(5000):
        record = bytearray(GOOD.encode())
        for _ in range(chance.randrange(1, 7)):
            record[chance.randrange(len(record))] = chance.randrange(256)
        judge(bytes(record))


def test_clean_passes_the_rest_on_unchanged(tmp_path: Path) -> None:
    job, clean = FakeJob(tmp_path), Clean()
    clean.open(cast(Job, job))
    records = [GOOD.encode(), b"x", b"{}", b'{"end":true,"stream":"A1","time_ms":5}']
    passed = [each for record in records for each in clean.process(record)]
    assert passed == [records[0], records[3]]
    assert job.counters == {"malformed": 1, "impossible": 1}


def detection(time_ms: int, sensor: str = "A1-01", speed: float = 10.0) -> bytes:
    fields = json.loads(GOOD)
    fields |= {"time_ms": time_ms, "sensor": sensor, "speed_mps": speed, "length_m": 5.0}
    return json.dumps(fields).encode()


def result(start: int, count: int, speed: float, occupancy: float, revision: int) -> bytes:
    return (
        f'{{"site":"A","sensor":"A1-01","window_start_ms":{start},"window_ms":60000,'
        f'"count":{count},"mean_speed_mps":{speed},"occupancy":{occupancy},"revision":{revision}}}'
    ).encode()


def hear(stats: LocalStats, *records: bytes) -> list[bytes]:
    return [each for record in records for each in stats.process(record)]


def test_one_result_for_each_sensor_and_window(tmp_path: Path) -> None:
    stats, _ = open_stats(tmp_path)
    assert hear(stats, detection(0), detection(59_999, speed=20.0)) == []
    # 5 m at 10 m/s and at 20 m/s cover the sensor for 500 ms and 250 ms of 60 s
    assert hear(stats, detection(60_000, "A1-02")) == [result(0, 2, 15.0, 0.0125, 0)]


def test_late_detections_correct_the_result_until_the_window_is_forgotten(tmp_path: Path) -> None:
    stats, job = open_stats(tmp_path)
    hear(stats, detection(1000), detection(60_000, "A1-02"))
    assert hear(stats, detection(2000, speed=20.0)) == [result(0, 2, 15.0, 0.0125, 1)]
    assert job.counters["corrections"] == 1
    hear(stats, detection(180_000, "A1-02"))
    assert hear(stats, detection(1000)) == []
    assert job.counters["late_dropped"] == 1
    assert [key for key, _ in job.table("windows").items()] == ["60000 A1-02", "180000 A1-02"]


def test_windows_and_revisions_survive_a_restart(tmp_path: Path) -> None:
    stats, job = open_stats(tmp_path)
    hear(stats, detection(1000), detection(61_000))
    job.save()
    stats, job = open_stats(tmp_path)
    assert list(stats.tick()) == [], "emitted before"
    assert hear(stats, detection(2000, speed=20.0)) == [result(0, 2, 15.0, 0.0125, 1)]
    assert len(hear(stats, detection(120_000))) == 1


def test_the_whole_trace_gives_the_results_of_the_plain_computation(tmp_path: Path) -> None:
    """With a restart in the middle, and bad records."""
    rows = [row for row in read_trace(TRACE) if row.stream.startswith("A")]
    streams = ",".join(sorted({row.stream for row in rows}))
    payloads = [m.payload for m in (*expand(rows), *end_markers(rows))]
    results: list[dict[str, Any]] = []
    half = len(payloads) // 2
    for part in (payloads[:half], payloads[half:]):
        stats, job = open_stats(tmp_path, "--streams", streams, "--lateness", "10m")
        results += [json.loads(each) for each in hear(stats, *part)]
        job.save()
    comparison = compare_local(compute_local(rows), results)
    assert comparison.equal, str(comparison)
    assert comparison.delivered > 1000


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ((), "argument --streams is missing"),
        (("--streams", ","), "it must name at least one stream"),
        (("--streams", "A1", "--window", "0s"), "it must be > 0"),
        (("--streams", "A1", "--lateness", "soon"), "it must be a duration such as"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, words: tuple[str, ...], fault: str) -> None:
    job = FakeJob(tmp_path, *words)
    with pytest.raises(ArgumentFaultError, match=fault):
        LocalStats().open(cast(Job, job))


def test_the_example_of_the_readme_counts(tmp_path: Path) -> None:
    text = (TRACE.parents[3] / "edge_jobs/README.md").read_text()
    (example,) = re.findall(r"```python\n(from speck_link.*?)```", text, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), scope)
    job, count = FakeJob(tmp_path), scope["Count"]()
    count.open(job)
    passed = [each for record in (b"a,1", b"b,1", b"a,2") for each in count.process(record)]
    assert passed == [b"a,1", b"b,1", b"a,2"]


class Clock:
    """A clock of two streams, whose time one moves."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.counters: Counter[str] = Counter()
        self._table = State(folder).table("clock")
        self.clock = StreamClock(
            ("A1", "A2"), 1000, 10.0, 100_000, self._table, self.counters, lambda: self.now
        )

    def hear(self, stream: str, time_ms: int, *, end: bool = False) -> int | None:
        fields = {"stream": stream, "time_ms": time_ms, "end": True}
        record = {**json.loads(GOOD), **(fields if end else {**fields, "end": False})}
        heard = read_detection(json.dumps(record).encode(), self.counters)
        assert heard is not None
        self.clock.hear(heard)
        self.clock.advance()
        return self.clock.time


def test_time_is_the_least_of_all_streams(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    assert clock.hear("A1", 5000) is None
    assert clock.hear("A2", 3500) == 2999
    assert clock.hear("A3", 9000) == 2999
    assert clock.counters["undeclared"] == 1


def test_a_stream_that_is_silent_holds_time_back_for_a_while(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    clock.hear("A1", 5000)
    clock.now = 9.0
    assert clock.hear("A1", 8000) is None
    clock.now = 10.0
    assert clock.hear("A1", 8000) == 7999


def test_when_all_have_ended_the_last_windows_close(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    clock.hear("A1", 5000)
    clock.hear("A2", 5500)
    clock.hear("A1", 6000, end=True)
    assert clock.hear("A2", 6000, end=True) == 6999
    assert clock.hear("A1", 7000) == 6999, "a new round: all are awaited again"
    assert clock.hear("A2", 9000) == 6999
    assert clock.hear("A1", 9000) == 8999


def test_a_jump_is_believed_when_it_comes_again(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    clock.hear("A2", 1000)
    clock.hear("A1", 1000)
    for _ in range(4):
        clock.hear("A1", 900_000)
    assert clock.counters["jumps"] == 4
    assert clock.hear("A2", 2000) == 999
    clock.hear("A1", 900_000)
    assert clock.counters["jumps"] == 4
    assert clock.hear("A2", 3000) == 2999
