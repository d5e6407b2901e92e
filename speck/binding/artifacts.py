"""Artifacts: what an engine runs, and what its binder says of one before anything is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speck.model.engines import ArtifactKind


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file on this machine, its SHA-256 (64 hex digits), and its kind."""

    sha256: str
    file: Path
    kind: ArtifactKind


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a binder says of an artifact without connecting to an engine.

    `fault` says why the job cannot be started from it (None: nothing speaks against it), `at_entry`
    whether that is due to the job's entry rather than to the file. `warning` is shown with the
    plan: the end of a sentence about the file of some jobs.
    """

    fault: str | None = None
    at_entry: bool = False
    warning: str | None = None
