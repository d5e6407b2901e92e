"""What the program reports of itself to its runner (docs/binders.md, "Process")."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


class Reporter:
    """The files of the runner; without a runner it reports nothing."""

    def __init__(self) -> None:
        self._report = _path("SPECK_REPORT")
        self._request = _path("SPECK_REQUEST")
        self._start = int(os.environ.get("SPECK_START", "0"))
        self._changed: float | None = None
        self._wanted = 0

    def read_request(self) -> int:
        """The number of the last checkpoint that was asked for."""
        if self._request is None:
            return 0
        try:
            changed = self._request.stat().st_mtime_ns
            if changed != self._changed:
                self._wanted, self._changed = int(self._request.read_text()), changed
        except (OSError, ValueError):
            return self._wanted
        return self._wanted

    def write(self, **content: Any) -> None:
        if self._report is None:
            return
        fresh = self._report.with_suffix(".new")
        with suppress(OSError):  # a full disk: the next one says the same
            fresh.write_text(json.dumps({"start": self._start, **content}))
            fresh.rename(self._report)


def _path(name: str) -> Path | None:
    return Path(os.environ[name]) if name in os.environ else None
