"""The MQTT binder against real Mosquitto: users, rights, TLS."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from binders.mqtt import MqttBroker
from speck.binding import Target
from speck.errors import BrokerRefusedError, UnreachableError
from tests.guarded_broker import guarded, write_credentials
from tests.mosquitto_server import mosquitto


def test_credentials_let_in_and_their_absence_does_not(tmp_path: Path) -> None:
    with guarded(tmp_path) as server:
        file = write_credentials(
            tmp_path, user="speck", password="secret=1", address=server.address
        )

        assert MqttBroker(Target(server.address, file)).reach() == "mqtt 5"
        with pytest.raises(BrokerRefusedError, match="without credentials"):
            MqttBroker(Target(server.address)).reach()
        with pytest.raises(BrokerRefusedError, match="as user 'speck'") as error:
            wrong = write_credentials(tmp_path, user="speck", password="guess")
            MqttBroker(Target(server.address, wrong)).reach()
        assert "guess" not in str(error.value)


def test_a_refusal_after_an_accepted_connection_is_told(tmp_path: Path) -> None:
    """Later connections send their requests before the broker has answered CONNECT."""
    with guarded(tmp_path, acl="user speck\ntopic readwrite #") as server:
        file = write_credentials(tmp_path, user="speck", password="secret=1")
        broker = MqttBroker(Target(server.address, file))
        broker.reserve("one", "t")
        assert broker.reserve("one", "t").existed, "the session exists"
        write_credentials(tmp_path, user="speck", password="guess")
        calls: list[Callable[[], object]] = [
            lambda: broker.reserve("two", "t"),
            lambda: broker.release("one", "t", last_reader=True),
            lambda: broker.forget("one"),
            broker.view,
        ]
        for call in calls:
            with pytest.raises(BrokerRefusedError, match="as user 'speck'"):
                call()
        write_credentials(tmp_path, user="speck", password="secret=1")
        assert broker.reserve("one", "t").existed, "a refused release has not touched the session"
        assert not broker.reserve("two", "t").existed


def test_a_topic_that_may_not_be_written_or_read_is_named(tmp_path: Path) -> None:
    with guarded(tmp_path, acl="user speck\ntopic write speck/marker/#") as server:
        file = write_credentials(tmp_path, user="speck", password="secret=1")
        broker = MqttBroker(Target(server.address, file, timeout_s=1.0))

        with pytest.raises(BrokerRefusedError, match="cannot publish to speck/readers/t"):
            broker.reserve("one", "t")
        with pytest.raises(UnreachableError, match="may this user read speck/#"):
            broker.view()


def test_tls_is_used_and_checked(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    settings = {"certfile": f"{tmp_path}/server.crt", "keyfile": f"{tmp_path}/server.key"}
    with mosquitto(tmp_path / "broker", **settings) as server:
        address = server.address.replace("tcp:", "ssl:")
        trusting = write_credentials(tmp_path, ca="server.crt")

        assert MqttBroker(Target(address, trusting)).reach() == "mqtt 5"
        MqttBroker(Target(address, trusting)).reserve("one", "t")
        assert MqttBroker(Target(address, trusting)).view().taken == {}
        with pytest.raises(BrokerRefusedError, match=r"^cannot trust the broker .* the CA file"):
            MqttBroker(Target(address)).reach()


def test_plain_text_where_tls_is_wanted_is_refused(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server:
        address = server.address.replace("tcp:", "ssl:")
        with pytest.raises((BrokerRefusedError, UnreachableError), match=r"^cannot"):
            MqttBroker(Target(address, timeout_s=2)).reach()


def make_certificate(folder: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", folder / "server.key", "-out", folder / "server.crt"],
        check=True,
        capture_output=True,
    )  # fmt: skip


def test_a_mark_that_may_not_be_sent_is_refused(tmp_path: Path) -> None:
    with guarded(tmp_path, acl="user speck\ntopic read speck/#") as server:
        file = write_credentials(tmp_path, user="speck", password="secret=1")
        broker = MqttBroker(Target(server.address, file))
        with pytest.raises(BrokerRefusedError, match=r"^cannot publish to speck/marks/reader"):
            broker.mark("reader", "a1")


def test_numbers_that_may_not_be_cleared_are_named(tmp_path: Path) -> None:
    with guarded(
        tmp_path, acl="user speck\ntopic write speck/readers/#\ntopic write speck/sessions/#"
    ) as server:
        file = write_credentials(tmp_path, user="speck", password="secret=1")
        broker = MqttBroker(Target(server.address, file))

        with pytest.raises(BrokerRefusedError, match=r"^cannot publish to speck/taken/reader"):
            broker.release("reader", "t", last_reader=True)
        with pytest.raises(BrokerRefusedError, match=r"^cannot publish to speck/sent/one"):
            broker.forget("one", "another")
