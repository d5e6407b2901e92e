"""Fifty applies at once against the served speck."""

from __future__ import annotations

import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.server_process import Server, serving
from tests.waiting import wait_for

MANY = 50
LIVEZ_S = 10.0
SITE = {
    "name": "edge-a",
    "tier": "edge",
    "spe": {"kind": "memory", "address": "http://edge-a:8081"},
    "broker": {"kind": "memory", "address": "tcp://edge-a:1883"},
}


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """A server with one memory site and one jar."""
    jars = folder / "jars"
    jars.mkdir()
    with zipfile.ZipFile(jars / "a.jar", "w") as archive:
        archive.writestr("package/Job.class", b"")
    with serving(folder / "home", SPECK_JARS=str(jars)) as server:
        assert requests.post(f"{server.url}/sites", json=SITE, timeout=60).status_code == 201
        yield server


def description(name: str, note: int, jobs: int = 3) -> dict[str, Any]:
    """A chain of small jobs; `note` distinguishes revisions and needs no further slot."""
    return {
        "name": name,
        "jobs": [
            {
                "job_name": f"{name}-{n}",
                "site": "edge-a",
                "source_topic": f"{name}/{n}",
                "sink_topic": f"{name}/{n + 1}",
                "entry_class": "package.Job",
                "job_path": "a.jar",
                "args": ["--note", str(note)],
                "state": "stopped" if name != "c" else "running",
            }
            for n in range(jobs)
        ],
    }


def at_once(count: int, call: Callable[[int], requests.Response]) -> list[requests.Response]:
    """The answers to calls that all begin at one moment."""
    barrier = threading.Barrier(count)

    def work(number: int) -> requests.Response:
        barrier.wait(60)
        return call(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


@contextmanager
def alive(server: Server) -> Iterator[None]:
    """The service says in time that it lives, however much it has to do."""
    over = threading.Event()
    late: list[str] = []

    def ask() -> None:
        while not over.wait(0.05):
            try:
                answer = requests.get(f"{server.url}/livez", timeout=LIVEZ_S)
                if answer.status_code != 200:
                    late.append(answer.text)
            except requests.RequestException as error:
                late.append(repr(error))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert late == []


def settled(server: Server) -> list[dict[str, Any]]:
    """All changes, once none is under way."""

    def over() -> list[dict[str, Any]] | None:
        changes = requests.get(f"{server.url}/changes?limit=1000", timeout=60).json()["changes"]
        return None if any(it["state"] in ("running", "blocked") for it in changes) else changes

    changes: list[dict[str, Any]] = wait_for(over)
    return changes


def apply(server: Server, body: dict[str, Any], **headers: str) -> requests.Response:
    """The answer to an apply, asked again while as many are under way as may be (503)."""
    url = f"{server.url}/compositions"

    def ask() -> list[requests.Response]:
        answer = requests.post(url, json=body, headers=headers, timeout=120)
        return [] if answer.status_code == 503 else [answer]

    (answer,) = wait_for(ask, "a place")
    return answer


@pytest.mark.long
def test_of_many_applies_with_the_same_if_match_one_wins(tmp_path: Path) -> None:
    with served(tmp_path) as server, alive(server):
        first = apply(server, description("c", 0))
        assert first.status_code == 202
        settled(server)
        answers = at_once(
            MANY, lambda n: apply(server, description("c", n + 1), **{"If-Match": '"1"'})
        )
        counts = Counter(answer.status_code for answer in answers)
        assert counts[202] == 1
        assert counts[409] + counts[412] == MANY - 1, counts
        changes = settled(server)
        assert [it["state"] for it in changes] == ["done", "done"]
        winner = next(n + 1 for n, answer in enumerate(answers) if answer.status_code == 202)
        head = requests.get(f"{server.url}/compositions/c", timeout=60).json()
        assert head["deployed"]["revision"] == head["desired"]["revision"] == 2
        assert {job["args"][1] for job in head["jobs"]} == {str(winner)}
        assert {job["state"] for job in head["jobs"]} == {"running"}


@pytest.mark.long
def test_many_applies_of_one_composition_run_one_after_the_other(tmp_path: Path) -> None:
    with served(tmp_path) as server, alive(server):
        answers = at_once(MANY, lambda n: apply(server, description("c", n)))
        counts = Counter(answer.status_code for answer in answers)
        assert counts[202] >= 1
        assert counts[202] + counts[409] == MANY, counts
        for answer in answers:
            if answer.status_code == 409:
                assert answer.json()["change"], "it names the change in the way"
        changes = settled(server)
        assert len(changes) == counts[202]
        assert {it["state"] for it in changes} == {"done"}
        accepted = {answer.json()["revision"] for answer in answers if answer.status_code == 202}
        assert accepted == set(range(1, counts[202] + 1)), "no revision is given twice"


def test_many_compositions_are_applied_at_the_same_time(tmp_path: Path) -> None:
    with served(tmp_path) as server, alive(server):
        answers = at_once(MANY, lambda n: apply(server, description(f"c{n}", 1)))
        assert Counter(answer.status_code for answer in answers) == {202: MANY}
        assert len({answer.json()["change"] for answer in answers}) == MANY
        changes = settled(server)
        assert Counter(it["state"] for it in changes) == {"done": MANY}
        compositions = requests.get(f"{server.url}/compositions", timeout=60).json()["compositions"]
        assert {it["deployed_revision"] for it in compositions} == {1}
        assert len(compositions) == MANY


@pytest.mark.long
def test_many_with_one_idempotency_key_are_one_apply(tmp_path: Path) -> None:
    with served(tmp_path) as server, alive(server):
        answers = at_once(
            MANY, lambda _: apply(server, description("c", 1), **{"Idempotency-Key": "k-1"})
        )
        assert {answer.status_code for answer in answers} <= {200, 202}
        assert len({answer.json()["change"] for answer in answers}) == 1
        assert [it["state"] for it in settled(server)] == ["done"]
