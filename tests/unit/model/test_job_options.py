"""Each option of a job goes from its text to the store and to the API's answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from speck.api.shapes import JobShape
from speck.model.composition import CompositionDescription
from speck.model.job import OPTIONS, Job, JobDescription
from speck.spec.differences import differences
from speck.spec.resolve import resolve
from speck.spec.schema import dump_job, job_from_data
from speck.store.codec import from_json, to_json
from tests.unit.spec.conftest import find_file
from tests.unit.spec.resolving import SITES, FindFile

__all__ = ["find_file"]

PLAIN: dict[str, Any] = {
    "job_name": "A",
    "site": "edge-a",
    "source_topic": "in",
    "sink_topic": "out",
    "entry_class": "package.ExampleJob",
    "job_path": "x.jar",
}
SET: dict[str, Any] = {
    "args": ["--x", "ü"],
    "parallelism": 3,
    "state": "stopped",
    "delivery": "exactly_once",
    "upgrade": "stateless",
    "pinned": True,
    "stateful": False,
    "link": {"batch_records": 100, "linger_ms": 5, "compression": "zstd"},
    "memory_mb": 64,
}


@pytest.fixture
def resolved(find_file: FindFile) -> Job:
    (job,) = resolve_one({**PLAIN, **SET}, find_file)
    return job


def resolve_one(data: dict[str, Any], find_file: FindFile) -> tuple[Job, ...]:
    description = CompositionDescription("demo", (job_from_data(data),))
    return resolve(description, SITES, find_file).composition.jobs


def test_this_test_sets_every_option_to_something_else() -> None:
    plain, other = job_from_data(PLAIN).options(), job_from_data({**PLAIN, **SET}).options()
    assert list(SET) == list(OPTIONS)
    assert [name for name in OPTIONS if plain[name] == other[name]] == []


def test_what_is_read_is_written_again() -> None:
    assert dump_job(job_from_data({**PLAIN, **SET})) == {**PLAIN, **SET}


def test_a_resolved_job_has_them_and_is_stored_with_them(resolved: Job) -> None:
    assert from_json(json.loads(json.dumps(to_json(resolved))), Job) == resolved
    assert to_json(resolved).keys() >= OPTIONS.keys()


def test_the_api_shows_them() -> None:
    observed = {
        "composition": None,
        "revision": 1,
        "state": "running",
        "polled_at": None,
        "engine_job_id": None,
        "attempt": None,
        "error": None,
        "failures": 0,
        "records_left_out": 0,
        "records_lost": 0,
        "sessions_lost": 0,
    }
    assert JobShape().validate({**PLAIN, **SET, **observed}) == {}
    missing = JobShape().validate({**PLAIN, **observed})
    assert missing.keys() == OPTIONS.keys() - {"link", "memory_mb", "stateful", "state"}
    fields = JobShape().fields
    assert [name for name in OPTIONS if not fields[name].metadata["description"]] == []


@pytest.mark.parametrize("name", OPTIONS)
def test_one_that_restarts_makes_another_job(name: str, resolved: Job, find_file: FindFile) -> None:
    (plain,) = resolve_one(PLAIN, find_file)
    changed = replace(plain, **{name: getattr(resolved, name)})
    restarts = OPTIONS[name].restarts
    assert bool(differences(plain, changed)) is restarts
    assert bool(differences(plain, changed)) is restarts


def test_a_description_says_where_before_how() -> None:
    names = list(dump_job(JobDescription("A", "in", "out", "x.A", "x.jar", site="a", pinned=True)))
    assert names[:3] == ["job_name", "source_topic", "sink_topic"]
