"""One fog and one served speck for all end-to-end tests; each test leaves them empty."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from speck.config import Config
from speck.fog.paths import edge_jar
from speck.fog.service import serving
from speck.fog.sites import Fog
from speck.service import Service
from tests.e2e.harness import Speck

FOR_TESTS = {
    "SPECK_METRICS_S": "2",
    # Spark leaves no archive of its classes, nor does it start anew from one, while others run
    "XDG_CACHE_HOME": os.devnull,
}
"""What the served speck does otherwise than a user's."""


@pytest.fixture(scope="session")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The service's jar folder: a copy, since a build may replace the jar meanwhile."""
    folder = tmp_path_factory.mktemp("jars")
    shutil.copy(edge_jar("speck-jobs.jar"), folder)
    return folder


@pytest.fixture(scope="session")
def served(fog: Fog, jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speck]:
    """A speck that knows the fog's sites, in a process of its own."""
    home = tmp_path_factory.mktemp("speck") / "home"
    once = Service(Config(home=home))
    installation = once.records.installation
    once.close()
    with serving(home, [jars], more=FOR_TESTS) as service:
        for body in fog.site_bodies():
            answer = requests.post(f"{service.url}/sites", json=body, timeout=30)
            assert answer.status_code == 201, answer.text
        fog.start_agents(service.url)
        yield Speck(service.url, fog, jars, installation)


@pytest.fixture
def agents_back(fog: Fog) -> Iterator[None]:
    """For tests that let the sites' agents ask another service: they ask the former one again."""
    before = fog.service
    yield
    if before is not None:
        fog.start_agents(before)


@pytest.fixture
def speck(served: Speck) -> Iterator[Speck]:
    """The served speck; what the test makes through it is removed in the end."""
    speck = replace(
        served,
        stack=type(served.stack)(),
        compositions={},
        jobs_alone={},
        sessions=set(),
    )
    yield speck
    speck.clean_up()
