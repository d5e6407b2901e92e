"""How many examples a property has of which each costs tenths of a second."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def costly(share: int = 4) -> settings:
    """A fraction of the examples that hypothesis's profile says (tests/conftest.py)."""
    return settings(
        max_examples=settings().max_examples // share,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
