"""The MQTT binder against real Mosquitto: access, faults, versions, settings."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import binders.mqtt.broker
from binders.mqtt import MqttBroker, check, topics
from binders.mqtt.answers import TopicRefusedError
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection
from binders.mqtt.topics import MAX_TOPIC_LEVELS, topic_fault
from speck.binding import BrokerCapability, Target
from speck.errors import BrokerRefusedError, UnreachableError
from speck.fog.mosquitto import Mosquitto
from speck.model.finding import Finding
from speck.sites.credentials import Credentials
from tests.mosquitto_server import CARELESS, mosquitto
from tests.old_protocol import only_3_1_1
from tests.waiting import wait_for


def connect(
    address: str, options: ConnectOptions, credentials: Credentials | None = None
) -> Connection:
    return Connection(address, credentials or Credentials(), options, time.monotonic() + 60)


def write_credentials(folder: Path, mode: int = 0o600, **values: str) -> Path:
    file = folder / "credentials"
    file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    file.chmod(mode)
    return file


@contextmanager
def guarded(folder: Path, acl: str = "topic readwrite #") -> Iterator[Mosquitto]:
    """A broker that lets in user `speck` with password `secret=1` only."""
    passwords, rules = folder / "passwd", folder / "acl"
    subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "speck", "secret=1"], check=True)
    rules.write_text(acl + "\n")
    with mosquitto(
        folder / "broker",
        allow_anonymous="false",
        password_file=str(passwords),
        acl_file=str(rules),
    ) as server:
        yield server


# -- access -------------------------------------------------------------------------------


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


# -- sessions -----------------------------------------------------------------------------


def test_sessions_and_their_messages_survive_a_restart_of_the_broker(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        broker.reserve("reader", "t")
        with connect(server.address, ConnectOptions("outside")) as connection:
            connection.publish("t", b"kept")
        port = server.port

    with mosquitto(tmp_path, port=port) as server:
        payloads: list[bytes] = []
        with Connection(
            server.address,
            Credentials(),
            ConnectOptions("reader", clean=False, expiry_s=60),
            time.monotonic() + 60,
            on_message=lambda message: payloads.append(bytes(message.payload)),
        ) as connection:
            assert connection.session_present
            connection.wait(lambda: payloads == [b"kept"], "read")


def test_a_mark_survives_a_restart_of_the_broker_in_its_place(tmp_path: Path) -> None:
    reader = ConnectOptions("reader", clean=False, expiry_s=60)
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        broker.reserve("reader", "t")
        assert not broker.mark("reader", "a0")
        with connect(server.address, reader) as connection:
            connection.subscribe("t", "speck/marks/reader")
        with connect(server.address, ConnectOptions("outside")) as connection:
            connection.publish("t", b"before")
            assert broker.mark("reader", "a1")
            connection.publish("t", b"after")
        port = server.port

    with mosquitto(tmp_path, port=port) as server:
        payloads: list[bytes] = []
        with Connection(
            server.address,
            Credentials(),
            reader,
            time.monotonic() + 60,
            on_message=lambda message: payloads.append(bytes(message.payload)),
        ) as connection:
            connection.wait(lambda: len(payloads) == 3, "read")
        assert payloads == [b"before", b"a1", b"after"]


def test_a_mark_that_may_not_be_sent_is_refused(tmp_path: Path) -> None:
    with guarded(tmp_path, acl="user speck\ntopic read speck/#") as server:
        file = write_credentials(tmp_path, user="speck", password="secret=1")
        broker = MqttBroker(Target(server.address, file))
        with pytest.raises(BrokerRefusedError, match=r"^cannot publish to speck/marks/reader"):
            broker.mark("reader", "a1")


def test_reserving_a_link_with_a_retained_message_queues_nothing(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server:
        with connect(server.address, ConnectOptions("outside")) as connection:
            connection.publish("t", b"old", retain=True)

        MqttBroker(Target(server.address)).reserve("reader", "t")

        payloads: list[bytes] = []
        with Connection(
            server.address,
            Credentials(),
            ConnectOptions("reader", clean=False),
            time.monotonic() + 60,
            on_message=lambda message: payloads.append(bytes(message.payload)),
        ) as connection:
            connection.publish("t", b"new")
            connection.wait(lambda: bool(payloads), "read")
        assert payloads == [b"new"]


@pytest.mark.parametrize("ended", ["with a goodbye", "by a crash"])
def test_reserving_after_a_reader_with_messages_under_way_keeps_all_in_order(
    tmp_path: Path, ended: str
) -> None:
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        broker.reserve("reader", "t")
        publish_numbers(server, range(600))
        held: list[bytes] = []
        session = ConnectOptions(
            "reader", clean=False, expiry_s=600, receive_maximum=200, manual_ack=True
        )
        with (
            suppress(Crash),
            Connection(
                server.address,
                Credentials(),
                session,
                time.monotonic() + 60,
                on_message=lambda message: held.append(bytes(message.payload)),
            ) as reader,
        ):
            reader.wait(lambda: len(held) == 200, "hold 200 messages")
            if ended == "by a crash":
                raise Crash

        broker.reserve("reader", "t")
        publish_numbers(server, range(600, 700))
        broker.reserve("reader", "t")

        came: list[int] = []
        with Connection(
            server.address,
            Credentials(),
            ConnectOptions("reader", clean=False),
            time.monotonic() + 60,
            on_message=lambda message: came.append(int(message.payload)),
        ) as connection:
            connection.wait(lambda: len(came) >= 700, "read")
        assert came == list(range(700))


def test_reserving_takes_nothing_from_a_reader_that_subscribes_at_qos_2(tmp_path: Path) -> None:
    """Such a reader is outside speck. A message at QoS 2 belongs to whom its PUBREC comes from."""
    came: list[int] = []

    def read(server: Mosquitto, until: int) -> None:
        client = Client(CallbackAPIVersion.VERSION2, "reader", protocol=MQTTProtocolVersion.MQTTv5)
        client.on_message = lambda _client, _data, message: came.append(int(message.payload))
        subscribed = threading.Event()
        client.on_subscribe = lambda *_: subscribed.set()
        expiry = Properties(PacketTypes.CONNECT)
        expiry.SessionExpiryInterval = 600
        client.connect("127.0.0.1", server.port, clean_start=False, properties=expiry)
        client.subscribe("t", qos=2)
        client.loop_start()
        assert subscribed.wait(30)
        wait_for(lambda: len(came) >= until)
        client.disconnect()
        client.loop_stop()

    with mosquitto(tmp_path) as server:
        read(server, 0)
        publisher = Client(CallbackAPIVersion.VERSION2)
        publisher.connect("127.0.0.1", server.port)
        publisher.loop_start()
        for number in range(5):
            publisher.publish("t", b"%d" % number, qos=2).wait_for_publish(30)
        publisher.disconnect()
        publisher.loop_stop()
        assert MqttBroker(Target(server.address)).reserve("reader", "t").existed
        read(server, 5)
    assert came == list(range(5))


class Crash(Exception):
    """Leaves a connection without a goodbye."""


def publish_numbers(server: Mosquitto, numbers: range) -> None:
    with connect(server.address, ConnectOptions("outside")) as connection:
        for mid in [connection.send("t", b"%d" % number) for number in numbers]:
            connection.await_puback(mid, "t")


def test_reserve_leaves_other_sessions_alone(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server:
        payloads: list[bytes] = []
        with Connection(
            server.address,
            Credentials(),
            ConnectOptions("live", clean=False, expiry_s=60),
            time.monotonic() + 60,
            on_message=lambda message: payloads.append(bytes(message.payload)),
        ) as live:
            live.subscribe("t")
            broker = MqttBroker(Target(server.address))
            broker.reserve("another", "t")
            broker.release("another", "t", last_reader=False)
            live.publish("t", b"still here")
            live.wait(lambda: payloads == [b"still here"], "read")


def test_a_reader_that_comes_back_at_once_keeps_nobody_from_its_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        broker.reserve("reader", "t")
        publish_numbers(server, range(3))
        tell_numbers(server, "reader")
        back: list[Connection] = []

        def come_back(connection: Connection, message: dict[str, bytes], *, retain: bool) -> None:
            if not back:  # throws out the connection that is about to say this
                connection.wait(lambda: True, "connect")
                session = ConnectOptions("reader", clean=False, expiry_s=60)
                back.append(connect(server.address, session))
            publish_all(connection, message, retain=retain)

        publish_all = Connection.publish_all
        monkeypatch.setattr(Connection, "publish_all", come_back)
        broker.release("reader", "t", last_reader=True)

        with back.pop() as reader:
            assert not reader.session_present
        view = broker.view()
        assert (view.taken, view.sent, view.readers) == ({}, {}, {"t": False})


# -- numbers ------------------------------------------------------------------------------


def tell_numbers(server: Mosquitto, reader: str, *sinks: str) -> None:
    taken = b'{"v":1,"checkpoint":1,"taken":{"p":{"1":2}}}'
    sent = b'{"v":1,"producer":"p","epoch":1,"number":2}'
    with connect(server.address, ConnectOptions("a-job")) as connection:
        connection.publish(f"speck/taken/{reader}", taken, retain=True)
        for sink in sinks:
            connection.publish(f"speck/sent/{sink}", sent, retain=True)


def test_what_a_deleted_job_leaves_is_cleared_on_two_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    class Counted(Connection):
        def __init__(self, address: str, *args: Any, **named: Any) -> None:
            opened.append(address)
            super().__init__(address, *args, **named)

    with mosquitto(tmp_path) as server:
        tell_numbers(server, "reader", "sink", "former-sink")
        broker = MqttBroker(Target(server.address))
        monkeypatch.setattr(binders.mqtt.broker, "Connection", Counted)

        broker.release("reader", "t", last_reader=True)
        assert len(opened) == 1
        broker.forget("sink", "former-sink")
        assert len(opened) == 2
        broker.forget()
        assert len(opened) == 2

        view = broker.view()
        assert (view.taken, view.sent, view.readers) == ({}, {}, {"t": False})


def test_no_more_is_sent_at_once_than_the_broker_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[int] = []
    most = 0

    def send(connection: Connection, topic: str, payload: bytes, *, retain: bool) -> int:
        nonlocal most
        assert connection.connack["ReceiveMaximum"] == 2
        mid = sent(connection, topic, payload, retain=retain)
        waiting.append(mid)
        most = max(most, len(waiting))
        return mid

    def await_puback(connection: Connection, mid: int, topic: str) -> None:
        awaited(connection, mid, topic)
        waiting.remove(mid)

    clients = [f"sink-{number}" for number in range(10)]
    with mosquitto(tmp_path, max_inflight_messages="2") as server:
        tell_numbers(server, "reader", *clients)
        broker = MqttBroker(Target(server.address))
        sent, awaited = Connection.send, Connection.await_puback
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "send", send)
            patched.setattr(Connection, "await_puback", await_puback)
            broker.forget(*clients)

        assert (most, waiting) == (2, [])
        view = broker.view()
        assert (set(view.taken), view.sent) == ({"reader"}, {})


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


@pytest.mark.parametrize(
    "payload",
    [b"{", b"\xff\xfe", b"[]", b"{}", b'{"v":2}', b'{"v":1,"checkpoint":"x"}', b"[" * 5000],
)
def test_an_unreadable_retained_message_is_skipped_and_told(
    tmp_path: Path, payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    good = b'{"v":1,"at":1,"producer":"p","epoch":1,"number":2}'
    with mosquitto(tmp_path) as server:
        with connect(server.address, ConnectOptions("a-job")) as connection:
            connection.publish("speck/taken/broken", payload, retain=True)
            connection.publish("speck/sent/broken-out", payload, retain=True)
            connection.publish("speck/sent/good-out", good, retain=True)

        view = MqttBroker(Target(server.address)).view()

    assert set(view.sent) == {"good-out"}
    assert view.taken == {}
    assert "speck/taken/broken is skipped" in caplog.text


def test_a_poll_is_not_sent_what_is_too_large_for_any_number(tmp_path: Path) -> None:
    """Maximum Packet Size: the broker itself drops it, for this reader (attack S12)."""
    good = b'{"v":1,"at":1,"producer":"p","epoch":1,"number":2}'
    with mosquitto(tmp_path, message_size_limit="0") as server:
        with connect(server.address, ConnectOptions("a-job")) as connection:
            huge = good + b" " * binders.mqtt.broker.LARGEST_PACKET
            connection.publish("speck/sent/huge", huge, retain=True)
            connection.publish("speck/sent/good", good, retain=True)
            connection.publish("t", huge, retain=True)
        broker = MqttBroker(Target(server.address))

        assert set(broker.view().sent) == {"good"}
        broker.reserve("reader", "t")  # a session takes whatever its users send


def test_view_reads_more_retained_messages_than_a_queue_may_hold(tmp_path: Path) -> None:
    report = b'{"v":1,"at":1,"producer":"p","epoch":1,"number":2}'
    with mosquitto(tmp_path, **CARELESS) as server:
        with connect(server.address, ConnectOptions("jobs")) as connection:
            sent = [
                connection.send(f"speck/sent/{n}-out", report, retain=True) for n in range(2500)
            ]
            for mid in sent:
                connection.await_puback(mid, "speck/sent")

        assert len(MqttBroker(Target(server.address)).view().sent) == 2500


# -- faults -------------------------------------------------------------------------------


def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        broker = MqttBroker(Target(f"tcp://127.0.0.1:{server.getsockname()[1]}", timeout_s=0.3))

        with pytest.raises(UnreachableError, match=r"^cannot connect at .*: no answer in time"):
            broker.reach()


def test_a_server_that_is_no_broker_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer_http, args=(server,))
        thread.start()
        broker = MqttBroker(Target(f"tcp://127.0.0.1:{server.getsockname()[1]}", timeout_s=5))

        with pytest.raises(
            UnreachableError, match=r"^cannot connect at .*; if that goes on, the"
        ) as e:
            broker.reach()
        assert "ssl://" in str(e.value)
        thread.join(10)


def answer_http(server: socket.socket) -> None:
    client, _ = server.accept()
    with client:
        client.recv(1024)
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_broker_killed_meanwhile_is_unreachable(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server, connect(server.address, ConnectOptions("me")) as connection:
        server.kill()
        with pytest.raises(UnreachableError, match=r"^cannot publish to t .*connection was lost"):
            connection.publish("t", b"x")


def test_an_unknown_host_is_unreachable() -> None:
    with pytest.raises(
        UnreachableError, match=r"^cannot reach the broker at tcp://nowhere.invalid"
    ):
        MqttBroker(Target("tcp://nowhere.invalid:1883", timeout_s=2)).reach()


@pytest.mark.parametrize("topic", ["", "a/+", "#", "nul\0"])
def test_a_wildcard_is_no_link(topic: str) -> None:
    with pytest.raises(BrokerRefusedError, match="no plain MQTT topic"):
        MqttBroker(Target("tcp://nowhere.invalid:1883")).reserve("one", topic)


def test_an_address_may_be_written_otherwise(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server:
        address = server.address.replace("tcp:", "mqtt:") + "/"
        file = write_credentials(tmp_path, address=server.address)

        assert MqttBroker(Target(address, file)).reach() == "mqtt 5"
    with pytest.raises(BrokerRefusedError, match="is not an address like"):
        MqttBroker(Target("localhost:1883"))


def test_an_http_address_is_refused() -> None:
    with pytest.raises(BrokerRefusedError, match="is not an address like tcp://host:1883"):
        MqttBroker(Target("http://127.0.0.1:8081")).reach()


def test_no_thread_and_no_file_is_left_behind(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        broker.reach()
        gc.collect()  # what other tests have left would be closed in between
        threads, files = threading.active_count(), psutil.Process().num_fds()

        def connections() -> int:
            found = psutil.Process().net_connections("tcp")
            return sum(bool(each.raddr) and each.raddr.port == server.port for each in found)

        for number in range(20):
            broker.reserve(f"job-{number}", "t")
            broker.view()
            broker.release(f"job-{number}", "t", last_reader=True)

        assert connections() == 1, "that of the next poll"
        assert psutil.Process().num_fds() <= files + 1
        broker.close()
        assert connections() == 0
        assert threading.active_count() == threads
        assert psutil.Process().num_fds() <= files


def test_more_than_1024_open_files_do_not_matter(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server:
        files = [os.open("/dev/null", os.O_RDONLY) for _ in range(open_files_to_add())]
        try:
            assert MqttBroker(Target(server.address)).reach() == "mqtt 5"
        finally:
            for file in files:
                os.close(file)


def open_files_to_add() -> int:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1400:
        pytest.skip("this machine allows fewer than 1400 open files")
    return 1100


# -- MQTT 3.1.1 ---------------------------------------------------------------------------


def test_a_3_1_1_broker_keeps_sessions_but_carries_no_numbers(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server, only_3_1_1(server) as address:
        broker = MqttBroker(Target(address))

        assert broker.reach() == "mqtt 3.1.1"
        assert frozenset(BrokerCapability) - broker.capabilities == {BrokerCapability.NUMBERS}
        broker.reserve("reader", "t")
        with connect(server.address, ConnectOptions("outside")) as connection:
            for number in range(50):
                connection.publish("t", b"%d" % number)
        broker.reserve("reader", "t")

        payloads: list[bytes] = []
        with Connection(
            server.address,
            Credentials(),
            ConnectOptions("reader", clean=False),
            time.monotonic() + 60,
            on_message=lambda message: payloads.append(bytes(message.payload)),
        ) as connection:
            connection.wait(lambda: len(payloads) >= 50, "read")
        assert payloads == [b"%d" % number for number in range(50)]
        assert broker.view().taken == {}
        assert broker.mark("reader", "a1"), "nobody listens, but that is not told"
        tell_numbers(server, "reader", "sink")
        broker.release("reader", "t", last_reader=True)
        broker.forget("sink", "another")
        view = broker.view()
        assert (view.taken, view.sent, view.readers) == ({}, {}, {"t": False})


def test_check_says_that_a_3_1_1_broker_carries_no_numbers(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server, only_3_1_1(server) as address:
        findings_by_setting = by_setting(MqttBroker(Target(address)).check())

    assert findings_by_setting["protocol"].value == "MQTT 3.1.1 only"


# -- settings -----------------------------------------------------------------------------


def by_setting(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.setting: finding for finding in findings}


def test_a_well_set_broker_has_only_what_cannot_be_seen(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server:
        findings = MqttBroker(Target(server.address)).check()

    assert [finding.severity for finding in findings] == ["warning"] * 3
    assert all("cannot be seen from outside" in finding.value for finding in findings)


def test_careless_settings_are_found_each_with_its_line(tmp_path: Path) -> None:
    with mosquitto(tmp_path, **CARELESS, max_packet_size="2000") as server:
        findings = MqttBroker(Target(server.address)).check()

    assert findings[0].severity == "error"
    findings_by_setting = by_setting(findings)
    assert findings_by_setting["max_queued_messages"].severity == "error"
    assert (
        findings_by_setting["max_queued_messages"].value
        == f"a session kept 1000 of {check.PROBE_MESSAGES}"
        " messages"
    )
    assert findings_by_setting["max_queued_messages"].mend.startswith("max_queued_messages 1000000")
    assert findings_by_setting["max_inflight_messages"].mend == "max_inflight_messages 1000"
    assert findings_by_setting["max_packet_size"].value == "2000 bytes"
    assert findings_by_setting["persistence"].mend.startswith("persistence true")


def test_a_limit_of_the_messages_size_is_found_by_a_probe(tmp_path: Path) -> None:
    with mosquitto(tmp_path, message_size_limit="65536") as server:
        findings_by_setting = by_setting(MqttBroker(Target(server.address)).check())

    finding = findings_by_setting["message_size_limit"]
    assert finding.severity == "error"
    assert finding.value.startswith("a message of 1048576 bytes does not get through: ")
    assert "Packet too large" in finding.value
    assert finding.mend == "message_size_limit 1048576"


def test_a_record_over_the_message_size_limit_is_refused_with_the_setting(tmp_path: Path) -> None:
    with mosquitto(tmp_path, message_size_limit="65536") as server:
        broker = MqttBroker(Target(server.address))
        with pytest.raises(BrokerRefusedError, match="'Packet too large'; raise its message_size"):
            broker.publish("t", [b"x", bytes(65537)])
        assert broker.publish("t", [b"x", bytes(65536)]) == 2
        broker.close()


def test_with_mqtt_3_a_message_that_is_too_large_is_read_back(tmp_path: Path) -> None:
    with mosquitto(tmp_path, message_size_limit="65536") as server:

        def open_(
            options: ConnectOptions, on_message: Any = None, anonymous: bool = False
        ) -> Connection:
            deadline = time.monotonic() + 10
            return Connection(
                server.address,
                Credentials(),
                options,
                deadline,
                MQTTProtocolVersion.MQTTv311,
                on_message,
            )

        assert check.probe_size(open_, 65537) == "it is acknowledged and dropped"
        assert check.probe_size(open_, 65536) is None


def test_without_retained_messages_nothing_works_and_check_says_so(tmp_path: Path) -> None:
    with mosquitto(tmp_path, retain_available="false") as server:
        findings_by_setting = by_setting(MqttBroker(Target(server.address)).check())

    assert findings_by_setting["retain_available"].severity == "error"


def test_messages_dropped_so_far_are_told(tmp_path: Path) -> None:
    with mosquitto(tmp_path, max_queued_messages="10", sys_interval="1") as server:
        broker = MqttBroker(Target(server.address))
        broker.reserve("reader", "t")
        with connect(server.address, ConnectOptions("outside")) as connection:
            for _ in range(50):
                connection.publish("t", b"x")
        wait_for_drops(server)

        drops = [f for f in broker.check() if "dropped since" in f.value]

    assert [finding.severity for finding in drops] == ["error"]


def wait_for_drops(server: Mosquitto) -> None:
    """Until the broker has counted: it publishes its counters once a second."""
    payloads: list[bytes] = []
    with Connection(
        server.address,
        Credentials(),
        ConnectOptions("waits"),
        time.monotonic() + 120,
        on_message=lambda message: payloads.append(bytes(message.payload)),
    ) as connection:
        connection.subscribe("$SYS/broker/publish/messages/dropped")
        connection.wait(lambda: any(count != b"0" for count in payloads), "see drops")


def test_who_may_not_use_our_topics_is_told(tmp_path: Path) -> None:
    with guarded(tmp_path, acl="user speck\ntopic readwrite traffic/#") as server:
        file = write_credentials(tmp_path, user="speck", password="secret=1")
        findings_by_setting = by_setting(
            MqttBroker(Target(server.address, file, timeout_s=2)).check()
        )

    assert findings_by_setting["acl_file"].severity == "error"
    assert findings_by_setting["acl_file"].mend == "topic readwrite speck/#"


def test_check_leaves_no_session_behind(tmp_path: Path) -> None:
    with mosquitto(tmp_path, sys_interval="1") as server:
        broker = MqttBroker(Target(server.address))
        broker.check()
        broker.check()

        payloads: list[bytes] = []
        with Connection(
            server.address,
            Credentials(),
            ConnectOptions("waits"),
            time.monotonic() + 120,
            on_message=lambda message: payloads.append(bytes(message.payload)),
        ) as connection:
            connection.subscribe("$SYS/broker/clients/total")
            connection.wait(lambda: payloads[-1:] == [b"1"], "see one client only")


# -- topics that a broker does not take ----------------------------------------------------


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


# -- readers that are away ---------------------------------------------------------------------


def test_a_session_that_is_reserved_again_in_time_outlives_its_expiry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one, made at the same time, has expired by then, with its messages. It is announced
    all the same: only to reserve it shows that it is gone."""
    monkeypatch.setattr(binders.mqtt.broker, "SESSION_EXPIRY_S", 3)
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        for name in ("renewed", "expired"):
            assert broker.reserve(name, name).kept_s == 3
            assert broker.publish(name, [b"waits"]) == 0

        def has_expired() -> bool:
            assert broker.reserve("renewed", "renewed").existed
            return broker.publish("expired", [b"more"]) == 1

        wait_for(has_expired, "the end of a session")
        wait_for(lambda: broker.reserve("renewed", "renewed").existed, "a last time")
        assert ("expired", "expired") in broker.view().sessions
        assert not broker.reserve("expired", "expired").existed
        received: list[bytes] = []
        options = ConnectOptions("renewed", clean=False, expiry_s=60)
        deadline = time.monotonic() + 60
        collect = lambda message: received.append(bytes(message.payload))  # noqa: E731
        with Connection(
            server.address, Credentials(), options, deadline, on_message=collect
        ) as reader:
            reader.wait(lambda: received == [b"waits"], "read what waited")


