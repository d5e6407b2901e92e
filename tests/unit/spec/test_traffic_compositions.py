"""compositions/traffic: the 17 jobs of the paper, in the fog and in the cloud, and the trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from speck.fog.trace import read_trace
from speck.model.values import is_name
from speck.spec.schema import load_composition
from speck.spec.topology import check
from traffic.reference import count_valid

TRAFFIC = Path(__file__).resolve().parents[3] / "compositions" / "traffic"
STREAMS = ["A1", "A2", "A3", "B1", "B2", "B3", "C1", "C2", "C3", "C4"]
Link = tuple[str, str]  # site of the broker, topic


def load(name: str) -> dict[str, Any]:
    content = yaml.safe_load((TRAFFIC / name).read_text())
    assert isinstance(content, dict)
    return content


def source(job: dict[str, Any]) -> Link:
    return job.get("source_site", job["site"]), job["source_topic"]


def sink(job: dict[str, Any]) -> Link:
    return job.get("sink_site", job["site"]), job["sink_topic"]


def links(ports: list[dict[str, Any]]) -> set[Link]:
    return {(port["site"], port["topic"]) for port in ports}


def by_name(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {job["job_name"]: job for job in content["jobs"]}


def arguments(job: dict[str, Any]) -> Iterator[tuple[str, str]]:
    args = job.get("args", [])
    return zip(args[::2], args[1::2], strict=True)


@pytest.fixture(params=["fog.yaml", "cloud.yaml", "fog-changed.yaml"])
def content(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


def test_there_are_the_17_jobs_of_the_paper(content: dict[str, Any]) -> None:
    classes = Counter(job["entry_class"].rsplit(".", 1)[1] for job in content["jobs"])
    assert classes == {"Clean": 10, "Forward": 3, "LocalStats": 3, "Merge": 1}
    assert len(by_name(content)) == 17
    assert all(is_name(name) for name in by_name(content))


SPARK = ["fog-spark.yaml", "fog-spark-changed.yaml"]


def over_kafka(job: dict[str, Any]) -> dict[str, Any]:
    """The job, with the names of topics that Kafka has at the cloud."""
    named = dict(job)
    for end, (site, topic) in (("source", source(job)), ("sink", sink(job))):
        if site == "cloud":
            named[f"{end}_topic"] = topic.replace("/", ".")
    return named


@pytest.mark.parametrize("name", SPARK)
def test_the_same_jobs_run_on_three_engines_and_two_brokers(name: str) -> None:
    jobs, others = by_name(load(name)), by_name(load(name.replace("-spark", "")))
    assert jobs.keys() == others.keys()
    merge = jobs.pop("merge")
    assert (merge["engine"], merge["job_path"]) == ("spark", "merge.py")
    expected = over_kafka(others.pop("merge"))
    assert (source(merge), sink(merge)) == (source(expected), sink(expected))
    for job_name, other in others.items():
        job, expected = jobs[job_name], over_kafka(other)
        if job["site"] == "edge-c":
            assert (job.pop("engine"), job.pop("job_path")) == ("process", "speck-programs.pyz")
            name_in_java = expected.pop("entry_class").rsplit(".", 1)[1]
            entry = job.pop("entry_class").removeprefix("speck_programs.")
            assert entry.replace("_", "") == name_in_java.lower()
            del expected["job_path"]
        assert job == expected


@pytest.mark.parametrize(
    "name", ["fog.yaml", "cloud.yaml", "fog-changed.yaml", "fog-direct.yaml", *SPARK]
)
def test_it_loads_and_nothing_is_to_be_said_about_its_graph(name: str) -> None:
    description = load_composition((TRAFFIC / name).read_bytes(), "application/yaml")
    assert description.name == "traffic"
    assert check(description) == ([], [])


def test_every_topic_is_written_and_read_by_someone(content: dict[str, Any]) -> None:
    written = {sink(job) for job in content["jobs"]} | links(content["inputs"])
    read = {source(job) for job in content["jobs"]} | links(content["outputs"])
    assert written == read


def test_the_inputs_are_the_streams_at_their_own_sites(content: dict[str, Any]) -> None:
    expected = {(f"edge-{stream[0].lower()}", f"traffic/{stream}") for stream in STREAMS}
    assert links(content["inputs"]) == expected


def test_every_output_reserves_a_session_of_its_own(content: dict[str, Any]) -> None:
    names = [port["client_id"] for port in content["outputs"]]
    assert sorted(names) == ["demo-global", "demo-local-a", "demo-local-b", "demo-local-c"]


def test_the_declared_streams_are_those_that_come_in(content: dict[str, Any]) -> None:
    jobs = by_name(content)
    assert dict(arguments(jobs["merge"]))["--streams"].split(",") == STREAMS
    for site in "ABC":
        args = dict(arguments(jobs[f"local-stats-{site.lower()}"]))
        assert args["--site"] == site
        assert args["--streams"].split(",") == [s for s in STREAMS if s[0] == site]


def test_in_the_fog_only_the_merge_runs_in_the_cloud() -> None:
    at_cloud = [job["job_name"] for job in load("fog.yaml")["jobs"] if job["site"] == "cloud"]
    assert at_cloud == ["merge"]


def test_in_the_cloud_deployment_every_engine_is_the_clouds() -> None:
    jobs = load("cloud.yaml")["jobs"]
    assert {job["site"] for job in jobs} == {"cloud"}
    assert {sink(job)[0] for job in jobs} == {"cloud"}


def test_the_changed_fog_changes_three_jobs_and_no_link() -> None:
    before, after = by_name(load("fog.yaml")), by_name(load("fog-changed.yaml"))
    assert sorted(name for name in before if before[name] != after[name]) == [
        "clean-a2",
        "forward-b",
        "local-stats-c",
    ]
    assert after["forward-b"]["site"] == "cloud"
    for name, job in before.items():
        assert (source(job), sink(job)) == (source(after[name]), sink(after[name]))


def test_the_trace_is_large_enough_and_in_time_order() -> None:
    path = TRAFFIC / "trace" / "trace.csv.gz"
    rows = read_trace(path)
    times = [row.detection.time_ms for row in rows if row.detection]
    assert path.stat().st_size <= 1_000_000
    assert times == sorted(times)
    assert times[-1] - times[0] <= 3_600_000
    assert sorted({row.stream for row in rows}) == STREAMS
    assert {row.detection.type for row in rows if row.detection and row.valid} == {
        "car",
        "truck",
        "bus",
        "motorcycle",
    }
    assert (count_valid(rows), len(rows) - count_valid(rows)) == (25_404, 129)


def test_the_trace_keeps_no_time_stamp_so_that_it_can_be_made_again() -> None:
    head = (TRAFFIC / "trace" / "trace.csv.gz").read_bytes()[:10]
    assert head[4:8] == b"\0\0\0\0"


def test_the_direct_fog_has_a_hop_less_to_the_merge_and_no_slow_engine_on_it() -> None:
    fog, direct = load("fog.yaml"), load("fog-direct.yaml")
    assert direct["inputs"] == fog["inputs"]
    assert direct["outputs"] == fog["outputs"]
    jobs, same = by_name(direct), by_name(fog)
    shared = [name for name in same if not name.startswith("forward-")]
    assert [jobs.pop(name) for name in shared] == [same[name] for name in shared]
    assert len(jobs) == len(STREAMS)
    for job in jobs.values():
        assert (job["site"], sink(job)) == ("cloud", ("cloud", "traffic/detections"))
    assert {source(job) for job in jobs.values()} == links(direct["inputs"])
    written = {sink(job) for job in direct["jobs"]} | links(direct["inputs"])
    assert written == {source(job) for job in direct["jobs"]} | links(direct["outputs"])
