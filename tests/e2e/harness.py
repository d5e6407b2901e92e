"""A live fog and a served speck as the end-to-end tests see them: HTTP, MQTT, Flink's REST."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from click.testing import CliRunner, Result
from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from binders.mqtt.broker import MqttBroker
from speck.binding import Target, normalise_address
from speck.cli.main import root
from speck.fog.outputs import OutputReader
from speck.fog.sites import Fog
from speck.model.ids import source_client_id
from speck.model.link import Link
from speck.model.values import JsonObject
from tests.waiting import wait_for

DEADLINE_S = 240.0
NOT_RUNNING = {"FINISHED", "CANCELED", "FAILED"}


def job(name: str, site: str, source: str, sink: str, **more: object) -> JsonObject:
    """A job's description; it passes on unless `entry_class` says otherwise."""
    return {
        "job_name": name,
        "site": site,
        "source_topic": source,
        "sink_topic": sink,
        "entry_class": "io.speck.jobs.PassThrough",
        "job_path": "speck-jobs.jar",
        **more,
    }


def composition(
    name: str,
    *jobs: JsonObject,
    inputs: Sequence[tuple[str, str]] = (),
    outputs: Sequence[tuple[str, str, str]] = (),
) -> JsonObject:
    """A composition; inputs are (site, topic), outputs (site, topic, client id)."""
    return {
        "name": name,
        "jobs": list(jobs),
        "inputs": [{"site": site, "topic": topic} for site, topic in inputs],
        "outputs": [
            {"site": site, "topic": topic, "client_id": client_id}
            for site, topic, client_id in outputs
        ],
    }


def change_job(description: JsonObject, job_name: str, **more: object) -> JsonObject:
    """The composition with one job's description changed."""
    jobs = [{**it, **more} if it["job_name"] == job_name else it for it in description["jobs"]]
    return {**description, "jobs": jobs}


def actions(answer: JsonObject) -> dict[str, str]:
    """Job name -> what the plan does with it."""
    return {it["job_name"]: it["action"] for it in answer["plan"]["jobs"]}


class Publisher:
    """Publishes from outside at QoS 1 and waits until the broker has taken everything.

    Messages are numbered as speck's own sinks number theirs, unless it is `plain`. A message
    that no session takes fails the test: it would be lost.
    """

    def __init__(self, broker: str, topic: str, name: str = "", *, plain: bool = False):
        self.topic = topic
        self._stamp = None if plain else f"e2e-{name or topic.replace('/', '-')}/{time.time_ns()}"
        self._number = 0
        self.refused: list[int] = []
        parts = urlsplit(broker)
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        self._client.on_publish = self._acked
        self._client.connect(parts.hostname or "", parts.port or 1883)
        self._client.loop_start()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def send(self, *records: Mapping[str, Any]) -> None:
        """Publish and wait for all acknowledgements."""
        sent = []
        for record in records:
            self._number += 1
            properties = None
            if self._stamp:
                properties = Properties(PacketTypes.PUBLISH)
                properties.UserProperty = ("speck", f"{self._stamp}/{self._number}")
            payload = json.dumps(record)
            sent.append(self._client.publish(self.topic, payload, qos=1, properties=properties))
        for info in sent:
            info.wait_for_publish(DEADLINE_S)
            assert info.is_published(), f"the broker did not take a message on {self.topic}"
        assert not self.refused, f"nobody reads {self.topic}"

    def count(self, numbers: Iterable[int]) -> None:
        """Publish `{"n": number}` of each number."""
        self.send(*({"n": number} for number in numbers))

    def _acked(self, _: Client, __: Any, mid: int, reason: Any, ___: Any) -> None:
        if reason.value == 0x10:
            self.refused.append(mid)


class Flow:
    """Numbers 1, 2, 3 ... published by a thread, some hundred a second, until it is ended."""

    def __init__(self, publisher: Publisher):
        self.sent = 0
        self._publisher = publisher
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._publisher.count(range(self.sent + 1, self.sent + 6))
                self.sent += 5
                self._over.wait(0.02)
        except BaseException as error:
            self._failure = error

    def reach(self, number: int) -> None:
        """Wait until that many are out."""
        wait_for(lambda: self.sent >= number or self._failure is not None, f"{number} messages")

    def go_on(self, more: int = 50) -> None:
        """Wait until so many more are out."""
        self.reach(self.sent + more)

    def end(self) -> int:
        """Stop; how many were sent."""
        self._over.set()
        self._thread.join(DEADLINE_S)
        if self._failure is not None:
            raise self._failure
        return self.sent