# -- identities, bridges, old brokers that hang up -------------------------------------------


def test_a_broker_that_takes_all_clients_of_a_user_for_one_is_named(tmp_path: Path) -> None:
    password = tmp_path / "passwd"
    subprocess.run(["mosquitto_passwd", "-b", "-c", password, "speck", "secret"], check=True)
    credentials = write_credentials(tmp_path, user="speck", password="secret")
    settings = {"allow_anonymous": "false", "password_file": str(password)}
    with mosquitto(tmp_path / "b", use_username_as_clientid="true", **settings) as server:
        findings = MqttBroker(Target(server.address, credentials=credentials)).check()
    assert [(each.severity, each.setting) for each in findings] == [
        ("error", "use_username_as_clientid")
    ]
    with mosquitto(tmp_path / "c", **settings) as server:
        findings = MqttBroker(Target(server.address, credentials=credentials)).check()
    assert "use_username_as_clientid" not in {each.setting for each in findings}


def test_a_bridge_is_named_at_both_of_its_ends(tmp_path: Path) -> None:
    with mosquitto(tmp_path / "far") as far:
        settings = f"to-far\naddress {far.host}:{far.port}\ntopic # both 1"
        with mosquitto(tmp_path / "near", connection=settings) as near:
            for server in (near, far):
                broker = MqttBroker(Target(server.address))
                deadline = time.monotonic() + 60
                while not (found := [f for f in broker.check() if f.setting == "connection"]):
                    assert time.monotonic() < deadline
                (finding,) = found
                assert "to-far" in finding.value and finding.severity == "warning"
                (bridge,) = broker.view().bridges
                assert bridge.endswith("to-far")


def test_an_old_broker_that_hangs_up_on_mqtt_5_is_spoken_to_in_3_1_1(
    mosquitto_server: Mosquitto,
) -> None:
    with only_3_1_1(mosquitto_server, refusal=b"") as address:
        broker = MqttBroker(Target(address))
        assert broker.reach() == "mqtt 3.1.1"
        assert BrokerCapability.NUMBERS not in broker.capabilities
        assert broker.reach() == "mqtt 3.1.1"
        (finding,) = (each for each in broker.check() if each.setting == "protocol")
    assert (finding.severity, finding.value) == ("warning", "MQTT 3.1.1 only")


def test_a_server_that_hangs_up_on_everybody_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        broker = MqttBroker(Target(f"tcp://127.0.0.1:{server.getsockname()[1]}"))
        with pytest.raises(UnreachableError):
            broker.reach()
        assert BrokerCapability.NUMBERS in broker.capabilities
        server.shutdown(socket.SHUT_RDWR)
