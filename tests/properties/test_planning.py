"""For any two compositions: planning converges, applying is idempotent, and nothing is lost."""

from __future__ import annotations

import tempfile
import threading
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from binders.memory import MemoryEngine, Message, World
from binders.memory.queues import Queues
from binders.memory.slots import SlotPool
from speck.binding import Artifact, Submission, Target
from speck.errors import QueuesError
from speck.model.accepted import Accepted
from speck.model.composition import CompositionDescription
from speck.model.engines import ArtifactKind
from speck.model.ids import source_client_id
from speck.model.observation import Sent, Taken
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.differences import differences
from speck.spec.schema import composition_from_data
from tests.drawn_chains import ENDS, SITES, draw_chain
from tests.examples import costly
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import composition, job_body

NAMES = "ABCDE"
TOPICS = [f"T-{n}" for n in range(4)]
DONE = ApplyRequest(wait_s=20, force=True)
PATIENT = costly()


@st.composite
def compositions(draw: st.DrawFn) -> CompositionDescription:
    """Any DAG: topics have a rank, and a job reads a lower rank than it writes."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=5))
    topics = draw(st.permutations(TOPICS))
    jobs = []
    for name in names:
        low, high = sorted(draw(st.lists(st.integers(0, 3), min_size=2, max_size=2, unique=True)))
        jobs.append(
            job_body(
                name,
                draw(st.sampled_from(SITES)),
                source_site=draw(st.sampled_from(SITES)),
                sink_site=draw(st.sampled_from(SITES)),
                source_topic=topics[low],
                sink_topic=topics[high],
                args=draw(st.sampled_from([[], ["--x"]])),
                state=draw(st.sampled_from(["running", "running", "running", "stopped"])),
                upgrade=draw(st.sampled_from(["savepoint", "stateless"])),
            )
        )
    outputs = [
        {
            "site": draw(st.sampled_from(SITES)),
            "topic": draw(st.sampled_from(topics)),
            "client_id": "dashboard",
        }
    ][: draw(st.integers(0, 1))]
    if not jobs:
        return _empty()
    return composition_from_data({"name": "c", "jobs": jobs, "outputs": outputs})


def _empty() -> CompositionDescription:
    return CompositionDescription(name="c", jobs=())


@st.composite
def chains(draw: st.DrawFn, topics: str = "XYZ") -> JsonObject:
    """A chain of 1..4 jobs from `in` on edge-a to `out` on cloud by any way, and sometimes
    another reader of one of its links."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, 4))]
    jobs = draw_chain(draw, names, topics)
    if draw(st.booleans()):
        beside = {
            "job_name": "Side",
            "sink_topic": "side",
            "args": draw(st.sampled_from([[], ["--x"]])),
            "upgrade": draw(st.sampled_from(["savepoint", "stateless"])),
        }
        jobs.append({**draw(st.sampled_from(jobs)), "sink_site": "cloud", **beside})
    return {"name": "c", "jobs": jobs, **ENDS}


@st.composite
def rewirings(draw: st.DrawFn) -> list[JsonObject]:
    """Chains of any of the jobs, in any order, over few links: they change hands often."""
    return draw(st.lists(chains(topics="XY"), min_size=2, max_size=5))


def _apply(service: Service, description: CompositionDescription) -> Accepted:
    try:
        answer = service.compositions.apply(description, DONE)
    except QueuesError:  # of an outside reader, or of a job that is kept stopped
        answer = service.compositions.apply(description, replace(DONE, drop_queues=True))
    assert not answer.under_way, answer
    assert answer.state == "done", service.changes.get(answer.change)
    return answer


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
        again = service.compositions.apply(b, ApplyRequest(dry_run=True, force=True)).plan
        assert again.operations == (), again.text


def _check_is(service: Service, desired: CompositionDescription) -> None:
    """Engines run exactly the wanted jobs once; brokers hold exactly their sessions."""
    prepared = service.compositions._deployer.prepare(desired)
    running = {}
    for site in SITES:
        for incarnation in World.current().engine(f"http://{site}.test:8081").running():
            assert incarnation.submission.job_name not in running
            running[incarnation.submission.job_name] = site
    jobs = {job.job_name: job for job in prepared.composition.jobs}
    assert running == {n: j.site for n, j in jobs.items() if j.state == "running"}
    deployed = service.records.inventory("c").jobs
    for name in running:
        assert differences(deployed[name].job, jobs[name]) == []
    sessions = {
        (name, client_id, *session.topics)
        for name in SITES
        for client_id, session in _broker(name).sessions.items()
    }
    own = service.records.installation
    readers = [(r.link, r.client_id) for r in prepared.composition.readers]
    readers += [(j.source, source_client_id(own, j.job_name, j.source)) for j in jobs.values()]
    assert sessions == {(link.site, client_id, link.topic) for link, client_id in readers}