@contextmanager
def flowing(publisher: Publisher) -> Iterator[Flow]:
    """A flow that has begun; ended at the latest with the block."""
    flow = Flow(publisher)
    try:
        flow.reach(20)
        yield flow
    finally:
        flow.end()


def numbers_of(*readers: OutputReader) -> list[int]:
    """What readers have got, in order of arrival."""
    return [int(record["n"]) for reader in readers for record in reader.records()]


def await_all(count: int, *readers: OutputReader, timeout_s: float = DEADLINE_S) -> list[int]:
    """Wait until 1..count have all come, and return everything that came."""
    expected = set(range(1, count + 1))
    try:
        wait_for(lambda: expected <= set(numbers_of(*readers)), "all messages", timeout_s)
    except AssertionError:
        missing = sorted(expected - set(numbers_of(*readers)))
        raise AssertionError(f"{len(missing)} of {count} are lost: {missing[:20]} ...") from None
    return numbers_of(*readers)


def await_each_once(count: int, *readers: OutputReader, timeout_s: float = DEADLINE_S) -> None:
    """Wait until 1..count have all come; none may have come twice."""
    payloads = await_all(count, *readers, timeout_s=timeout_s)
    repeated = sorted({number for number in payloads if payloads.count(number) > 1})
    assert not repeated, f"{len(repeated)} of {count} came more than once: {repeated[:20]} ..."
    assert len(payloads) == count


