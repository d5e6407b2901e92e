"""Sites, and compositions to resolve against them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from speck.errors import InvalidError, Problem
from speck.model.composition import CompositionDescription, composition_of_one
from speck.model.job import JobDescription
from speck.model.site import Broker, Engine, Site, Tier
from speck.spec.job_files import JobFile
from speck.spec.resolve import resolve

FindFile = Callable[[str], JobFile]


def site(name: str, host: str, tier: Tier = Tier.EDGE) -> Site:
    return Site(
        name, tier, Engine("flink", f"http://{host}:8081"), Broker("mqtt", f"tcp://{host}:1883")
    )


SITES = {
    "edge-a": site("edge-a", "a"),
    "edge-b": site("edge-b", "b"),
    "cloud": site("cloud", "c", Tier.CLOUD),
}


def described(name: str = "A", **changes: Any) -> JobDescription:
    job = JobDescription(
        job_name=name,
        site="edge-a",
        source_topic=f"{name}-in",
        sink_topic=f"{name}-out",
        entry_class="package.ExampleJob",
        job_path="x.jar",
    )
    return replace(job, **changes)


def composed(*jobs: JobDescription, **more: Any) -> CompositionDescription:
    return CompositionDescription("c", jobs, **more)


def alone(job: JobDescription) -> CompositionDescription:
    return CompositionDescription(composition_of_one(job.job_name), (job,))


def problems(find_file: FindFile, *jobs: JobDescription, **more: Any) -> list[Problem]:
    ports = {key: more.pop(key) for key in ("inputs", "outputs") if key in more}
    with pytest.raises(InvalidError) as error:
        resolve(composed(*jobs, **ports), SITES, find_file, **more)
    assert error.value.status == 422
    return list(error.value.problems)
