"""A real Mosquitto that lets in one user, and connections to it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection
from speck.fog.mosquitto import Mosquitto
from speck.sites.credentials import Credentials
from tests.mosquitto_server import mosquitto


def connect(
    address: str, options: ConnectOptions, credentials: Credentials | None = None
) -> Connection:
    return Connection(address, credentials or Credentials(), options, time.monotonic() + 60)


@contextmanager
def reading(address: str, options: ConnectOptions) -> Iterator[tuple[Connection, list[bytes]]]:
    """A connection, and the payloads of the messages that have come on it."""
    payloads: list[bytes] = []
    with Connection(
        address,
        Credentials(),
        options,
        time.monotonic() + 120,
        on_message=lambda message: payloads.append(bytes(message.payload)),
    ) as connection:
        yield connection, payloads


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
