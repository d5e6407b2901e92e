"""Carries out a plan: as much at the same time as its order and each site's bound allow.

Each question has a part of its own, without threads or I/O but for the journal's writes:

- `ordering`: which step may run next
- `retry`: whether and when a step that failed is tried again, by the type of its error
- `waiting`: which steps wait for an engine, and when that engine is asked
- `journal`: what became of each step, stored before anything depends on it

`executor` is the loop that joins them and makes the calls; begin reading there. May import
`speck.deploy.operations`, `speck.deploy.limiter` and what `speck.deploy` may import.
"""

from __future__ import annotations

from speck.deploy.execution.bounds import Bounds
from speck.deploy.execution.executor import Execution

__all__ = ["Bounds", "Execution"]
