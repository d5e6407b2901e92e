"""Whether a broker still has what a reader reported at its end.

A reader publishes the numbers that it has taken with each checkpoint, and with its last savepoint.
A broker that is killed forgets what came since its last autosave; a reader that runs says it again,
one that has ended cannot.

It publishes how long it has run only from time to time, so soon after a start it may look as if it
had been started later than it was. Then it is asked until it has published that once more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from speck.deploy.operations.context import Context
from speck.deploy.operations.outcome import Outcome, Waiting
from speck.errors import PermanentError
from speck.model.incarnation import Incarnation, Session
from speck.model.job_operations import Start
from speck.model.link import Link
from speck.model.link_operations import HandOver
from speck.model.observation import BrokerView, merge_taken
from speck.model.values import cut

_ASK_AGAIN_S = 1.0


class Restart(Enum):
    """Whether a broker has been restarted since a reader was asked to stop."""

    NO = "no"
    UNCLEAR = "unclear"
    YES = "yes"


class Doubt(NamedTuple):
    """It has been unclear, and is decided once the broker of `site` no longer says that it has run
    for `uptime_s`, or at `until` (monotonic): it publishes that no more rarely."""

    site: str
    uptime_s: int | None
    until: float


def judge_handover(context: Context, operation: HandOver, view: BrokerView) -> Restart:
    """Whether the broker has been restarted since the former reader was asked to stop."""
    incarnation = context.find_incarnation(operation.former_job)
    run = incarnation.run if incarnation is not None else None
    if run is None or run.job.source != operation.link or operation.trusts:
        return Restart.NO
    return _judge(context, run, view)


def refuse_forgotten_report(context: Context, operation: HandOver, view: BrokerView) -> None:
    """Raise PermanentError if the broker may have been restarted since the former reader was asked
    to stop. That is stored: in the next plan it says first what it has taken."""
    if judge_handover(context, operation, view) is Restart.NO:
        return
    _record_forgotten(context, operation.former_job)
    raise PermanentError(
        f"cannot hand over {operation.site}/{cut(operation.link.topic)} from"
        f" {operation.former_job} to {operation.job_name}: the broker was restarted since"
        f" {operation.former_job} stopped, and may have forgotten what it had taken; apply again,"
        " and it says it again first"
    )


def keep_report(
    context: Context,
    operation: Start,
    old: Incarnation | None,
    doubt: Doubt | None,
    go_on: Callable[[Doubt], Outcome],
) -> Waiting | None:
    """Store what a job that is to start at another link had taken at its end, by which one that
    waits to follow it goes on: once it runs there, nobody says it again. The wait until it is clear
    that the broker has it; None if it is. Raises PermanentError if it may have forgotten that."""
    run = old.run if old is not None else None
    if run is None or run.job.source == operation.job.source:
        return None
    sessions, site = context.records.sessions, run.job.source_site
    session = context.find_session(run.job)
    if session is None or session.followed_by is not None:
        return None
    there = sessions.on_link(context.scope, run.job.source)
    if not any(each.reserved and each.follows == session.client_id for each in there):
        return None
    view = context.views.view(site, (session.client_id,))
    restart = Restart.NO if operation.trusts else _judge(context, run, view)
    waiting = wait_while_unclear(context, site, [restart], view, doubt, go_on)
    if waiting is not None:
        return waiting
    if restart is not Restart.NO:
        _record_forgotten(context, operation.job_name)
        raise PermanentError(
            f"cannot start {operation.job_name}: the broker of {site} was restarted since it"
            f" stopped, and may have forgotten what it had taken of {cut(run.job.source.topic)};"
            " apply again, and it says it again first"
        )
    _store_report(context, session, view)
    return None


def _store_report(context: Context, session: Session, view: BrokerView) -> None:
    reported = view.taken.get(session.client_id)
    with context.writing[session.client_id]:
        now = context.records.sessions.get(context.scope, session.client_id, session.site)
        if now is None or reported is None:
            return
        updated = replace(now, skip=merge_taken(now.skip, reported.epochs()))
        context.records.write(context.records.sessions.put(context.scope, updated))


def _record_forgotten(context: Context, job_name: str) -> None:
    incarnation = context.find_incarnation(job_name)
    if incarnation is not None:
        forgotten = incarnation.forgotten()
        context.records.write(context.records.incarnations.put(context.scope, forgotten))


class StoppedReader(NamedTuple):
    """A reader that has stopped at the same record as others."""

    job_name: str
    link: Link


def judge_readers(
    context: Context, site: str, client_ids: Collection[str], view: BrokerView
) -> dict[StoppedReader, Restart]:
    """Whether the broker of a site has been restarted since readers there were asked to stop."""
    judged: dict[StoppedReader, Restart] = {}
    for client_id in client_ids:
        session = context.records.sessions.get(context.scope, client_id, site)
        incarnation = context.find_incarnation(session.job_name or "") if session else None
        if session is None or incarnation is None:
            continue
        run = incarnation.run
        if run is not None and run.job.source == session.link:
            reader = StoppedReader(incarnation.job.job_name, session.link)
            judged[reader] = _judge(context, run, view)
    return judged


def refuse_forgotten_readers(context: Context, judged: Mapping[StoppedReader, Restart]) -> None:
    """Raise PermanentError if a broker may have been restarted since one of these readers was asked
    to stop. That is stored: in the next plan it says first what it has taken."""
    forgotten = [reader for reader, restart in judged.items() if restart is not Restart.NO]
    for reader in forgotten:
        _record_forgotten(context, reader.job_name)
    if not forgotten:
        return
    names, link = ", ".join(each.job_name for each in forgotten), forgotten[0].link
    raise PermanentError(
        f"cannot bring the readers of {link.site}/{cut(link.topic)} to the same record: the broker"
        f" was restarted since {names} stopped, and may have forgotten what they had taken; apply"
        " again, and they say it again first"
    )


def wait_while_unclear(
    context: Context,
    site: str,
    judged: Collection[Restart],
    view: BrokerView,
    doubt: Doubt | None,
    go_on: Callable[[Doubt], Outcome],
) -> Waiting | None:
    """The wait for the next view of the broker of a site if it is unclear whether it has been
    restarted; None if it is decided by this one. `doubt`: that of the views before."""
    if Restart.UNCLEAR not in judged or Restart.YES in judged:
        return None
    now = context.clock.monotonic()
    if doubt is None or doubt.site != site:
        until = now + (view.up_since or 0.0) - (view.started_after or 0.0)
        doubt = Doubt(site, view.uptime_s, until)
    if view.uptime_s != doubt.uptime_s or now >= doubt.until:
        return None
    return Waiting(
        None,
        lambda _: context.clock.monotonic() - now >= _ASK_AGAIN_S,
        lambda: go_on(doubt),
        float("inf"),
        lambda: "",
        may_be_left=True,
        progress=f"waiting until the broker of {site} says how long it has run",
    )


def _judge(context: Context, incarnation: Incarnation, view: BrokerView) -> Restart:
    if incarnation.asked_ms is None or not incarnation.ended:
        return Restart.NO
    if view.uptime_s is None or view.up_since is None:  # a new connection proves nothing
        return Restart.NO
    if incarnation.is_forgotten:
        return Restart.YES
    asked = context.resends.find_asked(incarnation)
    if view.up_since <= asked:
        return Restart.NO
    is_exact = view.started_after is None or view.started_after >= asked
    return Restart.YES if is_exact else Restart.UNCLEAR
