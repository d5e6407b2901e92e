"""What the check of a site has to say about its settings."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

from speck.model.shown import Shown


@dataclass(frozen=True, slots=True)
class Finding:
    """A setting that would lose data or starve jobs, and the line that corrects it."""

    severity: str
    """`error`: loses data or refuses work; `warning`: slow, short-lived or open; `note`: as it
    should be, but worth knowing."""
    setting: str
    value: str
    why: str
    mend: Annotated[str, Shown("the setting that fixes it")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFinding(Finding):
    """A finding about a part of a site: its engine, its broker, its agent or a leg."""

    part: str

    @classmethod
    def of(cls, part: str, finding: Finding) -> PartFinding:
        known = {each.name: getattr(finding, each.name) for each in fields(Finding)}
        return cls(**known, part=part)
