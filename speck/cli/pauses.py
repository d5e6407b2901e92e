"""How long a command waits between two questions to the service."""

from __future__ import annotations

from collections.abc import Iterator


def growing(first: float = 0.1, most: float = 1.0) -> Iterator[float]:
    """Seconds: short at first, for what ends soon, then longer, so that a long wait asks little."""
    pause = first
    while True:
        yield pause
        pause = min(most, 1.3 * pause)
