"""`speck status` and `speck adopt` while a service is restored."""

from __future__ import annotations

import json

import pytest

from speck.model.observation import Taken
from speck.store.installation import RestoredState
from tests.service_helpers import broker
from tests.unit.cli.conftest import Run, Server


@pytest.fixture
def reader(server: Server) -> str:
    """The session of a reader that a restored service does not know."""
    records = server.service.records
    records.restored = RestoredState("2026-01-01T00:00:00Z", "its folder was copied")
    client_id = f"speck-{records.installation[:8]}-gone-0a1b2c3d"
    broker("edge-a").taken[client_id] = Taken(1, {})
    broker("edge-a").subscribe(client_id, "gone-in")
    return client_id


def test_sessions_without_a_job_are_named_and_kept(speck: Run, reader: str) -> None:
    status = speck("status").stdout
    assert "its folder was copied; nothing starts until `speck adopt`" in " ".join(status.split())
    assert "unknown reader: messages may wait  gone  edge-a" in status
    result = speck("adopt")
    assert result.exit_code == 0, result.stderr
    assert f"kept the session of gone at edge-a ({reader}): messages may wait" in result.stdout
    assert reader in broker("edge-a").sessions
    assert "unknown reader" not in speck("status").stdout


def test_sessions_without_a_job_are_released_on_request(speck: Run, reader: str) -> None:
    released = speck("adopt", "--discard-messages", "-o", "json")
    (session,) = json.loads(released.stdout)["released_sessions"]
    assert (session["client_id"], session["topic"], session["messages"]) == (reader, None, None)
    assert reader not in broker("edge-a").sessions
