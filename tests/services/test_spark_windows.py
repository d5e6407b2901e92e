"""The job `merge` in PySpark on a real Mosquitto, under a runner, killed and moved."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from speck.binding import Target, open_broker
from speck.fog.mosquitto import Mosquitto
from speck.fog.replay import end_markers, expand
from speck.fog.trace import read_trace
from tests.process_programs import spark_program
from tests.pyspark_jobs import TRACE
from tests.python_jobs import publisher, reading
from tests.waiting import wait_for
from traffic.reference import compare_global, compute_global

READER, OTHER = "speck-0a1b2c3d-merge-windows", "windows-spy"
TOPIC, RESULTS = "traffic/windows-in", "traffic/windows-out"
BUSY_S = 600.0
"""A first batch on a busy machine takes minutes."""


@pytest.mark.long  # quick: WindowStateTest; batches that are run again in test_pyspark_windows.py
def test_a_killed_merge_gives_each_revision_once_and_the_last_as_computed_plainly(
    mosquitto_server: Mosquitto, tmp_path: Path
) -> None:
    rows = [row for row in read_trace(TRACE) if row.stream.startswith("A")][:1200]
    payloads = [message.payload for message in (*expand(rows), *end_markers(rows))]
    streams = ",".join(sorted({row.stream for row in rows}))
    address = mosquitto_server.address
    broker = open_broker("mqtt", Target(address))
    broker.reserve(READER, TOPIC)
    broker.reserve(OTHER, RESULTS)
    epochs = count(1)

    def arguments() -> tuple[str, ...]:
        words = f"--job-name merge --source-broker {address} --source-topic {TOPIC}"
        words += f" --sink-broker {address} --sink-topic {RESULTS} --client-id {READER}"
        words += f" --epoch {next(epochs)} --delivery exactly_once --sink-readers some"
        words += f" --streams {streams} --window 60s --idle-limit 120s"
        return tuple(words.split())

    with (
        spark_program("merge") as program,
        reading(address, RESULTS, OTHER) as records,
        publisher(address) as publish,
    ):

        def results() -> list[dict[str, Any]]:
            by_stamp = {record.stamp: record.payload for record in records}
            return [json.loads(payload) for payload in by_stamp.values()]

        def feed(first: int, last: int) -> None:
            publish(TOPIC, payloads[first:last], first + 1)

        def await_more(than: int) -> None:
            wait_for(lambda: len(results()) > than, "a result", BUSY_S)

        program.start(arguments())
        feed(0, 400)
        await_more(0)
        state = program.kill()  # in the middle of a batch, or between two
        known = len(results())
        feed(400, 800)
        program.start(arguments(), state)
        await_more(known)
        state = program.stop()
        feed(800, len(payloads))
        program.start(arguments(), state)
        expected = compute_global(rows)
        wait_for(
            lambda: compare_global(expected, results()).equal,
            lambda: f"the results: {compare_global(expected, results())}",
            BUSY_S,
        )
        program.stop()
        keys = [(each["window_start_ms"], each["revision"]) for each in results()]
        assert len(keys) == len(set(keys)), "a revision came twice"
    for reader, topic in ((READER, TOPIC), (OTHER, RESULTS)):
        broker.release(reader, topic, last_reader=True)
    broker.close()
