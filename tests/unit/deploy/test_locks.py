"""A lock for each name."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from speck.deploy.locks import NamedLocks
from tests.service_helpers import LIMIT_S


@pytest.fixture
def eager_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_all_who_ask_at_once_get_the_same_lock(eager_switches: None) -> None:
    for _ in range(50):
        locks, meeting = NamedLocks(), threading.Barrier(8)
        results: list[object] = []

        def ask(
            locks: NamedLocks = locks,
            meeting: threading.Barrier = meeting,
            results: list[object] = results,
        ) -> None:
            meeting.wait(LIMIT_S)
            results.append(locks["A"])

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        assert len(results) == 8
        assert len(set(map(id, results))) == 1


def test_names_have_locks_of_their_own() -> None:
    locks = NamedLocks()
    assert locks["A"] is locks["A"]
    assert locks["A"] is not locks["B"]
