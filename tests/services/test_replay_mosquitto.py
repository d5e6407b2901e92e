"""The replay against real brokers: what arrives, what waits, what a broker's death does to it."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from speck.errors import BrokerRefusedError, TransientError
from speck.fog import mosquitto
from speck.fog.publisher import ReplayOptions
from speck.fog.replay import Replay, StreamProgress, Summary, replay
from speck.fog.trace import Row, read_trace
from tests.waiting import wait_for
from traffic.reference import count_valid

DEADLINE_S = 120.0
TRACE = Path(__file__).resolve().parents[2] / "compositions/traffic/trace/trace.csv.gz"


@dataclass
class Subscriber:
    """One persistent session on `traffic/#` of one broker; keeps all messages, in order."""

    broker: mosquitto.Mosquitto
    client_id: str = "reader"
    received: list[tuple[str, str, bytes]] = field(default_factory=list)  # topic, header, payload

    def __enter__(self) -> Subscriber:
        session = Properties(PacketTypes.CONNECT)
        session.SessionExpiryInterval = 3600
        session.ReceiveMaximum = 10_000
        subscribed = threading.Event()
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=self.client_id, protocol=MQTTv5)
        self.client.on_message = self._take
        self.client.on_connect = lambda client, *_: client.subscribe("traffic/#", qos=1)
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.connect(
            self.broker.host, self.broker.port, clean_start=False, properties=session
        )
        self.client.loop_start()
        assert subscribed.wait(DEADLINE_S)
        return self

    def _take(self, _: Any, __: Any, message: Any) -> None:
        assert message.qos == 1
        assert [name for name, _ in message.properties.UserProperty] == ["speck"]
        header = message.properties.UserProperty[0][1]
        self.received.append((message.topic, header, message.payload))

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def wait(self, count: int) -> None:
        wait_for(lambda: len(set(self.received)) >= count, f"{count} different messages")


class Running:
    """A replay in a thread of its own, with its outcome."""

    def __init__(self, rows: list[Row], options: ReplayOptions) -> None:
        self.cancel = threading.Event()
        self.replay = Replay(rows, options, cancel=self.cancel)
        self.summary: Summary | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.summary = self.replay.run()
        except Exception as error:
            self.error = error

    @property
    def acked(self) -> int:
        return sum(stream.acked for stream in self.replay.progress().values())

    def join(self) -> Summary:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the replay does not end"
        assert self.error is None, self.error
        assert self.summary is not None
        return self.summary

    def stop(self) -> None:
        self.cancel.set()
        self._thread.join(DEADLINE_S)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """The beginning of the trace, malformed rows included."""
    return read_trace(TRACE)[:1500]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[mosquitto.Mosquitto]:
    with mosquitto.start(tmp_path / "broker") as running:
        yield running


def options(broker: mosquitto.Mosquitto, **changes: Any) -> ReplayOptions:
    everywhere = dict.fromkeys("ABC", broker.address)
    return ReplayOptions(**{"brokers": everywhere, "run": "r1", "epoch": 7, **changes})


def numbers(subscriber: Subscriber) -> dict[str, list[int]]:
    """The numbers of each stream in the order in which they came."""
    by_stream: dict[str, list[int]] = defaultdict(list)
    for topic, header, _ in subscriber.received:
        producer, epoch, number = header.split("/")
        assert (producer, epoch) == (f"replay-r1-{topic.removeprefix('traffic/')}", "7")
        by_stream[topic.removeprefix("traffic/")].append(int(number))
    return by_stream


def totals(rows: list[Row], copies: int = 1) -> dict[str, int]:
    """How many messages each stream has, the end marker among them."""
    return {
        stream: 1 + copies * sum(row.stream == stream for row in rows)
        for stream in {row.stream for row in rows}
    }


def test_each_stream_arrives_at_its_own_site_in_order_and_ends(
    rows: list[Row], tmp_path: Path
) -> None:
    reports: list[Mapping[str, StreamProgress]] = []
    with (
        mosquitto.start(tmp_path / "a") as a,
        mosquitto.start(tmp_path / "b") as b,
        mosquitto.start(tmp_path / "c") as c,
        Subscriber(a) as at_a,
        Subscriber(b) as at_b,
        Subscriber(c) as at_c,
    ):
        brokers = {"A": a.address, "B": b.address, "C": c.address}
        summary = replay(
            rows, options(a, brokers=brokers, copies=2), on_progress=lambda it: reports.append(it)
        )
        expected = totals(rows, copies=2)
        for site, subscriber in (("A", at_a), ("B", at_b), ("C", at_c)):
            mine = {s: n for s, n in expected.items() if s[0] == site}
            subscriber.wait(sum(mine.values()))
            assert numbers(subscriber) == {s: list(range(1, n + 1)) for s, n in mine.items()}
            endings = [p for _, _, p in subscriber.received if p.startswith(b'{"end"')]
            assert len(endings) == len(mine)
    valid = count_valid(rows, 2)
    assert (summary.published, summary.malformed, summary.markers) == (
        valid,
        2 * len(rows) - valid,
        10,
    )
    assert (summary.refused, summary.resent, summary.cancelled) == (0, 0, False)
    assert {s: p.acked for s, p in reports[-1].items()} == expected


def test_sites_that_share_a_broker_keep_the_traces_time_order(
    rows: list[Row], broker: mosquitto.Mosquitto
) -> None:
    with Subscriber(broker) as subscriber:
        replay(rows, options(broker))
        subscriber.wait(len(rows) + 10)
    records = [p for _, _, p in subscriber.received if p.startswith(b'{"id"')]
    times = [json.loads(record)["time_ms"] for record in records]
    assert times == sorted(times)


def test_a_message_that_nobody_reads_is_held_until_somebody_does(
    rows: list[Row], broker: mosquitto.Mosquitto
) -> None:
    running = Running(rows, options(broker, window=50))
    try:
        wait_for(lambda: running.replay.refused >= 3, "3 refusals")
        assert running.acked == 0
        with Subscriber(broker) as subscriber:
            summary = running.join()
            subscriber.wait(len(rows) + 10)
        assert {s: sorted(n) for s, n in numbers(subscriber).items()} == {
            s: list(range(1, n + 1)) for s, n in totals(rows).items()
        }
        assert summary.refused >= 3
    finally:
        running.stop()


def test_without_readers_a_refusal_is_delivery(
    rows: list[Row], broker: mosquitto.Mosquitto
) -> None:
    summary = replay(rows, options(broker, readers="none"))
    assert summary.published == count_valid(rows)
    assert summary.refused == len(rows) + 10


def test_patience_ends_with_the_reason(rows: list[Row], broker: mosquitto.Mosquitto) -> None:
    with pytest.raises(TransientError, match=r"cannot publish to tcp://.* has no reader .*0\.5 s"):
        replay(rows, options(broker, patience_s=0.5))


@pytest.mark.long
def test_a_stop_of_the_broker_in_the_flow_loses_nothing(rows: list[Row], tmp_path: Path) -> None:
    check_restart(rows, tmp_path, lambda broker: broker.stop())


@pytest.mark.long
def test_a_kill_of_the_broker_in_the_flow_loses_nothing(rows: list[Row], tmp_path: Path) -> None:
    """What it acknowledged but had not saved is sent again."""
    check_restart(rows, tmp_path, lambda broker: broker.kill())


def check_restart(
    rows: list[Row], tmp_path: Path, end: Callable[[mosquitto.Mosquitto], None]
) -> None:
    broker = mosquitto.start(tmp_path / "broker", settings={"autosave_interval": "1"})
    with Subscriber(broker):
        pass  # from now on a session gathers what comes
    saved = tmp_path / "broker" / "data" / "mosquitto.db"
    wait_for(lambda: saved.exists() and b"reader" in saved.read_bytes(), "the saved session")
    running = Running(rows, options(broker, rate=1000.0))
    try:
        wait_for(lambda: running.acked >= 200, "200 acknowledgements")
        end(broker)
        broker = mosquitto.start(
            tmp_path / "broker", port=broker.port, settings={"autosave_interval": "1"}
        )
        summary = running.join()
        assert summary.resent >= 200
        with Subscriber(broker) as subscriber:
            subscriber.wait(len(rows) + 10)
        assert {s: sorted(set(n)) for s, n in numbers(subscriber).items()} == {
            s: list(range(1, n + 1)) for s, n in totals(rows).items()
        }
        assert summary.published == count_valid(rows)
    finally:
        running.stop()
        broker.stop()


def test_a_cancelled_replay_stops_without_markers(
    rows: list[Row], broker: mosquitto.Mosquitto
) -> None:
    running = Running(rows, options(broker, rate=100.0, readers="none"))
    wait_for(lambda: running.acked >= 10, "10 acknowledgements")
    running.cancel.set()
    summary = running.join()
    assert summary.cancelled
    assert summary.markers == 0
    assert 10 <= summary.published + summary.malformed < len(rows)


def test_a_broker_that_wants_a_password_is_named(rows: list[Row], tmp_path: Path) -> None:
    with mosquitto.start(tmp_path / "b", settings={"allow_anonymous": "false"}) as broker:
        message = f"cannot write to the broker {broker.address}: it refuses the connection"
        with pytest.raises(BrokerRefusedError, match=message):
            replay(rows, options(broker))
