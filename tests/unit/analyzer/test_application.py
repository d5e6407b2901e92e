"""The application that stays up: which JVM it starts, and when it warms up. Spark is a stand-in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from speck.analyzer import application, warm_up
from speck.analyzer.reading import find_newest
from speck.analyzer.request import AnalyzerRequest, is_small
from speck.metrics.dataset.local import LocalStorage
from speck.model.values import JsonObject
from tests.samples_by_hand import dataset, plan, running, site


class Started:
    """An application whose JVMs are noted, and what it sends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[bool] = []
        self.sent: list[JsonObject] = []
        self.archives: list[Any] = []
        monkeypatch.setattr(application, "answer", lambda *_: None)
        monkeypatch.setattr(application, "write_archive", self.archives.append)
        self.application = application._Application(self._start, self.sent.append)

    def _start(self, *, is_small: bool) -> Any:
        self.sizes.append(is_small)
        return MagicMock()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    return Started(monkeypatch)


def request(folder: Path) -> JsonObject:
    return AnalyzerRequest(LocalStorage(folder), folder / "out.json").to_json()


def set_size(monkeypatch: pytest.MonkeyPatch, *, small: bool) -> None:
    monkeypatch.setattr(application, "is_small", lambda _: small)


@pytest.mark.parametrize("small", [True, False])
def test_the_first_request_chooses_the_jvm(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    set_size(monkeypatch, small=small)

    started.application.answer(request(tmp_path))

    assert started.sizes == [small]
    assert started.sent == [{"step": "starting Spark"}, {"state": "done"}]


def test_a_larger_request_needs_another_jvm_and_a_smaller_one_does_not(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for small in (True, False):
        set_size(monkeypatch, small=small)
        started.application.answer(request(tmp_path))
    assert started.sent[-1] == {"state": "outgrown"}

    larger = Started(monkeypatch)
    for small in (False, True):
        set_size(monkeypatch, small=small)
        larger.application.answer(request(tmp_path))
    assert larger.sent[-1] == {"state": "done"}
    assert larger.sizes == [False]


@pytest.mark.parametrize(("before", "rounds"), [(None, warm_up.ROUNDS), (0, 0), (2, 2)])
def test_warming_up_ends_as_soon_as_a_request_waits(
    started: Started, monkeypatch: pytest.MonkeyPatch, before: int | None, rounds: int
) -> None:
    analysed: list[AnalyzerRequest] = []
    monkeypatch.setattr(warm_up, "answer", lambda _, request: analysed.append(request))

    started.application.warm_up(lambda: before is not None and len(analysed) >= before)

    assert started.sizes == [True]
    assert started.sent == []
    assert len(analysed) == rounds
    assert len(started.archives) == (before is None)


@pytest.mark.parametrize("small", [True, False])
def test_a_small_jvm_that_has_left_its_archive_is_replaced_by_one_that_starts_from_it(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    ended: list[Any] = []
    analysed: list[Any] = []
    monkeypatch.setattr(application, "write_archive", lambda _: not ended)
    monkeypatch.setattr(application, "end_jvm", ended.append)
    monkeypatch.setattr(warm_up, "answer", lambda spark, _: analysed.append(spark))
    set_size(monkeypatch, small=small)
    started.application.answer(request(tmp_path))
    assert started.application.lacks_archive

    started.application.leave_archive(lambda: True)  # a request waits
    assert started.application.lacks_archive

    started.application.leave_archive(lambda: False)
    assert not started.application.lacks_archive
    assert len(ended) == small
    assert started.sizes == ([True, True] if small else [False])
    assert len(analysed) == (warm_up.ROUNDS if small else 0)
    assert not set(analysed) & set(ended)


def test_what_fails_while_it_warms_up_is_left_to_the_first_request(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(warm_up, "answer", fail)
    set_size(monkeypatch, small=True)

    started.application.warm_up(lambda: False)
    started.application.answer(request(tmp_path))

    assert started.sent == [{"state": "done"}]


def test_the_samples_of_the_warm_up_are_a_whole_dataset(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)

    warm_up._write_samples(storage)

    assert {each.name for each in tmp_path.iterdir()} >= {"tasks", "sites", "links", "plans"}
    assert find_newest(storage)
    assert is_small(AnalyzerRequest(storage, tmp_path / "out.json"))


@pytest.mark.parametrize("ahead_s", [None, 60.0])
def test_few_rows_are_a_small_request(tmp_path: Path, ahead_s: float | None) -> None:
    root = dataset(tmp_path, running(), [plan()], [*site("edge-a")])
    assert is_small(AnalyzerRequest(LocalStorage(root), tmp_path / "out.json", ahead_s=ahead_s))


@pytest.mark.parametrize("use", [lambda folder: dataset(folder, running()), lambda folder: folder])
def test_a_request_is_large_by_the_bytes_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], Path]
) -> None:
    root = use(tmp_path)
    monkeypatch.setattr("speck.analyzer.reading.SMALL_BYTES", 10)
    is_empty = not any(root.iterdir())
    assert is_small(AnalyzerRequest(LocalStorage(root), tmp_path / "out.json")) is is_empty
