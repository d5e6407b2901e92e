"""`speck analyze`: by the service, and of a folder without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest

from speck.cli import waiting
from speck.cli.analyses import RANKING_LEGEND, render
from speck.client import Client
from speck.model.values import JsonObject
from tests.analyses import analysis, describe_measured
from tests.samples_by_hand import dataset, plan, running, site
from tests.unit.cli.conftest import Run, Server


def test_a_folder_that_cannot_be_analysed_is_told_in_words(speck: Run, tmp_path: Path) -> None:
    result = speck("analyze", "--dataset", str(tmp_path), "--master", "mesos")
    assert result.exit_code == 1
    assert "error: cannot analyse: 'mesos' is not a Spark master" in result.stderr


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("--window", "ten", "write 90s, 10m, 2h or 1d"),
        ("--window", "0", "'0' must be from 1s to 31d"),
        ("--ahead", "30s", "'30s' must be from 1m to 12h"),
    ],
)
def test_a_window_that_is_none_is_refused_by_its_option(
    speck: Run, option: str, value: str, remedy: str
) -> None:
    result = speck("analyze", option, value)
    assert result.exit_code != 0
    assert f"Invalid value for '{option}': " in result.stderr
    assert remedy in result.stderr


def test_a_dataset_that_is_nowhere_is_refused_with_the_forms(alone: Run, tmp_path: Path) -> None:
    missing = alone("analyze", "--dataset", str(tmp_path / "none"))
    assert missing.exit_code != 0
    assert f"there is no folder '{tmp_path / 'none'}'" in missing.output
    assert "file:, s3a: or hdfs:" in missing.output


def test_a_dataset_is_named_by_a_uri_too(alone: Run) -> None:
    result = alone("analyze", "--dataset", "s3a://UPPER/folder", "--master", "local[1]")
    assert result.exit_code == 1
    assert "write file:///folder, s3a://bucket/folder or hdfs://host:port/folder" in result.output


def samples(root: Path) -> Path:
    lazy = running("lazy", rate=1.0, busy=0.001)
    return dataset(root, [*running(), *lazy], [plan()], [*site("edge-a"), *site("cloud")])


@pytest.mark.long
def test_the_service_analyses_and_the_tables_tell_it(server: Server, speck: Run) -> None:
    samples(server.service.config.metrics)

    result = speck("analyze", "c")

    assert result.exit_code == 0, result.output
    assert "122 samples from" in result.stdout
    ranked = next(line for line in result.stdout.splitlines() if line.split()[:2] == ["1", "A"])
    assert ranked.split()[2:6] == ["edge-a", "edge-a", "5", "kB/s"]
    assert "lazy: busy for 0.60 s, less than 1 s" in result.stdout


@pytest.mark.long
def test_a_folder_is_analysed_without_a_service(alone: Run, tmp_path: Path) -> None:
    result = alone("analyze", "--dataset", str(samples(tmp_path / "metrics")), "-o", "json")
    assert "starting Spark (1 of 4)" in result.stderr
    assert "ranking jobs (4 of 4)" in result.stderr
    assert json.loads(result.stdout)["ended"] > json.loads(result.stdout)["started"]

    assert result.exit_code == 0, result.output
    costs = {job["job_name"]: job["core_s_per_record"] for job in json.loads(result.stdout)["jobs"]}
    assert costs == {"A": pytest.approx(0.002), "lazy": None}


def test_it_says_how_long_it_took_and_whether_spark_was_warm() -> None:
    assert "analysed in 20.0 s (Spark was warm)" in list(render(analysis([])))
    assert "analysed in 20.0 s (Spark was started for it)" in list(render(analysis([], warm=False)))


def rank(name: str, score: float | None) -> JsonObject:
    row = {"job_name": name, "site": "cloud", "edge": "edge-a", "score": score, "rank": 1}
    row |= {"wan_bytes_saved_per_s": score, "edge_core_s_per_s": 0.1}
    return {**row, "confidence": "high", "reasons": ["stateless: it says so"], "against": []}


def test_each_reason_is_said_once_with_its_jobs_and_columns_have_a_legend() -> None:
    ranking = [rank("filter", 5.0), rank("grow", -5.0), rank("new", None)]
    ranking[1]["against"] = ["it sends 5 B/s more than it receives"]
    lines = "\n".join(map(str, render(analysis([], ranking=ranking)))).splitlines()
    assert lines.count("  all 3 jobs: stateless: it says so") == 1
    assert lines.count("  grow: it sends 5 B/s more than it receives") == 1
    for column in RANKING_LEGEND:
        assert any(line.startswith(f"{column}: ") for line in lines)


def test_low_confidence_is_explained() -> None:
    ranking = [{**rank("filter", 5.0), "confidence": "low"}]
    overloaded = describe_measured("filter", "cloud", contended=1.0)
    lines = "\n".join(map(str, render(analysis([overloaded], ranking=ranking)))).splitlines()
    at = lines.index("Why low confidence")
    assert lines[at + 1] == "  filter: the machine was overloaded all the time"


def test_one_that_has_begun_does_not_say_that_it_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer() -> Iterator[JsonObject]:
        for _ in range(30):  # it has begun, and Spark has not said anything yet
            yield {"state": "running"}
        yield {"state": "running", "progress": {"step": "reading samples", "done": 0, "of": 3}}
        yield analysis([])

    answers = answer()
    monkeypatch.setattr(Client, "analysis", lambda _, __: next(answers))
    monkeypatch.setattr(waiting, "growing", lambda: repeat(0.0))
    assert waiting.await_analysis(Client(), "a1")["state"] == "done"
    assert capsys.readouterr().err.splitlines() == ["reading samples (1 of 3)"]


def test_what_waits_for_another_analysis_names_it_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running = {"state": "running", "waits_for": "a0"}
    answers = iter([running, running, {"state": "running"}, analysis([])])
    monkeypatch.setattr(Client, "analysis", lambda _, __: next(answers))
    monkeypatch.setattr(waiting, "growing", lambda: repeat(0.0))
    assert waiting.await_analysis(Client(), "a1")["state"] == "done"
    assert capsys.readouterr().err.splitlines() == ["waiting for analysis a0 to end"]
