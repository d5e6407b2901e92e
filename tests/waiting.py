"""Waiting for a condition: the one way in which tests wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_S = 240.0
"""Far more than anything takes: only a condition that never comes true uses it up."""

T = TypeVar("T")


def wait_for(
    look: Callable[[], T | None],
    what: str | Callable[[], object] = "it",
    limit_s: float = LIMIT_S,
) -> T:
    """The first truthy answer of `look`. Raises AssertionError with `what` (called only then)
    when there is none within `limit_s`."""
    deadline = time.monotonic() + limit_s
    pause, pause_s = threading.Event(), 0.001
    while not (answer := look()):
        if time.monotonic() > deadline:
            raise AssertionError(
                f"waited {limit_s:g} s in vain for {what() if callable(what) else what}"
            )
        pause.wait(pause_s)
        pause_s = min(1.5 * pause_s, 0.05)
    return answer
