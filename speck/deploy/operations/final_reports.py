"""Whether a broker still has what a reader reported at its end.

A reader publishes the numbers that it has taken with each checkpoint, and with its last savepoint.
A broker that is killed forgets what came since its last autosave; a reader that runs says it again,
one that has ended cannot.
"""

from __future__ import annotations

from dataclasses import replace

from speck.deploy.operations.context import Context
from speck.errors import PermanentError
from speck.model.incarnation import EndState
from speck.model.link_operations import HandOver
from speck.model.observation import BrokerView
from speck.model.values import cut


def refuse_forgotten_report(context: Context, operation: HandOver, view: BrokerView) -> None:
    """Raise PermanentError if the broker has been restarted since the former reader was asked to
    stop. The reader then counts as one whose end was not seen: it runs once more, in the next plan,
    and says what it has taken."""
    incarnation = context.find_incarnation(operation.former_job)
    if incarnation is None or incarnation.asked_ms is None or not incarnation.ended:
        return
    is_told = view.uptime_s is not None and view.up_since is not None
    if incarnation.job.source != operation.link or not is_told:  # a new connection proves nothing
        return
    passed_s = context.clock.now().timestamp() - incarnation.asked_ms / 1000
    if (view.up_since or 0.0) <= context.clock.monotonic() - max(0.0, passed_s):
        return
    unseen = replace(incarnation, end=EndState.STOPPING)
    context.records.write(context.records.incarnations.put(context.scope, unseen))
    raise PermanentError(
        f"cannot hand over {operation.site}/{cut(operation.link.topic)} from"
        f" {operation.former_job} to {operation.job_name}: the broker was restarted while"
        f" {operation.former_job} stopped, and may have forgotten what it had taken; apply again,"
        " and it runs once more first"
    )
