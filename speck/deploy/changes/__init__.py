"""Changes: what runs, how one is run to its end, and what goes on after a restart.

- `registry`: the changes under way, who waits for them, and those that are stored
- `runner`: starts a change, runs it to its end in a thread of its own, ends it early
- `recovery`: takes up the changes that a stop of the service cut short; plans a change anew
- `ledger`: what is stored of a change, and when
- `executions`: what an execution of a plan needs from the service

Begin reading at `runner`. Each is given what it needs when it is made: registry and ledger know
of no other, recovery knows these, the runner knows all.
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