def _broker(site: str) -> Queues:
    return World.current().broker(f"tcp://{site}.test:1883")


def _engine(site: str) -> SlotPool:
    return World.current().engine(f"http://{site}.test:8081")


@PATIENT
@given(compositions(), compositions())
def test_plans_are_acyclic_and_leave_alone_what_others_run(
    a: CompositionDescription, b: CompositionDescription
) -> None:
    folder, opened = _service()
    with folder, opened as service:
        _let_others_in(Path(folder.name) / "jars" / "test-1.jar")
        _apply(service, a)
        plan = service.compositions.apply(b, ApplyRequest(dry_run=True, force=True)).plan
        order = {o.id: set(o.after) for o in plan.operations}
        list(TopologicalSorter(order).static_order())
        _apply(service, b)
        service.compositions.delete("c", 20, drop_queues=True)
        for site in SITES:
            assert list(_broker(site).sessions) == ["theirs"]
            assert _broker(site).sessions["theirs"].topics == set(TOPICS)
            assert _broker(site).take("theirs") == [b"kept"]
            assert _broker(site).sent == {"theirs-out": Sent("theirs", 1, 1)}
            assert _broker(site).taken == {"theirs": Taken(1, {})}
            running = [job.submission.job_name for job in _engine(site).running()]
            assert running == ["A"]


def _let_others_in(jar: Path) -> None:
    """At each site a job and a session that are not of speck, under names that it uses too."""
    for site in SITES:
        theirs = Submission(
            "f" * 32, "A", Artifact("f" * 64, jar, ArtifactKind.JAR), "x.Job", ("--in", "T-0")
        )
        MemoryEngine(Target(f"http://{site}.test:8081")).submit(theirs)
        for topic in TOPICS:
            _broker(site).subscribe("theirs", topic)
        _broker(site).sessions["theirs"].queue.append(Message(b"kept"))
        _broker(site).sent["theirs-out"] = Sent("theirs", 1, 1)
        _broker(site).taken["theirs"] = Taken(1, {})


@PATIENT
@given(compositions(), compositions())
def test_what_another_composition_deployed_is_left_alone(
    a: CompositionDescription, b: CompositionDescription
) -> None:
    folder, opened = _service()
    with folder, opened as service:
        job = job_body("other", "cloud", source_topic="T-0", sink_topic="elsewhere")
        other = composition(job, name="other")
        _apply(service, other)
        before = service.records.inventory("other")
        for description in (a, b):
            _apply(service, description)
        service.compositions.delete("c", 20, drop_queues=True)
        assert service.records.inventory("other") == before
        assert service.jobs.get("other").state == "running"


@PATIENT
@given(st.lists(chains(), min_size=2, max_size=4))
def test_no_message_is_lost_or_repeated_while_a_chain_is_rewired(steps: list[JsonObject]) -> None:
    folder, opened = _service()
    with folder, opened as service:
        sensor = Sensor()
        for step in steps:
            _apply(service, composition_from_data(step))
            sensor.send(5)
        _check_arrived(sensor)
        assert service.compositions.delete("c", 20, drop_queues=True).done


@PATIENT
@given(rewirings())
def test_no_message_is_lost_or_repeated_that_comes_while_a_chain_is_rewired(
    steps: list[JsonObject],
) -> None:
    folder, opened = _service()
    with folder, opened as service:
        sensor = Sensor()
        for step in steps:
            _apply(service, composition_from_data(step))
            sensor.send(5)
            for site in SITES:  # from now on something comes in at each step of a change
                _engine(site).before = _broker(site).before = sensor
        _check_arrived(sensor)
        assert service.compositions.delete("c", 20, drop_queues=True).done


def _check_arrived(sensor: Sensor) -> None:
    World.current().pump()
    payloads = _broker("cloud").take("checker")
    assert sorted(map(int, payloads)) == list(range(sensor.sent))


class Sensor:
    """Sends numbers to `in`; as a hook of engines and brokers, at each step of a change."""

    def __init__(self) -> None:
        self.sent = 0
        self._lock = threading.Lock()

    def send(self, count: int) -> None:
        with self._lock:
            payloads = [str(self.sent + n).encode() for n in range(count)]
            World.current().feed("tcp://edge-a.test:1883", "in", payloads, "sensor")
            self.sent += count

    def __call__(self, kind: str, subject: str) -> None:
        if kind in _STEPS:
            self.send(1)


_STEPS = {"stop", "submit", "cancel", "save_progress", "reserve", "release", "forget"}
