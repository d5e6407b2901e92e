"""Real servers for all tests: each is started once, by the first test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from speck.fog.sites import Fog
from tests.apart import apart_fog
from tests.flink_server import flink, trial_jar
from tests.mosquitto_server import mosquitto_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["flink", "fog", "mosquitto_server", "trial_jar"]


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
