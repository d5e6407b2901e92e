"""A fog for the faults, apart from the one that other tests share: here sites die."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from speck.fog.paths import edge_jar
from speck.fog.site_record import KAFKA, MOSQUITTO
from speck.fog.sites import Fog
from tests.faults.trial import Trial

MakeTrial = Callable[..., Trial]

FOGS = {MOSQUITTO: "fault_fog", KAFKA: "kafka_fault_fog"}
EACH_BROKER = pytest.mark.parametrize("cloud_broker", FOGS, indirect=True)
"""Once with Mosquitto in the cloud and once with Kafka; edges have Mosquitto."""


@pytest.fixture(scope="session")
def fault_jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The service's jar folder: a copy, since a build may replace the jar meanwhile."""
    folder = tmp_path_factory.mktemp("fault-jars")
    shutil.copy(edge_jar("speck-jobs.jar"), folder)
    return folder


@pytest.fixture(scope="session")
def fault_fog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fog]:
    """edge-a, edge-b and cloud, each a single JVM that keeps its state to itself."""
    fog = Fog(tmp_path_factory.mktemp("fault-fog"))
    fog.up(edges=2, slots=6, cloud_slots=12, shared_state=False)
    yield fog
    fog.down()


@pytest.fixture(scope="session")
def kafka_fault_fog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fog]:
    """The same with Kafka in the cloud."""
    fog = Fog(tmp_path_factory.mktemp("kafka-fault-fog"))
    fog.up(edges=2, slots=6, cloud_slots=12, shared_state=False, cloud_broker=KAFKA)
    yield fog
    fog.down()


@pytest.fixture
def cloud_broker(request: pytest.FixtureRequest) -> str:
    """Its kind, where a test does not say otherwise."""
    kind: str = getattr(request, "param", MOSQUITTO)
    return kind


@pytest.fixture
def make_trial(
    fault_jars: Path, tmp_path: Path, cloud_broker: str, request: pytest.FixtureRequest
) -> Iterator[MakeTrial]:
    """Makes one trial with its service; `fog` by name of its fixture."""
    trials: list[Trial] = []

    def make(delivery: str = "exactly_once", fog: str = FOGS[cloud_broker]) -> Trial:
        name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:40]
        trial_fog: Fog = request.getfixturevalue(fog)
        trial = Trial(name.strip("-"), trial_fog, tmp_path / "home", fault_jars, delivery)
        trials.append(trial)
        trial.register()
        return trial

    yield make
    for trial in trials:
        trial.close()


@pytest.fixture
def trial(make_trial: MakeTrial) -> Trial:
    """Under exactly_once, over the fog of single JVMs."""
    return make_trial()
