"""Logins that Kafka refuses, on a server that speaks no more of its protocol than that."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from kafka.errors import GroupAuthorizationFailedError, KafkaTimeoutError, NotCoordinatorError

from binders.kafka.answers import describe, explain
from binders.kafka.client import Client, settings_of
from speck.binding import Target
from speck.errors import BrokerRefusedError, TransientError, UnreachableError
from speck.sites.credentials import Credentials

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
VERSIONS = ((API_VERSIONS, 0, 2), (HANDSHAKE, 0, 1), (AUTHENTICATE, 0, 1), (3, 0, 8))
REFUSED = 58


def text(words: str) -> bytes:
    return struct.pack(">h", len(words)) + words.encode()


def answer(key: int, version: int) -> bytes:
    if key == API_VERSIONS and version > 2:  # unsupported: try another one
        return struct.pack(">hi", 35, 1) + struct.pack(">hhh", API_VERSIONS, 0, 2)
    if key == API_VERSIONS:
        ranges = b"".join(struct.pack(">hhh", *each) for each in VERSIONS)
        return struct.pack(">hi", 0, len(VERSIONS)) + ranges + struct.pack(">i", 0)
    if key == HANDSHAKE:
        return struct.pack(">hi", 0, 1) + text("PLAIN")
    return struct.pack(">h", REFUSED) + text("wrong password") + struct.pack(">iq", 0, 0)


def talk(connection: socket.socket) -> None:
    with connection, suppress(OSError, struct.error):
        while True:
            (size,) = struct.unpack(">i", connection.recv(4))
            request = connection.recv(size, socket.MSG_WAITALL)
            key, version, number = struct.unpack(">hhi", request[:8])
            out = struct.pack(">i", number) + answer(key, version)
            connection.sendall(struct.pack(">i", len(out)) + out)


@pytest.fixture
def address() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=talk, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"kafka://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("mechanism", "reason"),
    [("PLAIN", "wrong password"), (None, r"does not support SCRAM-SHA-512 .*\['PLAIN'\]")],
)
def test_a_refused_login_is_told_at_once_with_its_reason(
    address: str, mechanism: str | None, reason: str
) -> None:
    """And not tried again and again until the time is over."""
    before = set(threading.enumerate())
    client = Client(Target(address, timeout_s=600), Credentials("u", "p", mechanism=mechanism))
    with pytest.raises(BrokerRefusedError, match=rf"{reason}.*broker\.credentials"):
        client.begin().ask("list", lambda admin: admin.list_groups())
    assert not [each for each in set(threading.enumerate()) - before if "kafka" in each.name]


def test_settings_follow_from_address_and_credentials() -> None:
    plain = settings_of("kafka://a:1,b:2", Credentials())
    assert plain["bootstrap_servers"] == ["a:1", "b:2"]
    assert plain["security_protocol"] == "PLAINTEXT"
    secured = settings_of("kafka+ssl://a:1", Credentials("u", "p"))
    assert secured["security_protocol"] == "SASL_SSL"
    assert secured["sasl_mechanism"] == "SCRAM-SHA-512"
    assert secured["ssl_context"].check_hostname


def test_errors_are_told_by_kind() -> None:
    address = "kafka://a:1"
    assert isinstance(explain(KafkaTimeoutError("late"), address, "ask"), UnreachableError)
    assert isinstance(explain(NotCoordinatorError("x"), address, "ask"), TransientError)
    refused = explain(GroupAuthorizationFailedError("group x"), address, "ask")
    assert isinstance(refused, BrokerRefusedError)
    assert str(refused) == ("cannot ask at kafka://a:1: group x; let its user do that (kafka-acls)")
    assert describe(KafkaTimeoutError()) == "KafkaTimeout"


POLLS = """
from gevent import monkey; monkey.patch_all()
import socket
import gevent
from binders.kafka.client import Client
from speck.binding import Target
from speck.errors import UnreachableError

turns = []

def others():
    while True:
        turns.append(1)
        gevent.sleep(0.01)

gevent.spawn(others)
with socket.create_server(("127.0.0.1", 0)) as silent:
    client = Client(Target(f"kafka://127.0.0.1:{silent.getsockname()[1]}", timeout_s=1))
    before = len(turns)
    try:
        client.begin().ask("list", lambda admin: admin.list_groups())
    except UnreachableError:
        print(len(turns) - before)
"""


def test_other_polls_go_on_while_one_waits() -> None:
    """Where many sites are polled, all threads are gevent's (speck/sites/pollers)."""
    done = subprocess.run([sys.executable, "-c", POLLS], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 5
