"""Checks the JVM of Flink's JobManager, as `/jobmanager/environment` describes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from binders.flink.settings import Settings
from speck.model.finding import Finding

OPTIONS = "env.java.opts.all"
GUARD_JAR = "speck-exit-guard.jar"
MEND = f"{OPTIONS}: -javaagent:/opt/speck/lib/{GUARD_JAR} -Dfile.encoding=UTF-8"

_INTERCEPT = "cluster.intercept-user-system-exit"
_ENCODING = "-Dfile.encoding="
_FEATURE = re.compile(r" - (\d+)[./]")
FULL = 0.8
"""From this share on metaspace counts as nearly full."""
_UTF_8_SINCE = 18
"""From this Java on the encoding is UTF-8 whatever the locale (JEP 400)."""


@dataclass(frozen=True, slots=True)
class Jvm:
    """The version (21; None: not known) and the options of a JVM."""

    feature: int | None = None
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, Any]) -> Jvm:
        """From the answer of `/jobmanager/environment`, whose version reads like `OpenJDK 64-Bit
        Server VM - Debian - 17/17.0.15+6`."""
        jvm = environment["jvm"]
        match = _FEATURE.search(str(jvm["version"]))
        return cls(int(match[1]) if match else None, tuple(map(str, jvm["options"])))


def findings(settings: Settings, jvm: Jvm) -> list[Finding]:
    """What may end the engine or damage text; of an engine that does not describe its JVM
    (Flink before 1.15), as far as its settings show it."""
    options = jvm.options or tuple((settings.get(OPTIONS, "env.java.opts") or "").split())
    checks = (_check_guard(settings, options), _check_encoding(jvm, options))
    return [finding for finding in checks if finding is not None]


def metaspace_finding(used: int | None, limit: int | None) -> Finding | None:
    """Each start of a job loads the classes of its jar anew; what is not unloaded fills it."""
    if used is None or limit is None or used < FULL * limit:
        return None
    megabytes = limit >> 20
    return Finding(
        "warning",
        "jvm-metaspace",
        f"{used >> 20} of {megabytes} MiB in use",
        "the engine's process ends, with all its jobs, when no class fits in any more; large jars"
        " (e.g. with a connector that the site has) and threads that jobs leave behind fill it;"
        " restart the engine to empty it, or give it more (-XX:MaxMetaspaceSize in one JVM)",
        f"taskmanager.memory.jvm-metaspace.size: {2 * megabytes}m",
    )


def _check_guard(settings: Settings, options: tuple[str, ...]) -> Finding | None:
    if any(each.startswith("-javaagent:") and GUARD_JAR in each for each in options):
        return None
    setting = settings.get(_INTERCEPT)
    if (setting or "").strip().lower() != "throw":
        return Finding(
            "error",
            _INTERCEPT,
            setting if setting is not None else "not set (Flink's default: DISABLED)",
            "a job that calls System.exit ends the engine's process and every job in it; speck's"
            " agent prevents that",
            MEND,
        )
    return Finding(
        "warning",
        _INTERCEPT,
        setting or "",
        "it protects main(), but an operator that calls System.exit after the first checkpoint"
        " still ends the TaskManager with every job in it, and Java 24 or later does not start with"
        " it; speck's agent needs no such setting",
        MEND,
    )


def _check_encoding(jvm: Jvm, options: tuple[str, ...]) -> Finding | None:
    names = [each.removeprefix(_ENCODING) for each in options if each.startswith(_ENCODING)]
    name = names[-1] if names else None
    if name is None and (jvm.feature is None or jvm.feature >= _UTF_8_SINCE):
        return None
    if name is not None and name.lower() in ("utf-8", "utf8"):
        return None
    return Finding(
        "warning" if name is None else "error",
        "file.encoding",
        name or f"not set: Java {jvm.feature} takes the encoding of the engine's locale",
        "a job that turns text into bytes without naming an encoding may write ? for each letter"
        " outside it",
        MEND,
    )
