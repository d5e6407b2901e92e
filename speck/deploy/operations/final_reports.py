"""Whether a broker still has what a reader reported at its end.

A reader publishes the numbers that it has taken with each checkpoint, and with its last savepoint.
A broker that is killed forgets what came since its last autosave; a reader that runs says it again,
one that has ended cannot.

It publishes how long it has run only from time to time, so soon after a start it may look as if it
had been started later than it was. Then it is asked until it has published that once more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from speck.deploy.operations.context import Context
from speck.deploy.operations.outcome import Outcome, Waiting
from speck.errors import PermanentError
from speck.model.incarnation import EndState, Incarnation
from speck.model.link_operations import HandOver
from speck.model.observation import BrokerView
from speck.model.values import cut

_ASK_AGAIN_S = 1.0


class _Restart(Enum):
    """Whether a broker has been restarted since a reader was asked to stop."""

    NO = "no"
    UNCLEAR = "unclear"
    YES = "yes"


class Doubt(NamedTuple):
    """It has been unclear, and is decided once the broker no longer says that it has run for
    `uptime_s`, or at `until` (monotonic): it publishes that no more rarely."""

    uptime_s: int | None
    until: float


def refuse_forgotten_report(context: Context, operation: HandOver, view: BrokerView) -> None:
    """Raise PermanentError if the broker may have been restarted since the former reader was asked
    to stop. The reader then counts as one whose end was not seen: it runs once more, in the next
    plan, and says what it has taken."""
    incarnation = context.find_incarnation(operation.former_job)
    if incarnation is None or _judge(context, operation, incarnation, view) is _Restart.NO:
        return
    unseen = replace(incarnation, end=EndState.STOPPING)
    context.records.write(context.records.incarnations.put(context.scope, unseen))
    raise PermanentError(
        f"cannot hand over {operation.site}/{cut(operation.link.topic)} from"
        f" {operation.former_job} to {operation.job_name}: the broker was restarted while"
        f" {operation.former_job} stopped, and may have forgotten what it had taken; apply again,"
        " and it runs once more first"
    )


def wait_while_unclear(
    context: Context,
    operation: HandOver,
    view: BrokerView,
    doubt: Doubt | None,
    go_on: Callable[[Doubt], Outcome],
) -> Waiting | None:
    """The wait for the next view of the broker if it is unclear whether it has been restarted;
    None if it is decided by this one. `doubt`: that of the views before."""
    incarnation = context.find_incarnation(operation.former_job)
    if incarnation is None:
        return None
    if _judge(context, operation, incarnation, view) is not _Restart.UNCLEAR:
        return None
    now = context.clock.monotonic()
    if doubt is None:
        doubt = Doubt(view.uptime_s, now + (view.up_since or 0.0) - (view.started_after or 0.0))
    if view.uptime_s != doubt.uptime_s or now >= doubt.until:
        return None
    return Waiting(
        None,
        lambda _: context.clock.monotonic() - now >= _ASK_AGAIN_S,
        lambda: go_on(doubt),
        float("inf"),
        lambda: "",
        may_be_left=True,
        progress=f"waiting until the broker of {operation.site} says how long it has run",
    )


def _judge(
    context: Context, operation: HandOver, incarnation: Incarnation, view: BrokerView
) -> _Restart:
    is_stopped = incarnation.asked_ms is not None and incarnation.ended
    if not is_stopped or incarnation.job.source != operation.link:
        return _Restart.NO
    if view.uptime_s is None or view.up_since is None:  # a new connection proves nothing
        return _Restart.NO
    asked = context.resends.find_asked(incarnation)
    if view.up_since <= asked:
        return _Restart.NO
    is_exact = view.started_after is None or view.started_after >= asked
    return _Restart.YES if is_exact else _Restart.UNCLEAR
