"""Real servers for all tests: each is started once, by the first test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from speck.fog.sites import Fog
from tests.apart import apart_fog
from tests.flink_server import flink, trial_jar
from tests.mosquitto_server import mosquitto_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parent
SHARED = {
    "contracts": "flink",
    "faults": "faults",
    "flink": "flink",
    "fog": "fog",
    "spark": "spark",
    "trial_jar": "flink",
}
"""Fixture, or folder of tests -> group."""

# how fast the machine is says nothing of what is tested
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

__all__ = ["flink", "fog", "mosquitto_server", "trial_jar"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one group run in one process, one after the other, when there are several
    (`--dist loadgroup`): they share what is started once."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        needs = ({*getattr(item, "fixturenames", ()), folder}) & SHARED.keys()
        if needs:
            item.add_marker(pytest.mark.xdist_group(SHARED[min(needs)]))


@pytest.fixture(scope="session")
def fog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fog]:
    """edge-a to edge-c (8 slots each) and cloud (24), for tests that leave them as they were.

    No site can read another's state.
    """
    fog = apart_fog(tmp_path_factory.mktemp("fog"))
    fog.up(edges=3, slots=8, cloud_slots=24, shared_state=False)
    yield fog
    fog.down(keep=True)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of all tests."""
    from speck.analyzer.session import session

    spark = session("local[2]", memory="768m", partitions=2)
    yield spark
    spark.stop()
