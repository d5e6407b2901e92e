"""The attacks of bench.overload, what is wanted of them, and how they are shown."""

from __future__ import annotations

import asyncio
import socket

import pytest

from bench import soak
from bench.attackers import Caller, Hold, find_callers, hold, list_holds
from bench.overload import CALLS, DESCRIPTORS, EXPANDING, HOLDING, SINGLE, checks
from bench.page.overload import SECTION
from speck.model.values import JsonObject


def row(**more: object) -> JsonObject:
    """An attack that was withstood."""
    return {
        "attack": "one byte",
        "livez_p99_ms": 5.0,
        "vital_p99_ms": 6.0,
        "reads_p99_ms": 9.0,
        "memory_mb": 80,
        "failures": {"livez": 0, "vital": 0, "reads": 0},
        "recovered_s": 0.2,
        "same_worker": True,
        **more,
    }


ROUTE = {
    "p50_ms": {"before": 0.4, "now": 0.3},
    "requests_per_s": {"before": 2000, "now": 2500},
    "p50_ratio": 0.75,
    "rate_ratio": 0.8,
}


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        ({}, 0),
        ({"vital_p99_ms": 1200.0}, 1),
        ({"livez_p99_ms": 1200.0}, 1),
        ({"recovered_s": 11.0}, 1),
        ({"recovered_s": None}, 1),
        ({"same_worker": False}, 1),
        ({"failures": {"livez": 0, "vital": 1, "reads": 0}}, 1),
    ],
)
def test_health_recovery_and_the_worker_are_judged(change: JsonObject, fails: int) -> None:
    verdicts = list(checks([row(**change)], row(), {"/jobs": ROUTE}))
    assert len(verdicts) == 6
    assert sum(not check.ok for check in verdicts) == fails


@pytest.mark.parametrize("attack", [EXPANDING[0], *HOLDING])
@pytest.mark.parametrize(("memory_mb", "fails"), [(380, 0), (381, 1)])
def test_memory_that_an_attack_takes_is_judged(memory_mb: int, fails: int, attack: str) -> None:
    expanded = row(attack=attack, memory_mb=memory_mb)
    verdicts = list(checks([expanded], row(), {"/jobs": ROUTE}))
    assert len(verdicts) == 7
    assert sum(not check.ok for check in verdicts) == fails


def test_a_worker_that_is_slower_than_the_one_before_is_a_fault() -> None:
    slower = {**ROUTE, "p50_ratio": 1.2}
    assert [check.name for check in checks([], row(), {"/jobs": slower}) if not check.ok] == [
        "/jobs against gunicorn's worker, p50_ratio"
    ]


@pytest.mark.parametrize("attack", [*SINGLE, *CALLS, *EXPANDING, *HOLDING, DESCRIPTORS])
def test_every_attack_has_its_attackers(attack: str) -> None:
    assert list_holds(attack, "token") or find_callers(attack, Caller("http://x", "token"))


def test_a_connection_that_is_closed_is_opened_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)

        async def attack() -> list[bytes]:
            address = server.getsockname()
            task = asyncio.ensure_future(hold(address, Hold(1, b"G")))
            first_bytes = []
            for _ in range(2):
                connection, _ = await asyncio.to_thread(server.accept)
                with connection:
                    first_bytes.append(await asyncio.to_thread(connection.recv, 1))
            task.cancel()
            return first_bytes

        assert asyncio.run(attack()) == [b"G", b"G"]


def test_the_page_shows_every_attack() -> None:
    calm = row(attack="none")
    text = SECTION.figures(
        {"summary": {"calm": calm, "attacks": [row()], "comparison": {"/jobs": ROUTE}}}  # type: ignore[arg-type]
    )
    assert "| no attack | 5 | 6 | 9 | 80 | – |" in text
    assert "| 200 sockets that send one byte | 5 | 6 | 9 | 80 | 0.2 |" in text
    assert "| GET /jobs | 0.4 / 0.3 | 0.75 | 2,000 / 2,500 | 0.8 |" in text


SOAKED = {
    "attack": "soak",
    "seconds": 480.0,
    "calls": 1234,
    "refused": 3,
    "failures": 0,
    "p99_ms": {},
    "before_mb": 90,
    "most_mb": 300,
    "after_mb": 190,
}


@pytest.mark.parametrize(
    ("change", "fails"), [({}, 0), ({"after_mb": 191}, 1), ({"failures": 1}, 1)]
)
def test_the_soak_is_judged(change: JsonObject, fails: int) -> None:
    assert sum(not check.ok for check in soak.checks({**SOAKED, **change})) == fails


def test_the_page_shows_a_soak_that_was_measured() -> None:
    summary = {"calm": row(attack="none"), "attacks": [], "comparison": {}, "soak": SOAKED}
    text = SECTION.figures({"summary": summary})  # type: ignore[arg-type]
    assert "| memory, MB, 480 s, 1,234 calls | 90 | 300 | 190 |" in text
    del summary["soak"]
    assert "memory, MB, 480" not in SECTION.figures({"summary": summary})  # type: ignore[arg-type]
