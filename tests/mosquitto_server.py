"""Real Mosquitto for tests: as a context manager, and one for the session as a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from speck.fog.mosquitto import Mosquitto, start

CARELESS = {
    "persistence": "false",
    "max_inflight_messages": "20",
    "max_queued_messages": "1000",
    "max_queued_bytes": "0",
    "persistent_client_expiration": "1h",
}
"""Settings near Mosquitto's own defaults, as found on a machine that nobody has set up."""


@contextmanager
def mosquitto(folder: Path, *, port: int | None = None, **settings: str) -> Iterator[Mosquitto]:
    """A broker in `folder` on a free loopback port; `settings` replace those of the fog."""
    with start(folder, port=port, settings=settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def mosquitto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """One broker for all tests that leave it as they found it."""
    with mosquitto(tmp_path_factory.mktemp("mosquitto"), sys_interval="1") as broker:
        yield broker
