"""Kinds of artifacts, and the engines of a site, which are told apart by what they take."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class ArtifactKind(StrEnum):
    """What a file is, judged by its content alone (`speck.spec.artifacts`)."""

    JAR = "jar"  # a zip archive that holds a Java class
    PYFILE = "pyfile"  # a Python program
    ARCHIVE = "archive"  # any other zip archive, or a tar archive
    TEXT = "text"  # anything else in UTF-8: a query, a configuration


class EngineAt(NamedTuple):
    """The engine of a site that takes a kind of artifact: there may be another one beside it, which
    answers, and can do, other things."""

    site: str
    artifact: ArtifactKind
