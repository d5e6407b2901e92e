"""The audit log of a service that is killed while it acts."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from speck.clock import SystemClock
from speck.service.tokens import Tokens
from speck.store.audit_log import read_entries, verify
from speck.store.audit_seal import StoredSeal
from speck.store.records import Records
from tests.server_process import serving
from tests.waiting import wait_for

KILLS = 2
WRITERS = 6


@pytest.mark.long
def test_every_act_has_a_line_though_the_service_is_killed(tmp_path: Path) -> None:
    home, clock = tmp_path / "home", SystemClock()
    records = Records.open(home / "store", clock)
    secret = Tokens(records, clock).add("root", "admin")
    records.store.close()
    for kill in range(KILLS):
        with serving(home) as server:
            _add_tokens_until_killed(server.url, secret, kill, server.workers()[0])
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
    with serving(home):
        pass  # it reports what the last kill has cut short
    records = Records.open(home / "store", clock)
    names = {token.name for token in Tokens(records, clock).all()} - {"root"}
    seal = StoredSeal(records).load()
    records.store.close()
    outcomes = {201, "unknown"}
    entries = [each for each in read_entries(home / "audit") if each["outcome"] in outcomes]
    recorded = {each["object"].removeprefix("/tokens/") for each in entries}
    assert len(names) > KILLS * WRITERS
    assert names <= recorded
    assert verify(home / "audit", seal=seal).faults == ()


def _add_tokens_until_killed(url: str, secret: str, kill: int, worker: int) -> None:
    counts = [0] * WRITERS

    def write(writer: int) -> None:
        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {secret}"
        with suppress(requests.RequestException):
            while True:
                name = f"t{kill}-{writer}-{counts[writer]}"
                body = {"name": name, "role": "viewer"}
                session.post(f"{url}/tokens", json=body, timeout=60).raise_for_status()
                counts[writer] += 1

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    wait_for(lambda: min(counts) > 2)
    os.kill(worker, signal.SIGKILL)
    for thread in threads:
        thread.join(60)
