"""Every death of a real service: at each crash point of each kind of operation, once."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

from speck.model.values import JsonObject
from tests.crash_scenarios import Crash, MakeJob, one_of_each, scenarios
from tests.e2e.harness import job


def jobs_of(number: int) -> MakeJob:
    """Jobs with a jar of their own: a site that has the jar is sent no other."""

    def make(name: str, site: str, source: str, sink: str, **more: Any) -> JsonObject:
        return job(name, site, source, sink, job_path=f"cr{number}.jar", **more)

    return make


def deaths() -> list[Crash]:
    """One of each, with names of their own: brokers and engines are shared."""
    count = len(one_of_each(scenarios(jobs_of(0))))
    return [one_of_each(scenarios(jobs_of(n), f"cr{n}-"))[n] for n in range(count)]


def make_jar_of(crash: Crash, folder: Path) -> None:
    """The jar that its jobs name, of a content that no engine has seen yet."""
    jar = folder / str(crash.scenario.first["jobs"][0]["job_path"])
    shutil.copy(folder / "speck-jobs.jar", jar)
    with zipfile.ZipFile(jar, "a") as archive:
        archive.writestr("made-for", crash.scenario.name + jar.name)
