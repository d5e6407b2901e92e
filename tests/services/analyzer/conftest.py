"""Analyses of what holds a row a job, without the compiler that large data is worth."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from speck.analyzer.run import FEW_ROWS, configured


@pytest.fixture
def few(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, set for few rows."""
    with configured(spark, FEW_ROWS):
        yield spark
