"""Refuses requests that would drop queues without the consent of who asks."""

from __future__ import annotations

from speck.errors import QueuesError
from speck.model.plan import Plan
from speck.model.plan_outline import QueueOutline


def refuse_dropping(what: str, plan: Plan, *, allowed: bool) -> None:
    """Raises QueuesError if a plan drops queues and that is not `allowed`. `what` names the
    request: "remove composition 'x'"."""
    if plan.queues and not allowed:
        lines = "\n  ".join(["", *map(str, plan.queues)])
        raise QueuesError(
            f"cannot {what} without --drop-queues (?drop_queues=true), since that{lines}",
            list(map(QueueOutline.of, plan.queues)),
        )
