"""Artifacts: what an engine runs, and what its binder says of one before anything is started."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class ArtifactKind(StrEnum):
    """What a file is, judged by its content alone (`speck.spec.artifacts`)."""

    JAR = "jar"  # a zip archive that holds a Java class
    PYFILE = "pyfile"  # a Python program
    ARCHIVE = "archive"  # any other zip archive, or a tar archive
    TEXT = "text"  # anything else in UTF-8: a query, a configuration


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file on this machine, its SHA-256 (64 hex digits), and its kind."""

    sha256: str
    file: Path
    kind: ArtifactKind = ArtifactKind.JAR


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
