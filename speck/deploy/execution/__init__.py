"""Carries out a plan, with as much concurrency as its order and each site's bound allow.

Each concern has a module of its own, without threads, and without I/O except for the journal's
writes:

- `ordering`: which step may run next
- `retry`: whether and when a failed step is tried again, by the type of its error
- `waiting`: which steps wait for an engine, and when that engine is polled
- `journal`: the outcome of each step, stored before anything depends on it

`executor` is the loop that joins them and makes the calls; begin reading there. May import
`speck.deploy.operations`, `speck.deploy.limiter` and what `speck.deploy` may import.
"""

from __future__ import annotations

from speck.deploy.execution.bounds import Bounds
from speck.deploy.execution.executor import Execution

__all__ = ["Bounds", "Execution"]
