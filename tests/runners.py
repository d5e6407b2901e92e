"""Runners of programs in this process, on folders of their own."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from speck.runner.runner import Runner
from speck.runner.settings import Settings
from tests.waiting import wait_for

PROGRAMS = Path(__file__).parent / "programs"


class LocalRunner:
    """A runner in a thread; `leave` lets it end without its programs, and `come` starts it anew."""

    def __init__(self, folder: Path, slots: int = 8, **settings: object) -> None:
        quick = Settings(folder, slots, quiet_s=60.0, retry_first_s=0.05, renew_s=0.1)
        self.settings = replace(quick, **settings)  # type: ignore[arg-type]
        self.come()

    def come(self) -> None:
        self.runner = Runner(self.settings)
        self._thread = threading.Thread(target=self.runner.run, name="runner", daemon=True)
        self._thread.start()

    @property
    def is_there(self) -> bool:
        """Whether it has not ended by itself."""
        return self._thread.is_alive()

    def leave(self) -> None:
        self.runner.stop()
        self._thread.join()

    def stop(self) -> None:
        """End the programs, too."""
        self.leave()
        for program in self.runner.programs.values():
            if program.alive:
                program.members.kill(program.record.session)
                wait_for(lambda program=program: not program.alive, "a program to end", 30)
