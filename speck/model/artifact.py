"""Artifacts: what engines run, named by its SHA-256."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

from speck.model.composition import job_posted_alone, title, visible_name
from speck.model.shown import Shown


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """An artifact of so many bytes in the folder; `at` is RFC 3339."""

    sha256: str
    bytes: int
    at: Annotated[str, Shown("when it was last sent")]
    by: Annotated[str | None, Shown("the token that sent it first")]


@dataclass(frozen=True, slots=True)
class ArtifactUse:
    """What names an artifact, and so keeps it: a revision of a composition, or a deployed job."""

    composition: Annotated[str | None, Shown("null for a job posted alone")]
    job_name: Annotated[str | None, Shown("null for a revision of a composition")]
    revision: Annotated[int | None, Shown("null for what is deployed")]

    @classmethod
    def of(cls, scope: str, job_name: str | None, revision: int | None) -> ArtifactUse:
        """Of a composition, or of a job posted alone, by its hidden name."""
        return cls(visible_name(scope), job_posted_alone(scope) or job_name, revision)

    def __str__(self) -> str:
        """`revision 3 of composition 'c'`, or `job 'A'`."""
        if self.composition is None:
            return f"job {self.job_name!r}"
        what = title(self.composition)
        return f"revision {self.revision} of {what}" if self.revision else f"a job of {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedArtifact(StoredArtifact):
    """An artifact with its uses."""

    uses: tuple[ArtifactUse, ...]

    @classmethod
    def of(cls, artifact: StoredArtifact, uses: tuple[ArtifactUse, ...]) -> UsedArtifact:
        known = {each.name: getattr(artifact, each.name) for each in fields(StoredArtifact)}
        return cls(**known, uses=uses)
