"""The MQTT binder against real Mosquitto: topics that it does not take."""

from __future__ import annotations

from pathlib import Path

import pytest

from binders.mqtt import MqttBroker, topics
from binders.mqtt.answers import TopicRefusedError
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.topics import MAX_TOPIC_LEVELS, topic_fault
from speck.binding import Target
from speck.errors import BrokerRefusedError
from tests.guarded_broker import connect
from tests.mosquitto_server import mosquitto


def name_levels(count: int) -> str:
    return "/".join(["t"] * count)


def test_the_deepest_topic_that_is_accepted_works_in_all_its_derived_forms(tmp_path: Path) -> None:
    topic = name_levels(MAX_TOPIC_LEVELS)
    assert topic_fault(topic) is None
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        assert not broker.reserve("speck-1-reader", topic).existed
        assert broker.confirm_sessions(topic, ["speck-1-reader"])
        assert broker.publish(topic, [b"1"]) == 0
        assert broker.view().readers == {topic: True}
        broker.release("speck-1-reader", topic, last_reader=True)
        assert broker.view().sessions == frozenset()


def test_a_disconnect_with_a_reason_is_a_refusal(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server, connect(server.address, ConnectOptions("a")) as connection:
        with pytest.raises(TopicRefusedError, match=r"Protocol error.*levels") as refusal:
            connection.publish(name_levels(205), b"1")
        assert len(str(refusal.value)) < 300


def test_a_session_of_a_refused_topic_can_be_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker may take fewer levels than speck allows; here speck allows more."""
    monkeypatch.setattr(topics, "MAX_TOPIC_LEVELS", 1000)
    topic = name_levels(205)
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        with connect(server.address, ConnectOptions("job")) as connection:
            connection.publish("speck/taken/reader", b'{"v":1,"checkpoint":1}', retain=True)
        with pytest.raises(BrokerRefusedError, match=r"cannot subscribe to t/t/.*Malformed"):
            broker.reserve("reader", topic)

        broker.announce(topic, readers=False)
        broker.release("reader", topic, last_reader=True)

        assert broker.view().taken == {}
        session = ConnectOptions("reader", clean=False, expiry_s=0)
        with connect(server.address, session) as connection:
            assert not connection.session_present


def test_nothing_of_a_topic_is_released_that_no_broker_takes(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        for topic in (name_levels(205), "t" * 65_535, "a/#"):
            broker.announce(topic, readers=False)
            broker.release("reader", topic, last_reader=True)
            with pytest.raises(BrokerRefusedError, match="as a link's topic") as refusal:
                broker.reserve("reader", topic)
            assert len(str(refusal.value)) < 300
