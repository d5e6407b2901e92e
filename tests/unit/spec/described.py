"""A job and a site as they are described, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from speck.errors import InvalidError

JOB: dict[str, Any] = {
    "job_name": "A",
    "site": "edge-a",
    "source_topic": "T-1",
    "sink_topic": "T-2",
    "entry_class": "package.ExampleJob",
    "job_path": "test-1.jar",
}


def faults(read: Callable[[], object]) -> list[str]:
    with pytest.raises(InvalidError) as error:
        read()
    return [str(problem) for problem in error.value.problems]
