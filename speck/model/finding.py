"""What the check of a site has to say about its settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A setting that would lose data or starve jobs, and the line that corrects it."""

    severity: str
    """`error`: loses data or refuses work; `warning`: slow, short-lived or open; `note`: as it
    should be, but worth knowing."""
    setting: str
    value: str
    why: str
    mend: str
