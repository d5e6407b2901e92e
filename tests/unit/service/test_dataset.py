"""The dataset in the service: buffered rows are exported, refused imports leave nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from speck.config import Config
from speck.errors import InvalidError
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.schema import TASKS
from speck.metrics.dataset.writer import Writer
from speck.service.dataset import Dataset
from tests.dataset_rows import HandClock, task


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def writer(tmp_path: Path, clock: HandClock) -> Writer:
    return Writer(LocalStorage(tmp_path / "metrics"), clock=clock)


@pytest.fixture
def dataset(tmp_path: Path, clock: HandClock, writer: Writer) -> Dataset:
    return Dataset(Config(home=tmp_path, metrics_days=7), writer.storage, clock, writer.flush)


def test_rows_that_wait_are_exported_too(dataset: Dataset, writer: Writer) -> None:
    writer.append(TASKS, [task(0), task(1)])
    result = dataset.export("tasks", "csv")
    content = b"".join(result.content)
    assert (result.rows, result.damaged) == (2, ())
    assert len(content) == result.size
    assert len(content.splitlines()) == 3
    assert not list(writer.storage.local.glob(".export*"))


def test_only_what_will_be_dropped_is_warned_of(dataset: Dataset, writer: Writer) -> None:
    row = b"engine_job_id,vertex,subtask,busy_ms,at\na,v,0,1,"
    new = dataset.import_chunks([row, b"2026-02-27T12:00:00Z\n"], "x.csv", "csv")
    assert (new.new, new.warnings) == (1, ())
    old = dataset.import_chunks([row, b"2026-02-01T12:00:00Z\n"], "x.csv", "csv")
    assert "SPECK_METRICS_DAYS=0 keeps all" in old.warnings[0]


def test_a_refused_file_leaves_nothing(dataset: Dataset, writer: Writer) -> None:
    with pytest.raises(InvalidError, match="cannot find table 'task'"):
        dataset.import_chunks([b"x"], "x.csv", "csv", "task")
    with pytest.raises(InvalidError, match="fit no table"):
        dataset.import_chunks([b"x"], "x.csv", "csv")
    assert [path.name for path in writer.storage.local.iterdir()] == []
