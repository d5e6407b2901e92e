"""The job `archive` between a real Mosquitto and a folder, under a runner, killed and moved; then
`speck batch` over what it has stored."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from speck.archive.files import list_files, open_archive, parse_batch
from speck.binding import Target, open_broker
from speck.fog.mosquitto import Mosquitto
from speck.fog.publisher import ReplayOptions
from speck.fog.replay import replay
from speck.fog.trace import Row, read_trace
from tests.archives import read_column
from tests.process_programs import spark_program
from tests.pyspark_jobs import TRACE
from tests.waiting import wait_for
from traffic.reference import count_valid

READER = "speck-0a1b2c3d-archive-traffic"
TOPIC = "traffic/archived-here"
BUSY_S = 600.0
"""A first batch on a busy machine takes minutes."""


@pytest.mark.long
def test_a_killed_job_archives_each_record_once(
    mosquitto_server: Mosquitto, tmp_path: Path
) -> None:
    rows = [row for row in read_trace(TRACE) if row.stream.startswith("A")][:1200]
    archive = tmp_path / "archive"
    broker = open_broker("mqtt", Target(mosquitto_server.address))
    broker.reserve(READER, TOPIC)
    epochs = count(1)

    def arguments() -> tuple[str, ...]:
        address = mosquitto_server.address
        words = f"--job-name archive --source-broker {address} --source-topic {TOPIC}"
        words += f" --sink-broker {address} --sink-topic {TOPIC}/none --client-id {READER}"
        words += f" --epoch {next(epochs)} --delivery exactly_once --sink-readers none"
        words += f" --records detections --target file://{archive} --checkpoint-interval 1s"
        return tuple(words.split())

    def feed(part: Sequence[Row], run: str) -> None:
        options = ReplayOptions({"A": mosquitto_server.address}, run, rate=200.0, topic=TOPIC)
        replay(part, options)

    def archived() -> list[int]:
        storage = open_archive(f"file:{archive}")
        return [] if not archive.exists() else read_column(storage, "time_ms")

    def await_valid(part: Sequence[Row]) -> None:
        times = sorted(row.detection.time_ms for row in part if row.detection and row.valid)
        wait_for(
            lambda: len([each for each in archived() if each is not None]) >= len(times),
            lambda: f"{len(times)} detections to be archived: {len(archived())}",
            BUSY_S,
        )
        assert sorted(each for each in archived() if each is not None) == times

    with spark_program("archive") as program:
        program.start(arguments())
        feed(rows[:400], "first")
        wait_for(lambda: len(archived()) > 0, "records to be archived", BUSY_S)
        state = program.kill()  # in the middle of a batch, or between two
        feed(rows[400:800], "second")
        program.start(arguments(), state)
        await_valid(rows[:800])
        state = program.stop()
        program.start(arguments(), state)
        for upto in range(850, 1201, 50):  # a batch each: the newest ones are not joined
            feed(rows[upto - 50 : upto], f"run-{upto}")
            await_valid(rows[:upto])
        program.stop()
    broker.release(READER, TOPIC, last_reader=True)
    broker.close()

    storage = open_archive(f"file:{archive}")
    batches = [parse_batch(file.name) for file in list_files(storage, "detections")]
    assert len({batch.writer for batch in batches if batch is not None}) == 1

    speck = [sys.executable, "-m", "speck.cli"]
    joined = [*speck, "batch", "compact", f"file:{archive}"]
    subprocess.run(joined, check=True, capture_output=True)
    assert len(list_files(storage, "detections")) < len(batches)
    shown = [*speck, "batch", "traffic", f"file:{archive}", "--master", "local[2]", "-o", "json"]
    result = subprocess.run(shown, check=True, capture_output=True, text=True)
    report = json.loads(result.stdout)
    assert report["detections"] == count_valid(rows)
    assert report["comparison"] is None
    assert {each["site"] for each in report["sensors"]} == {"A"}
