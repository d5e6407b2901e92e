"""What the removal of many jobs costs at a real broker, in packets."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from binders.mqtt.client import BoundedClient
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection
from speck.fog.mosquitto import Mosquitto
from speck.service import Service
from speck.sites.credentials import Credentials
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import DONE, composition, job_body

JOBS = 30
OTHERS = 400
"""Other jobs' readers and sinks, whose numbers are retained at the broker, too."""


@pytest.fixture
def service(tmp_path: Path, mosquitto_server: Mosquitto) -> Iterator[Service]:
    body = site_body("edge-a")
    body["broker"] = {"kind": "mqtt", "address": mosquitto_server.address}
    with memory_service(tmp_path, [body], slots=JOBS) as opened:
        yield opened


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Packets that go out and come, and how often something is sent."""
    counts: Counter[str] = Counter()

    def count(owner: type, method: str, name: str) -> None:
        original = getattr(owner, method)

        def counted(self: object, *args: object, **kwargs: object) -> object:
            counts[name] += 1
            return original(self, *args, **kwargs)

        monkeypatch.setattr(owner, method, counted)

    count(BoundedClient, "_packet_queue", "sent")
    count(BoundedClient, "_packet_handle", "received")
    count(BoundedClient, "_sock_send", "calls of send")
    return counts


def retain_others(server: Mosquitto) -> None:
    """The numbers of jobs that are not speck's, or not of this composition."""
    taken = {"v": 1, "checkpoint": 1, "taken": {"p": {"1": 7}}, "messages": 7}
    sent = {"v": 1, "producer": "p", "epoch": 1, "number": 7, "topic": "t"}
    with Connection(
        server.address, Credentials(), ConnectOptions("others"), time.monotonic() + 60
    ) as connection:
        messages = {f"speck/taken/other-{n}": json.dumps(taken).encode() for n in range(OTHERS)}
        messages |= {f"speck/sent/other-{n}": json.dumps(sent).encode() for n in range(OTHERS)}
        connection.publish_all(messages, retain=True)


def remove_chain(service: Service, counts: Counter[str]) -> Counter[str]:
    """The counts of the removal of a chain of jobs."""
    jobs = [
        job_body(
            f"job-{n}",
            source_topic=f"chain/{n}",
            sink_topic=f"chain/{n + 1}",
            upgrade="stateless",
        )
        for n in range(JOBS)
    ]
    service.compositions.apply(composition(*jobs), DONE)
    counts.clear()
    answer = service.compositions.delete("c", 60, drop_queues=True, drain_limit_s=0)
    assert answer.done
    return Counter(counts)


def test_a_removed_job_costs_a_few_packets_however_many_others_use_the_broker(
    service: Service, mosquitto_server: Mosquitto, counts: Counter[str]
) -> None:
    alone = remove_chain(service, counts)
    retain_others(mosquitto_server)
    among_others = remove_chain(service, counts)
    for cost, others in ((alone, 0), (among_others, 2 * OTHERS)):
        # a release says three things on a connection of its own, a sink is cleared, and the numbers
        # of both are read; those of all others are read once, for the plan, and acknowledged
        assert cost["sent"] - others <= 20 * JOBS
        assert cost["received"] - others <= 20 * JOBS
        # what goes out together is one call of the kernel
        assert cost["calls of send"] <= 10 * JOBS