@dataclass
class Speck:
    """One served speck over the fog, and what a test has made there."""

    url: str
    fog: Fog
    jars: Path
    installation: str
    stack: ExitStack = field(default_factory=ExitStack)
    compositions: dict[str, None] = field(default_factory=dict)
    jobs_alone: dict[str, None] = field(default_factory=dict)
    sessions: set[tuple[str, str]] = field(default_factory=set)
    """(broker, client id) of every session that was asked for."""

    # -- HTTP -----------------------------------------------------------------------------

    def call(self, method: str, path: str, *statuses: int, **more: Any) -> JsonObject:
        """One request; its status must be one of `statuses` (200)."""
        answer = requests.request(method, self.url + path, timeout=180, **more)
        assert answer.status_code in (statuses or (200,)), f"{answer.status_code} {answer.text}"
        body: JsonObject = answer.json() if answer.content else {}
        return body

    def apply(self, description: JsonObject, state: str = "done", **params: object) -> JsonObject:
        """Apply a composition and wait for its change, which must end in `state`."""
        self.compositions[description["name"]] = None
        self._note_sessions(description)
        query = {"wait": 120, **params}
        answer = self.call("POST", "/compositions", json=description, params=query)
        if answer["state"] != state:
            change = self.call("GET", f"/changes/{answer['change']}")
            faults = [
                f"{it['kind']} {it['job_name']}: {it['state']} {it['error'] or ''}"
                for it in change["operations"]
            ]
            raise AssertionError("\n".join([f"the change is {answer['state']}", *faults]))
        return answer

    def delete(self, name: str, *, drains: bool = False) -> None:
        """Remove a composition with its queues and wait until it is gone: all of it at once, or
        after its jobs have taken what is queued between them."""
        limit = {} if drains else {"drain_limit": 0}
        params = {"wait": 120, "drop_queues": "true", **limit}
        self.call("DELETE", f"/compositions/{name}", 204, params=params)
        self.compositions.pop(name, None)

    def job(self, name: str) -> JsonObject:
        return self.call("GET", f"/jobs/{name}", params={"fresh": "true"})

    def analyse(self, composition: str, window_s: float) -> JsonObject:
        """An analysis of the composition, which must succeed."""
        request = {"composition": composition, "window_s": window_s}
        started = self.call("POST", "/analyses", 202, json=request)

        def over() -> JsonObject | None:
            analysis = self.call("GET", f"/analyses/{started['id']}")
            return None if analysis["state"] == "running" else analysis

        analysis = wait_for(over, "an analysis", 300)
        assert analysis["state"] == "done", analysis["error"]
        return analysis

    # -- brokers --------------------------------------------------------------------------

    def broker(self, site: str) -> str:
        return next(it.broker_address for it in self.fog.sites() if it.name == site)

    def publisher(self, site: str, topic: str, *, plain: bool = False) -> Publisher:
        """Closed when the test ends."""
        return self.stack.enter_context(Publisher(self.broker(site), topic, plain=plain))

    def reader(self, site: str, topic: str, client_id: str) -> OutputReader:
        """Closed when the test ends; the composition's `outputs` must name it."""
        return self.stack.enter_context(OutputReader(self.broker(site), topic, client_id))

    def reader_id(self, job_name: str, source_site: str, topic: str) -> str:
        """The client id of a job's reader."""
        link = Link(source_site, topic)
        return source_client_id(self.installation, job_name, link)

    def count_taken(self, job_name: str, source_site: str, topic: str) -> int:
        """How many messages a job has taken for good."""
        view = MqttBroker(Target(self.broker(source_site))).view()
        numbers = view.taken.get(self.reader_id(job_name, source_site, topic))
        return numbers.messages if numbers else 0

    def _note_sessions(self, description: JsonObject) -> None:
        sites = {it.engine_address: it.name for it in self.fog.sites()}
        by_broker = {normalise_address(it.broker_address): it.name for it in self.fog.sites()}
        for it in description["jobs"]:
            site = it.get("site") or sites[it["spe_address"].rstrip("/")]
            if "source_broker" in it:
                site = by_broker[normalise_address(it["source_broker"])]
            link = Link(it.get("source_site", site), it["source_topic"])
            broker = self.broker(link.site)
            client_id = source_client_id(self.installation, it["job_name"], link)
            self.sessions.add((broker, client_id))
        for it in description.get("outputs", []):
            if it.get("client_id"):
                broker = it.get("broker") or self.broker(it["site"])
                self.sessions.add((broker, it["client_id"]))

    # -- engines --------------------------------------------------------------------------

    def engine(self, site: str, path: str) -> Any:
        """A bare GET at a site's Flink."""
        address = next(it.engine_address for it in self.fog.sites() if it.name == site)
        answer = requests.get(address.rstrip("/") + path, timeout=20)
        assert answer.ok, answer.text
        return answer.json()

    def running(self) -> list[str]:
        """`site: job` of everything that has not ended on any engine."""
        return [
            f"{site.name}: {it['name']}"
            for site in self.fog.sites()
            for it in self.engine(site.name, "/jobs/overview")["jobs"]
            if it["state"] not in NOT_RUNNING
        ]

    # -- the end of a test ----------------------------------------------------------------

    def clean_up(self) -> None:
        """Remove everything that the test made, and see that nothing is left of it."""
        self.stack.close()
        for name in list(self.compositions):
            requests.delete(
                f"{self.url}/compositions/{name}?wait=120&drop_queues=true&drain_limit=0",
                timeout=180,
            )
        for name in list(self.jobs_alone):
            requests.delete(
                f"{self.url}/jobs/{name}?wait=120&drop_queues=true&drain_limit=0", timeout=180
            )
        leftovers = [
            *self.call("GET", "/compositions")["compositions"],
            *self.call("GET", "/jobs")["jobs"],
            *self.running(),
            *(f"session {it[1]}" for it in sorted(self.sessions) if session_present(*it)),
            *self._numbers_left(),
        ]
        assert not leftovers, f"left behind: {leftovers}"

    def _numbers_left(self) -> list[str]:
        topics: list[str] = []
        for site in self.fog.sites():
            view = MqttBroker(Target(site.broker_address)).view()
            topics += [f"{site.name}: taken/{it}" for it in view.taken]
            topics += [f"{site.name}: sent/{it}" for it in view.sent]
        return topics


def session_present(broker: str, client_id: str) -> bool:
    """Whether the broker keeps a session under this id; it is gone afterwards."""
    answers: list[bool] = []
    parts = urlsplit(broker)
    client = Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTv5)
    client.on_connect = lambda _, __, flags, *___: answers.append(flags.session_present)
    client.connect(parts.hostname or "", parts.port or 1883, clean_start=False)
    deadline = time.monotonic() + DEADLINE_S
    while not answers and time.monotonic() < deadline:
        client.loop(0.1)
    client.disconnect()
    assert answers, f"{broker} did not answer"
    return answers[0]


def run_cli(speck: Speck, *args: str) -> Result:
    """A command of the CLI, which must succeed."""
    result = CliRunner().invoke(root, args, env={"SPECK_SERVER": speck.url})
    assert result.exit_code == 0, f"{result.stdout}\n{result.stderr}"
    return result
