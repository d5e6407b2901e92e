"""Runs of the traffic application do not meet in a window."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bench import traffic_run
from bench.traffic_run import WINDOW_MS, Bench


def test_a_feed_begins_past_the_window_in_which_the_last_one_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []
    begun: list[list[float]] = []
    monkeypatch.setattr(traffic_run, "sleep_until", waited.append)
    monkeypatch.setattr(traffic_run, "DetectionFeed", lambda *_, **__: begun.append([*waited]))
    bench: Any = Bench.__new__(Bench)
    bench.brokers = {f"edge-{each}": "tcp://127.0.0.1:1" for each in "abc"}
    bench.templates = {}
    ended = time.monotonic()
    bench.feed(10.0)
    assert begun == [waited]
    assert waited[0] - ended > WINDOW_MS / 1000
