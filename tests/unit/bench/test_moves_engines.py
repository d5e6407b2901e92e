"""Moves, updates and kills on engines other than Flink: what is done, and what is claimed."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import pytest

from bench.engine_jobs import (
    ARCHIVE,
    COUNT,
    FILTER,
    FLINK,
    PASS,
    PROCESS,
    SPARK,
    WINDOWS,
    describe_program,
    write_jobs,
)
from bench.instruments.program_monitor import list_locked
from bench.moves_engines import (
    KINDS,
    TRIALS,
    UPDATE,
    Arrangement,
    checks,
    find_times,
    kinds_of_kills,
    next_change,
    summary,
)
from speck.model.values import JsonObject
from speck.spec.schema import composition_from_data

HERE = Arrangement(
    "c",
    "exactly_once",
    {PASS: FLINK, COUNT: SPARK},
    {PASS: "edge-a", COUNT: "cloud"},
    {PASS: 0, COUNT: 0},
)


def row(engine: str, delivery: str = "exactly_once", **more: object) -> JsonObject:
    counted = {"moves": 20, "published": 1000, "lost": 0, "repeated": 0, "miscounted": 0}
    without = {"repeated_by_moves": 0, "miscounted_by_moves": 0, "two_copies": 0}
    times = {key: [1.0, 2.0, 3.0] for key in KINDS}
    recovery = {"recovery_s": {what: [1.0, 2.0] for what in kinds_of_kills(engine)}}
    about = {"engine": engine, "delivery": delivery}
    return {**about, **counted, **without, **times, **recovery, **more}


@pytest.mark.parametrize("trial", TRIALS.values(), ids=lambda trial: trial.engine)
def test_a_change_moves_or_updates_one_job(trial: object) -> None:
    places = TRIALS[trial.engine].places  # type: ignore[attr-defined]
    dice, seen = random.Random(1), set()
    for _ in range(60):
        after, short, what = next_change(dice, HERE, places)
        seen.add((short, what))
        assert (after.notes[short] != HERE.notes[short]) == (what == UPDATE)
        moved = {name for name in HERE.sites if after.sites[name] != HERE.sites[name]}
        assert moved == (set() if what == UPDATE else {short})
        assert after.sites[short] in {*places[short], HERE.sites[short]}
    assert seen == {(short, what) for short in places for what in (UPDATE, "move")}


def test_only_one_job_of_spark_runs_at_a_time() -> None:
    trial = TRIALS[SPARK]
    assert [trial.engine_of(short, SPARK) for short in (PASS, COUNT)] == [FLINK, SPARK]
    assert set(trial.places) == {COUNT}


def test_the_chain_is_a_composition() -> None:
    jobs = composition_from_data(HERE.composition()).jobs
    assert [(job.job_name, job.engine) for job in jobs] == [("c-pass", None), ("c-count", SPARK)]


@pytest.mark.parametrize("engine", [FLINK, PROCESS, SPARK])
@pytest.mark.parametrize("what", [PASS, COUNT, FILTER, WINDOWS])
def test_every_job_is_there_on_every_engine(engine: str, what: str, tmp_path: Path) -> None:
    folders = write_jobs(tmp_path)
    fields = describe_program(engine, what)
    (file,) = [
        folder / fields["job_path"] for folder in folders if (folder / fields["job_path"]).exists()
    ]
    if engine == SPARK:
        return
    suffix, name = (".class", "/") if engine == FLINK else (".py", "/")
    entry = fields["entry_class"].replace(".", name) + suffix
    with zipfile.ZipFile(file) as archive:
        assert entry in archive.namelist()


def test_the_archive_holds_the_client_too(tmp_path: Path) -> None:
    write_jobs(tmp_path)
    with zipfile.ZipFile(tmp_path / ARCHIVE) as archive:
        assert {"speck_link/job.py", "bench_programs/counting.py"} <= set(archive.namelist())


def test_times_are_those_of_stops_and_starts_that_are_done() -> None:
    def operation(kind: str, state: str = "done") -> JsonObject:
        times = {"started": "2026-01-31T12:00:00.250Z", "ended": "2026-01-31T12:00:01.500Z"}
        return {"kind": kind, "state": state, **times}

    change = {"operations": [operation("stop"), operation("start"), operation("carry")]}
    skipped = {"kind": "start", "state": "skipped", "started": None, "ended": None}
    change["operations"].append(skipped)
    assert find_times(change) == {"stop": [1.25], "start": [1.25]}


def test_figures_stand_beside_those_of_flink() -> None:
    result = summary([row(FLINK), row(SPARK)])
    assert list(result) == [FLINK, SPARK]
    assert result[SPARK]["stop_s"] == {"p50": 2.0, "p95": 2.9, "max": 3.0, "of": 3}
    assert set(result[FLINK]["recovery_s"]) == {"program", "agent"}
    assert all(check.ok for check in checks(result))


@pytest.mark.parametrize(
    ("delivery", "more", "failed"),
    [
        ("exactly_once", {"lost": 1}, ["lost, spark"]),
        ("exactly_once", {"repeated": 1}, ["repeated, spark"]),
        ("at_least_once", {"repeated": 1, "miscounted": 1}, []),
        ("at_least_once", {"repeated_by_moves": 1}, ["repeated without a kill, spark"]),
        ("at_least_once", {"two_copies": 1}, ["two copies, spark"]),
    ],
)
def test_what_is_not_as_wanted_fails(delivery: str, more: JsonObject, failed: list[str]) -> None:
    verdicts = checks(summary([row(SPARK, delivery, **more)]))
    assert [check.name for check in verdicts if not check.ok] == failed


def test_leases_are_locks_of_flock() -> None:
    lines = [
        "1: POSIX  ADVISORY  WRITE 9 fe:00:11 0 EOF",
        "2: FLOCK  ADVISORY  WRITE 7 fe:0:12 0 E",
    ]
    assert list_locked("\n".join(lines)) == {12}
