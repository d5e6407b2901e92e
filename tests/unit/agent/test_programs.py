"""Orders to the runner of an engine beside the agent, and what that writes of itself."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from speck.agent import programs
from speck.agent.programs import Programs
from speck.errors import TransientError
from tests.waiting import wait_for

COMMAND = {"id": "ab-1", "order": {"do": "burn"}}


class Runner:
    """Carries out what lies in the folder when it is told to."""

    def __init__(self, state_folder: Path) -> None:
        self.folder = state_folder / "engine"
        (self.folder / "answers").mkdir(parents=True)
        self.done: list[Any] = []

    def orders(self) -> list[Path]:
        return [file for file in self.folder.glob("orders/*") if file.suffix != ".new"]

    def work(self) -> None:
        for file in self.orders():
            content = json.loads(file.read_text())
            answer = self.folder / "answers" / file.name
            if content["until"] > time.time() and not answer.exists():
                self.done.append(content["order"])
                answer.write_text(json.dumps({"nth": len(self.done)}))


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def order(runner: Runner, over: threading.Event | None = None) -> Any:
    """As an agent does that has just been started."""
    return Programs(runner.folder.parent).order(COMMAND, print, over or threading.Event())


def test_an_order_that_comes_again_gets_the_same_answer(runner: Runner) -> None:
    """The service did not get it, or the agent was killed before it could send it."""
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(order, runner)
        wait_for(runner.orders, "the order")
        runner.work()
        assert first.result() == {"answer": {"nth": 1}}
    again = order(runner)
    runner.work()
    assert again == {"answer": {"nth": 1}}
    assert runner.done == [COMMAND["order"]]


def test_an_order_of_an_agent_that_was_killed_is_not_carried_out_later(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_ORDER_S", 0.0)
    file = runner.folder / "orders" / "zz-9"
    file.parent.mkdir()
    file.write_text(json.dumps({"until": time.time() - 1, "order": {"do": "discard"}}))
    runner.work()
    with pytest.raises(TransientError, match="nobody takes the order"):
        order(runner)
    runner.work()
    assert runner.done == []
    os.utime(file, (1, 1))
    with pytest.raises(TransientError):
        order(runner)
    assert runner.orders() == []


def test_a_withdrawn_order_is_taken_away(runner: Runner) -> None:
    over = threading.Event()
    over.set()
    with pytest.raises(TransientError, match="withdrawn"):
        order(runner, over)
    assert runner.orders() == []


def test_old_answers_and_pieces_of_artifacts_are_deleted(runner: Runner) -> None:
    old, new = runner.folder / "answers" / "old", runner.folder / "answers" / COMMAND["id"]
    parts = runner.folder / "artifacts"
    parts.mkdir()
    left, whole = parts / f"{'a' * 64}.part", parts / ("b" * 64)
    for file in (old, new, left, whole):
        file.write_text("{}")
    for file in (old, left, whole):
        os.utime(file, (1, 1))
    assert order(runner) == {"answer": {}}
    assert [each.exists() for each in (old, new, left, whole)] == [False, True, False, True]


def test_a_status_that_is_too_large_is_reported_until_it_is_small_again(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_TELL_S", 0.01)
    status, over = runner.folder / "status.json", threading.Event()
    status.write_text(json.dumps({"text": "x" * (1 << 20)}))
    reports: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        watch = pool.submit(Programs(runner.folder.parent).watch, {}, reports.append, over)
        wait_for(lambda: reports, "a report")
        assert reports[0]["status"] is None
        assert "more than 1048576 bytes" in reports[0]["problem"]
        status.write_text(json.dumps({"text": "short"}))
        wait_for(lambda: reports[-1]["status"] == {"text": "short"}, "the status")
        over.set()
        watch.result()


def test_a_status_grows_old_also_while_the_clock_is_set_back(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    (runner.folder / "status.json").write_text("{}")
    monkeypatch.setattr(programs, "_TELL_S", 0.0)
    reports: list[Any] = []
    over, agent = threading.Event(), Programs(runner.folder.parent)
    real = time.time
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):  # the service may watch anew
            over.clear()
            watch = pool.submit(agent.watch, {}, reports.append, over)
            wait_for(lambda: reports, "a report")
            monkeypatch.setattr(time, "time", lambda: real() - 3600)
            before = len(reports)
            wait_for(lambda before=before: len(reports) > before + 3, "later reports")
            over.set()
            watch.result()
    ages = [report["age_s"] for report in reports]
    assert ages == sorted(ages)
    assert ages[-1] > 0.3


def test_an_artifact_that_is_sent_by_several_at_once_is_stored(tmp_path: Path) -> None:
    """As by several starts of one program: each piece may arrive more than once."""
    stored, senders = Programs(tmp_path), 8
    begin = threading.Barrier(senders)

    def send(content: bytes) -> None:
        command = {"sha256": hashlib.sha256(content).hexdigest(), "total": len(content)}
        begin.wait()
        offset = 0
        while offset < len(content):
            piece = b64encode(content[offset : offset + 4]).decode()
            answer = stored.store(
                {**command, "offset": offset, "piece": piece}, lambda _: None, threading.Event()
            )
            offset = answer["bytes"]

    with ThreadPoolExecutor(senders) as pool:
        for number in range(20):
            content = f"program {number}".encode()
            list(pool.map(send, [content] * senders))
            file = tmp_path / "engine" / "artifacts" / hashlib.sha256(content).hexdigest()
            assert file.read_bytes() == content
