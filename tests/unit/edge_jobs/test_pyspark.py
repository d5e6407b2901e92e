"""What programs in PySpark share, without Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from speck_spark.arguments import ArgumentFaultError, Arguments
from speck_spark.reporting import Progress, Reporter, Requests, describe_links, read_links


def batch(number: int, rows: int, **more: Any) -> dict[str, Any]:
    durations = {"addBatch": 5, "walCommit": 2, "commitOffsets": 3, "triggerExecution": 20}
    return {
        "batchId": number,
        "timestamp": at(number),
        "numInputRows": rows,
        "durationMs": durations,
        **more,
    }


def at(seconds: float) -> str:
    return f"2026-03-01T12:00:{seconds:06.3f}Z"


def test_arguments_are_pairs_and_flags() -> None:
    arguments = Arguments(["--a", "1", "--b=--2", "--c", "--d", "5s", "--a", "3"])
    assert arguments.values == {"a": "3", "b": "--2", "c": "true", "d": "5s"}
    assert arguments.get_ms("d", 1) == 5000
    assert arguments.get_ms("e", 7) == 7
    assert arguments.get("e", "otherwise") == "otherwise"


@pytest.mark.parametrize("words", [["a"], ["--"], ["--a", "1", "b"]])
def test_other_words_are_refused(words: list[str]) -> None:
    with pytest.raises(ArgumentFaultError, match=r"^cannot read the arguments: "):
        Arguments(words)


@pytest.mark.parametrize("text", ["5", "0s", "-1s", "1 year", ""])
def test_a_span_has_a_unit_and_is_above_0(text: str) -> None:
    with pytest.raises(ArgumentFaultError, match=r'^cannot use --window ".*": it must be a'):
        Arguments([f"--window={text}"]).get_ms("window", 1)


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(ArgumentFaultError, match="argument --job-name is missing"):
        Arguments([]).get("job-name")


def test_each_batch_counts_once() -> None:
    progress = Progress()
    assert progress.add([batch(0, 4), batch(1, 6)])
    assert not progress.add([batch(0, 4), batch(1, 6)])
    idle = batch(2, 0)
    del idle["durationMs"]["addBatch"]
    assert not progress.add([batch(1, 6), idle])
    assert progress.add([idle, batch(2, 5)])
    assert (progress.records_in, progress.busy_ms, progress.log_ms) == (15, 60, 5)


def test_time_is_that_of_triggers_and_between_them_and_never_falls() -> None:
    """A batch that runs for long is neither busy nor idle before it has ended."""
    progress = Progress()
    progress.add([batch(0, 4), batch(1, 6)])
    assert (progress.busy_ms, progress.idle_ms) == (40, 980)
    progress.add([batch(0, 4), batch(1, 6)])
    assert (progress.busy_ms, progress.idle_ms) == (40, 980)
    waiting = batch(2, 0, timestamp=at(2), durationMs={"triggerExecution": 3})
    progress.add([batch(1, 6), waiting])
    assert (progress.busy_ms, progress.idle_ms) == (40, 1963)
    long = batch(2, 9, timestamp=at(3), durationMs={"addBatch": 5, "triggerExecution": 20_000})
    progress.add([waiting, long])
    assert (progress.busy_ms, progress.idle_ms) == (20_040, 2960)


def test_rows_that_came_too_late_are_counted_and_state_is_as_it_is_now() -> None:
    progress = Progress()
    operator = {"numRowsDroppedByWatermark": 2, "numRowsTotal": 7, "memoryUsedBytes": 900}
    late = {"stateOperators": [operator, operator]}
    progress.add([batch(0, 4, **late), batch(1, 4, **late)])
    assert progress.counters == {"late_dropped": 8}
    assert (progress.state_rows, progress.state_bytes) == (14, 1800)


def test_what_our_operators_count_is_summed_up_by_name() -> None:
    def counting(number: int, **counts: int | None) -> dict[str, Any]:
        return batch(number, 1, observedMetrics={"speck_merge": counts, "of_the_user": {"x": 1}})

    progress = Progress()
    progress.add([counting(0, late_dropped=2, jumps=1), counting(1, late_dropped=3, jumps=0)])
    progress.add([counting(1, late_dropped=3, jumps=0), counting(2, late_dropped=None, jumps=None)])
    assert progress.counters == {"late_dropped": 5, "jumps": 1}


def test_links_that_a_job_does_not_have_are_left_out_of_its_report() -> None:
    assert describe_links(read_links("")) == {}
    text = "source.connected=0\nsource.linkProblem=cannot reach it: a=b\nsource.messagesLost=3"
    described = describe_links(read_links(text))
    assert described["connected"] is False
    assert described["problem"] == "cannot reach it: a=b"
    assert described["lost"] == 3
    assert "records_out" not in described
    assert describe_links({"sink.records": "7", "sink.bytes": "70"})["records_out"] == 7


def test_a_report_names_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Reporter(1000).write(ready=True)
    monkeypatch.setattr(
        os,
        "environ",
        {
            "SPECK_REPORT": str(tmp_path / "report.json"),
            "SPECK_REQUEST": str(tmp_path / "request"),
            "SPECK_START": "3",
        },
    )
    reporter = Reporter(500)
    assert reporter.read_request() == 0
    (tmp_path / "request").write_text("4")
    assert reporter.read_request() == 4
    reporter.write(ready=False)
    content = json.loads((tmp_path / "report.json").read_text())
    assert content == {"start": 3, "interval_ms": 500, "ready": False}


def test_a_report_that_the_disk_does_not_take_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "environ", {"SPECK_REPORT": str(tmp_path / "file/report.json")})
    Reporter(1000).write(ready=True)
    assert not list(tmp_path.rglob("*.json"))


def ended(*seconds: float) -> list[dict[str, Any]]:
    return [{"timestamp": at(each)} for each in seconds]


def test_a_checkpoint_on_request_is_complete_once_a_later_trigger_has_ended() -> None:
    requests = Requests()
    requests.look(0, [], is_active=True)
    requests.look(0, ended(1, 2), is_active=False)
    requests.look(1, ended(1, 2), is_active=False)
    assert requests.complete == 0
    requests.look(1, ended(1, 2, 3), is_active=True)
    assert requests.complete == 1


def test_the_trigger_that_runs_at_a_request_does_not_complete_it() -> None:
    requests = Requests()
    requests.look(0, ended(1), is_active=True)
    requests.look(1, ended(1), is_active=True)
    requests.look(1, ended(1, 2), is_active=False)
    assert requests.complete == 0
    requests.look(1, ended(1, 2, 3), is_active=True)
    assert requests.complete == 1


def test_requests_that_come_faster_than_batches_are_completed() -> None:
    requests = Requests()
    times: list[float] = [1]
    for asked in range(1, 31):
        if asked % 3 == 0:  # of each batch, the others come while it runs
            times.append(1 + asked)
        requests.look(asked, ended(*times[-20:]), is_active=True)
        assert requests.complete >= asked - 6
    assert requests.complete < 30
