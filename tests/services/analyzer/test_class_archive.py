"""The application that stays up leaves an archive of classes, from which the next one starts."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from speck.analyzer.jvm import find_archive
from speck.analyzer.process import SparkApplication
from speck.analyzer.request import AnalyzerRequest
from speck.metrics.dataset.local import LocalStorage
from tests.samples_by_hand import SPAN_S, T0, dataset, plan, running, site
from tests.waiting import wait_for

COMMAND = [sys.executable, "-m", "speck.analyzer", "--serve", "--master", "local[2]"]


@pytest.mark.alone
@pytest.mark.long
def test_the_next_application_starts_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "metrics"
    dataset(root, running(), [plan()], [*site("edge-a"), *site("cloud")])
    until = T0 + timedelta(seconds=SPAN_S)
    request = AnalyzerRequest(LocalStorage(root), tmp_path / "analysis.json", until=until)

    first = SparkApplication(COMMAND, tmp_path / "first.log")
    try:
        first.warm_up()
        wait_for(find_archive().exists, "the archive of classes")
        wait_for(lambda: _starts_from_archive(first), "a JVM that starts from the archive")
        assert first.ask(request, lambda _: None) == ("done", "")
    finally:
        first.end()
        first.await_end()

    second = SparkApplication(COMMAND, tmp_path / "second.log")
    try:
        assert second.ask(request, lambda _: None) == ("done", "")
        assert _starts_from_archive(second)
    finally:
        second.end()
        second.await_end()


def _starts_from_archive(application: SparkApplication) -> bool:
    """Whether the only JVM of an application has mapped the archive."""
    children = psutil.Process(application.pid).children(recursive=True)
    maps: list[set[str]] = []
    for child in children:
        with suppress(psutil.NoSuchProcess):
            if child.name() == "java":
                maps.append({region.path for region in child.memory_maps()})
    return len(maps) == 1 and str(find_archive()) in maps[0]
