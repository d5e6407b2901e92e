"""Checks the Spark master of an analysis, without importing Spark."""

from __future__ import annotations

import re

from speck.errors import InvalidError, Problem

LOCAL = "local[*]"
_MASTER = re.compile(r"local|local\[(\*|[1-9]\d{0,3})\]|spark://[\w.-]+:\d{1,5}(,[\w.-]+:\d{1,5})*")


def check_master(master: str) -> str:
    """Return `master`. Raises InvalidError unless it is `local[n]`, `local[*]` or
    `spark://host:port`."""
    if not _MASTER.fullmatch(master):
        fault = f"{master!r} is no master: write local[2], local[*] or spark://host:port"
        raise InvalidError(f"cannot analyse: {fault}", [Problem("master", fault)])
    return master
