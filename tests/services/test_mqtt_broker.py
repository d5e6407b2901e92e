"""The MQTT binder against real Mosquitto: access, sessions, numbers, faults, topics."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import binders.mqtt.broker
import binders.mqtt.opening
from binders.mqtt import MqttBroker, topics
from binders.mqtt.answers import TopicRefusedError
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection
from binders.mqtt.topics import MAX_TOPIC_LEVELS, topic_fault
from speck.binding import BrokerCapability, Target
from speck.errors import BrokerRefusedError, UnreachableError
from speck.fog.mosquitto import Mosquitto
from speck.sites.credentials import Credentials
from tests.guarded_broker import connect, guarded, write_credentials
from tests.mosquitto_server import CARELESS, mosquitto
from tests.old_protocol import only_3_1_1
from tests.waiting import wait_for

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


def test_only_for_a_session_that_was_lost_are_sinks_asked_to_send_again(
    mosquitto_server: Mosquitto, tmp_path: Path
) -> None:
    topic, reader = f"t/{tmp_path.name}", f"reader-{tmp_path.name}"
    heard: list[bytes] = []
    broker = MqttBroker(Target(mosquitto_server.address))

    with Connection(
        mosquitto_server.address,
        Credentials(),
        ConnectOptions("sink"),
        time.monotonic() + 60,
        on_message=lambda message: heard.append(bytes(message.payload)),
    ) as connection:
        connection.subscribe(f"speck/readers/{topic}")

        def hear(**how: bool) -> list[bytes]:
            heard.clear()
            broker.reserve(reader, topic, **how)
            connection.wait(lambda: heard[-1:] == [b"some"], "hear")
            return heard[:-1]

        assert hear(first=True) == []
        assert hear() == []
        assert hear(lost=True) == [b"again"], "it is there, but was not for a while"
        broker.release(reader, topic, last_reader=False)
        assert hear() == [b"again"]
        assert hear(fresh=True) == []
    broker.release(reader, topic, last_reader=True)


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
        monkeypatch.setattr(binders.mqtt.opening, "Connection", Counted)

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
            huge = good + b" " * binders.mqtt.opening.LARGEST_PACKET
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

        rounds = 20  # more than what threads of other tests open beside it
        for number in range(rounds):
            broker.reserve(f"job-{number}", "t")
            broker.view()
            broker.release(f"job-{number}", "t", last_reader=True)

        assert connections() == 1, "that of the next poll"
        assert psutil.Process().num_fds() < files + rounds
        broker.close()
        assert connections() == 0
        assert threading.active_count() == threads
        assert psutil.Process().num_fds() < files + rounds


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
