"""The application that stays up leaves an archive of classes, from which the next one starts."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from speck.analyzer.jvm import find_archive
from speck.analyzer.request import Request
from speck.metrics.dataset.local import LocalStorage
from speck.service.spark_application import SparkApplication
from tests.samples_by_hand import SPAN_S, T0, dataset, plan, running, site
from tests.waiting import wait_for

COMMAND = [sys.executable, "-m", "speck.analyzer", "--serve", "--master", "local[2]"]


@pytest.mark.long
def test_the_next_application_starts_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "metrics"
    dataset(root, running(), [plan()], [*site("edge-a"), *site("cloud")])
    until = T0 + timedelta(seconds=SPAN_S)
    request = Request(LocalStorage(root), tmp_path / "analysis.json", until=until)

    first = SparkApplication(COMMAND, tmp_path / "first.log")
    try:
        assert first.ask(request, lambda _: None) == ("done", "")
        wait_for(find_archive().exists, "the archive of classes")
        assert first.ask(request, lambda _: None) == ("done", "")  # it goes on
    finally:
        first.end()
        first.await_end()

    second = SparkApplication(COMMAND, tmp_path / "second.log")
    try:
        assert second.ask(request, lambda _: None) == ("done", "")
        (jvm,) = (
            child
            for child in psutil.Process(second.pid).children(recursive=True)
            if child.name() == "java"
        )
        assert str(find_archive()) in {region.path for region in jvm.memory_maps()}
    finally:
        second.end()
        second.await_end()
