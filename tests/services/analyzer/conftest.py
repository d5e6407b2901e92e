"""Analyses of what holds a row a job, without the compiler that large data is worth."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from speck.analyzer.run import configure_for_few_rows


@pytest.fixture
def few(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, set for few rows."""
    with configure_for_few_rows(spark):
        yield spark
