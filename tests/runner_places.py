"""A site's folder with a runner, and the binder that gives it orders."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from binders.process.engine import ProcessEngine
from speck.binding import Artifact, ArtifactKind, SaveProgress, Submission
from speck.model.observation import RunState
from speck.runner.processes import Process, find_mains, find_members
from speck.runner.program import Program
from tests.runners import PROGRAMS, LocalRunner
from tests.waiting import wait_for

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give programs other users")
USER = (61000, 61000)
"""Whom nobody is."""
SHARED_GID = 61500


def pick_users() -> tuple[int, int]:
    """Two users that no other test has at this time: a runner ends all processes of its own."""
    first = 200_000 + secrets.randbelow(1 << 20) * 2
    return first, first + 1


@dataclass
class Place:
    """A site's folder, its runner, and the binder that gives it orders."""

    folder: Path
    local: LocalRunner
    engine: ProcessEngine

    def submission(self, *args: str, file: Path | None = None, **more: Any) -> Submission:
        path = file or PROGRAMS / "stepping.py"
        kind = ArtifactKind.PYFILE if path.suffix == ".py" else ArtifactKind.ARCHIVE
        artifact = Artifact(sha256(path.read_bytes()).hexdigest(), path, kind)
        job = Submission(uuid4().hex, "trial", artifact, "", ("--job-name", "trial", *args))
        return replace(job, **more)

    def start(self, *args: str, **more: Any) -> str:
        submission = self.submission(*args, **more)
        self.engine.submit(submission)
        return submission.engine_job_id

    def run(self, *args: str, **more: Any) -> str:
        job = self.start(*args, **more)
        self.await_state(job, RunState.RUNNING)
        return job

    def await_state(self, job: str, state: RunState) -> None:
        wait_for(lambda: self.engine.status(job) is state, f"the program to be {state}", 30)

    def program(self, job: str) -> Program:
        return self.local.runner.programs[job]

    def members(self, job: str) -> list[Process]:
        session = self.program(job).record.session
        return find_members(session) if session is not None else []

    def main(self, job: str) -> Process:
        session = self.program(job).record.session
        assert session is not None
        (main,) = find_mains(find_members(session), session.id)
        return main

    def stop(self, job: str) -> SaveProgress:
        trigger = uuid4().hex
        self.engine.stop(job, None, trigger)
        return self.await_progress(job, trigger)

    def await_progress(self, job: str, trigger: str) -> SaveProgress:
        return wait_for(
            lambda: p if (p := self.engine.save_progress(job, trigger)).done else None,
            "the state to be saved",
            30,
        )

    def step(self, job: str) -> int:
        state = self.engine.newest_state(job)
        return state.number if state is not None else 0

    def starts(self, job: str) -> list[str]:
        """The number of its state at each start."""
        return (self.folder / f"programs/{job}/state/starts").read_text().split()

    def failures(self, job: str) -> list[str]:
        return [each.reason for each in self.engine.exceptions(job)]


Open = Callable[..., Place]
