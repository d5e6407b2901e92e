"""For any two compositions: planning converges, applying is idempotent, and nothing is lost."""

from __future__ import annotations

import tempfile
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from binders.memory import World
from speck.fingerprint import fingerprint
from speck.model import CompositionDescription, JsonObject
from speck.schema import composition_from_data
from speck.service import Service
from speck.service.compositions import Request
from tests.memory_fog import memory_service, site_body

SITES = ("edge-a", "edge-b", "cloud")
NAMES = "ABCDE"
DONE = Request(wait_s=20)
PATIENT = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def compositions(draw: st.DrawFn) -> CompositionDescription:
    """Any DAG: topics have a rank, and a job reads a lower rank than it writes."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=5))
    topics = draw(st.permutations([f"T-{n}" for n in range(4)]))
    jobs = []
    for name in names:
        low, high = sorted(draw(st.lists(st.integers(0, 3), min_size=2, max_size=2, unique=True)))
        jobs.append(
            {
                "job_name": name,
                "site": draw(st.sampled_from(SITES)),
                "source_site": draw(st.sampled_from(SITES)),
                "sink_site": draw(st.sampled_from(SITES)),
                "source_topic": topics[low],
                "sink_topic": topics[high],
                "entry_class": "package.ExampleJob",
                "job_path": "test-1.jar",
                "args": draw(st.sampled_from([[], ["--x"]])),
                "state": draw(st.sampled_from(["running", "running", "running", "stopped"])),
                "upgrade": draw(st.sampled_from(["savepoint", "stateless"])),
            }
        )
    return composition_from_data({"name": "c", "jobs": jobs}) if jobs else _empty()


def _empty() -> CompositionDescription:
    return CompositionDescription(name="c", jobs=())


@st.composite
def chains(draw: st.DrawFn) -> JsonObject:
    """A chain of 1..4 jobs from `in` on edge-a to `out` on cloud by any way."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, 4))]
    ends = [("edge-a", "in")]
    for index in range(len(names) - 1):
        ends.append((draw(st.sampled_from(SITES)), draw(st.sampled_from("XYZ")) + str(index)))
    ends.append(("cloud", "out"))
    jobs = [
        {
            "job_name": name,
            "site": draw(st.sampled_from(SITES)),
            "source_site": source[0],
            "source_topic": source[1],
            "sink_site": sink[0],
            "sink_topic": sink[1],
            "entry_class": "package.ExampleJob",
            "job_path": "test-1.jar",
            "args": draw(st.sampled_from([[], ["--x"]])),
        }
        for name, source, sink in zip(names, ends[:-1], ends[1:], strict=True)
    ]
    outputs = [{"site": "cloud", "topic": "out", "client_id": "checker"}]
    return {"name": "c", "jobs": jobs, "outputs": outputs, "inputs": _INPUTS}


_INPUTS = [{"site": "edge-a", "topic": "in"}]


def _apply(service: Service, description: CompositionDescription) -> JsonObject:
    answer = service.compositions.apply(description, DONE)
    assert answer.status == 200, answer
    assert answer.body["state"] == "done", service.changes.get(answer.body["change"])
    return answer.body


def _service() -> Any:
    folder = tempfile.TemporaryDirectory()
    return folder, memory_service(Path(folder.name), [site_body(name) for name in SITES])


@PATIENT
@given(compositions(), compositions())
def test_applying_b_after_a_gives_b(a: CompositionDescription, b: CompositionDescription) -> None:
    folder, opened = _service()
    with folder, opened as service:
        for description in (a, b):
            if description.jobs or description is b:
                _apply(service, description)
        _check_is(service, b)
        again = service.compositions.apply(b, Request(dry_run=True)).body["plan"]
        assert again["operations"] == [], again["text"]


def _check_is(service: Service, wanted: CompositionDescription) -> None:
    """Engines run exactly the wanted jobs once; brokers hold exactly their sessions."""
    prepared = service.compositions._deployer.prepare("c", wanted)
    running = {}
    for address in (f"http://{name}.test:8081" for name in SITES):
        for incarnation in World.current().engine(address).running():
            assert incarnation.submission.job_name not in running
            running[incarnation.submission.job_name] = address
    jobs = {job.job_name: job for job in prepared.composition.jobs}
    assert running == {n: j.spe_address for n, j in jobs.items() if j.state == "running"}
    deployed = service.records.inventory("c").jobs
    for name in running:
        assert fingerprint(deployed[name].job) == fingerprint(jobs[name])
    sessions = {
        (f"tcp://{name}.test:1883", client_id)
        for name in SITES
        for client_id in World.current().broker(f"tcp://{name}.test:1883").sessions
    }
    kept = {(s.link.broker, s.client_id) for s in service.records.inventory("c").sessions}
    assert sessions == kept


@PATIENT
@given(compositions(), compositions())
def test_plans_are_acyclic_and_touch_the_inventory_only(
    a: CompositionDescription, b: CompositionDescription
) -> None:
    folder, opened = _service()
    with folder, opened as service:
        _apply(service, a)
        made = service.compositions.apply(b, Request(dry_run=True)).body["plan"]
        order = {o["id"]: set(o["after"]) for o in made["operations"]}
        list(TopologicalSorter(order).static_order())
        known = {job.job_name for job in (*a.jobs, *b.jobs)}
        assert {o["job_name"] for o in made["operations"] if o["job_name"]} <= known


@PATIENT
@given(compositions(), compositions())
def test_what_another_composition_deployed_is_left_alone(
    a: CompositionDescription, b: CompositionDescription
) -> None:
    folder, opened = _service()
    with folder, opened as service:
        other = composition_from_data(
            {
                "name": "other",
                "jobs": [
                    {
                        "job_name": "other",
                        "site": "cloud",
                        "source_topic": "T-0",
                        "sink_topic": "elsewhere",
                        "entry_class": "package.ExampleJob",
                        "job_path": "test-1.jar",
                    }
                ],
            }
        )
        _apply(service, other)
        before = service.records.inventory("other")
        for description in (a, b):
            _apply(service, description)
        service.compositions.delete("c", 20)
        assert service.records.inventory("other") == before
        assert service.jobs.get("other")["state"] == "running"


@PATIENT
@given(st.lists(chains(), min_size=2, max_size=4))
def test_no_message_is_lost_or_repeated_while_a_chain_is_rewired(steps: list[JsonObject]) -> None:
    folder, opened = _service()
    with folder, opened as service:
        world = World.current()
        sent = 0
        for step in steps:
            _apply(service, composition_from_data(step))
            payloads = [str(sent + n).encode() for n in range(5)]
            world.feed("tcp://edge-a.test:1883", "in", payloads, "sensor")
            sent += 5
        world.pump()
        got = world.broker("tcp://cloud.test:1883").take("checker")
        assert sorted(map(int, got)) == list(range(sent))
