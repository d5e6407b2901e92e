"""The way to an engine beside an agent, without the agent and the service."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from threading import Event, Timer
from typing import Any
from uuid import uuid4

from speck.agent.programs import Programs
from speck.binding import Artifact
from speck.errors import TransientError, UnreachableError


class LocalChannel:
    """What an agent does, without one: the commands are carried out at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs = Programs(folder)
        self.lost: list[UnreachableError] = []
        """Raised instead of the next orders."""
        self.timeout_s = 60.0
        self.old: list[dict[str, Any]] = []
        """Told instead of the newest status: the agent pushes a new one some time after."""

    def status(self) -> dict[str, Any]:
        if self.old:
            return self.old.pop()
        status: dict[str, Any] = json.loads((self._folder / "engine/status.json").read_text())
        return status

    def order(self, order: dict[str, Any]) -> dict[str, Any]:
        if self.lost:
            raise self.lost.pop()
        command = {"id": uuid4().hex, "order": order}
        withdrawn = Event()
        timer = Timer(self.timeout_s, withdrawn.set)
        timer.start()
        try:
            answer: dict[str, Any] = self._programs.order(command, print, withdrawn)["answer"]
        except TransientError as error:
            raise UnreachableError(f"cannot reach the engine: {error}") from error
        finally:
            timer.cancel()
        return answer

    def store(self, artifact: Artifact) -> None:
        content = artifact.file.read_bytes()
        piece = {"offset": 0, "total": len(content), "piece": b64encode(content).decode()}
        self._programs.store({"sha256": artifact.sha256, **piece}, lambda _: None, Event())
