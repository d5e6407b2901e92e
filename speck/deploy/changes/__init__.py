"""Changes: registers them, runs each to its end, and resumes them after a restart.

- `registry`: the changes under way, who waits for them, and access to those that are stored
- `runner`: starts a change, runs it to its end in a thread of its own, ends it early
- `recovery`: resumes changes that a stop of the service interrupted; plans a change again
- `ledger`: what is stored of a change, and when
- `executions`: what an execution of a plan needs from the service

Begin reading at `runner`. Dependencies are passed in: registry and ledger use none of the others,
recovery uses these two, the runner uses all.
"""

from __future__ import annotations

from speck.deploy.changes.executions import Executions
from speck.deploy.changes.ledger import ChangeLedger
from speck.deploy.changes.recovery import ChangeRecovery, Planner
from speck.deploy.changes.registry import Changes, Running
from speck.deploy.changes.runner import ChangeRunner

__all__ = [
    "ChangeLedger",
    "ChangeRecovery",
    "ChangeRunner",
    "Changes",
    "Executions",
    "Planner",
    "Running",
]
