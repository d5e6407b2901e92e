"""The MQTT binder: servers and addresses that are none, and what is left open."""

from __future__ import annotations

import gc
import os
import socket
import threading
from pathlib import Path

import psutil
import pytest

from binders.mqtt import MqttBroker
from binders.mqtt.connect_options import ConnectOptions
from speck.binding import Target
from speck.errors import BrokerRefusedError, UnreachableError
from tests.guarded_broker import connect, write_credentials
from tests.mosquitto_server import mosquitto


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
