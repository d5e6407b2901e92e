"""Judges jars before they are started: only their central directory is read."""

from __future__ import annotations

import re
import threading
from pathlib import Path

from speck.binding import Artifact, CalibrationProgram, Judgement
from speck.errors import find_similar
from speck.model.bounded_cache import BoundedCache
from speck.model.values import cut, show
from speck.spec.zip_directory import read_names

CONNECTOR_CLASS = "io.speck.mqtt.SpeckJob"
"""A class of speck's connector that every version of it has."""

_CLASS = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)*")
_LONGEST_CLASS_NAME = 255
"""Longer ones are no names of a program's classes, and not suggested."""

CALIBRATION = CalibrationProgram("speck-jobs.jar", "io.speck.jobs.Calibrate")

_FAT = (
    "holds speck's connector: each start of a job then takes some 7 MB of the engine's metaspace;"
    " use a jar without it where the engine has speck-flink-connector.jar, as speck's images do"
)


def judge_jar(jar: Artifact, entry: str, *, hint: bool = True) -> Judgement:
    """Whether a job can be started from a jar by its entry class; with `hint` the fault names
    classes that are like it."""
    if not entry:
        return Judgement("missing: name the class whose main starts the job", at_entry=True)
    if not _CLASS.fullmatch(entry):
        return Judgement(f"{show(entry)} is no class name like package.ExampleJob", at_entry=True)
    if (fault := class_fault(jar, entry, hint=hint)) is not None:
        return Judgement(fault, at_entry=True)
    return Judgement(warning=_FAT if holds_connector(jar) else None)


def class_fault(jar: Artifact, entry_class: str, *, hint: bool = True) -> str | None:
    """Return why `entry_class` cannot be started from `jar`, or None if the jar holds it; with
    `hint`, also the classes that are like it."""
    try:
        classes = _CLASSES.get(jar.sha256, lambda: _read_classes(jar.file), _READING)
    except (OSError, ValueError) as exc:
        return f"the file is no jar: {exc}"
    if entry_class in classes:
        return None
    fault = f"the jar holds no class {cut(entry_class)}"
    if not classes:
        return f"{fault}; it holds no classes"
    near = _nearest(entry_class, classes) if hint else []
    return f"{fault}; the nearest are {', '.join(near)}" if near else fault


def holds_connector(jar: Artifact) -> bool:
    """Whether a jar in which `class_fault` has found its entry class brings speck's connector."""
    return CONNECTOR_CLASS in _CLASSES.get(jar.sha256, lambda: _read_classes(jar.file), _READING)


def _read_classes(file: Path) -> frozenset[str]:
    return frozenset(
        name.removesuffix(b".class").decode(errors="replace").replace("/", ".")
        for name in read_names(file)
        if name.endswith(b".class") and not name.startswith(b"META-INF/")
    )


_CLASSES: BoundedCache[str, frozenset[str]] = BoundedCache(
    32 << 20, lambda sha256, classes: 500 + sum(110 + len(name) for name in classes)
)
_READING = threading.Lock()
"""One directory is read at a time: it may take 30 MB."""


def _nearest(entry_class: str, classes: frozenset[str]) -> list[str]:
    """Up to 5 similar classes: those of the same simple name first, then by the simple name."""
    by_simple_name: dict[str, list[str]] = {}
    for name in sorted(name for name in classes if "$" not in name):
        if len(name) <= _LONGEST_CLASS_NAME:
            by_simple_name.setdefault(name.rpartition(".")[2].lower(), []).append(name)
    simple = entry_class.rpartition(".")[2].lower()
    same = by_simple_name.pop(simple, [])
    near = find_similar(simple, by_simple_name, _FEW, 0.0)
    return [*same, *(name for each in near for name in by_simple_name[each])][:_FEW]


_FEW = 5
