"""A service whose metrics are in S3: what it writes, exports, imports and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from speck.config import Config
from speck.errors import ConflictError
from speck.metrics.dataset.reading import read
from speck.metrics.dataset.schema import TASKS
from speck.metrics.dataset.writer import Writer
from speck.service import Service
from tests.dataset_rows import task
from tests.s3_server import s3_server


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Config]:
    with s3_server() as env:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        yield Config(home=tmp_path / "home", metrics_uri="s3a://metrics/of-speck", watch_s=0)


def test_rows_are_in_s3_and_only_what_passes_through_is_in_the_home(config: Config) -> None:
    with closing(Service(config)) as service:
        writer = Writer(service.storage)
        writer.append(TASKS, [task(0), task(1)])
        writer.flush()

        export = service.dataset.export("tasks", "jsonl")
        content = b"".join(export.content)
        again = service.dataset.import_chunks([content], "rows", "jsonl", "tasks")

        assert export.rows == 2
        assert (again.rows, again.new) == (2, 0)
        assert read(service.storage, TASKS).num_rows == 2
        assert [path.name for path in config.metrics.iterdir()] == [".lock"]


def test_another_service_does_not_start_there(config: Config, tmp_path: Path) -> None:
    with closing(Service(config)) as service:
        other = replace(config, home=tmp_path / "other")
        with pytest.raises(ConflictError, match=service.records.installation):
            Service(other)
    Service(config).close()
    Service(replace(other, metrics_uri="s3a://metrics/of-another")).close()


def test_a_store_that_is_away_stops_nothing(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with closing(Service(config)) as service:
        writer = Writer(service.storage)
        writer.append(TASKS, [task(0)])
        service.recorder.flush()
        assert writer.waiting == 1
