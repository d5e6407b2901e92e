"""Sessions at brokers, and what readers and sinks told there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from speck.deploy.operations.context import Context
from speck.deploy.operations.outcome import Done, Outcome
from speck.errors import PermanentError
from speck.model.ids import sink_client_id
from speck.model.incarnation import Session
from speck.model.link import Link
from speck.model.observation import BrokerView, Sent, TakenEpoch, merge_taken
from speck.model.plan import Clear, Forget, HandOver, Release, Reserve


def reserve(context: Context, operation: Reserve) -> Outcome:
    """One that was not reserved begins anew: what a broker may still have under that id is from
    before, and belongs to nobody."""
    known = context.records.session(context.scope, operation.client_id, operation.site)
    session = Session(
        operation.client_id,
        operation.link,
        operation.site,
        operation.job_name,
        reserved=False,
        follows=operation.follows,
        beside=operation.beside,
    )
    context.records.write(context.records.put_session(context.scope, session))
    broker = context.connections.broker(operation.site)
    is_new = known is None or not known.usable
    broker.reserve(operation.client_id, operation.link.topic, fresh=is_new)
    return Done(context.records.put_session(context.scope, replace(session, reserved=True)))


def release(context: Context, operation: Release) -> Outcome:
    """From its first moment on, the session is not one that is there."""
    session = Session(
        operation.client_id, operation.link, operation.site, operation.job_name, reserved=False
    )
    context.records.write(context.records.put_session(context.scope, session))
    broker = context.connections.broker(operation.site)
    broker.release(operation.client_id, operation.link.topic, last_reader=operation.last_reader)
    return Done(context.records.drop_session(context.scope, operation.client_id, operation.site))


def hand_over(context: Context, operation: HandOver) -> Outcome:
    """Store what was taken of the link, by the old reader and by those before it, with the new
    reader's session. From then on the link is the new reader's."""
    records, scope = context.records, context.scope
    new = records.session(scope, operation.client_id, operation.site)
    old = records.session(scope, operation.former, operation.site)
    if new is None or old is None:
        gone = operation.job_name if new is None else operation.former_job
        raise PermanentError(
            f"cannot hand over {operation.site}/{operation.link.topic} from"
            f" {operation.former_job} to {operation.job_name}: the session of {gone} is gone;"
            " apply again"
        )
    view = context.connections.broker(operation.site).view()
    reported = view.taken.get(operation.former)
    known = reported.epochs() if reported else ()
    taken = _kept(merge_taken(old.skip, known, new.skip), known, view)
    return Done(
        {
            **records.put_session(
                scope,
                replace(new, follows=None, followed_by=None, former=operation.former, skip=taken),
            ),
            **records.put_session(scope, replace(old, followed_by=operation.client_id)),
        }
    )


def _kept(
    taken: Sequence[TakenEpoch], known: Iterable[TakenEpoch], view: BrokerView
) -> tuple[TakenEpoch, ...]:
    """Without what no producer can send again: of those that neither the old reader knows nor the
    broker, the newest few are kept. All of it goes on a command line."""
    producers = {sent.producer for sent in view.sent.values()} | {each.producer for each in known}
    others = [each for each in taken if each.producer not in producers]
    dropped = others[:-_OTHERS_KEPT]
    return tuple(each for each in taken if each not in dropped)


_OTHERS_KEPT = 16


def forget(context: Context, operation: Forget) -> Outcome:
    note_owed(context, operation.sink_site, operation.sink, operation.sinks, operation.readers)
    forget_sinks(context, operation.sink_site, operation.sinks)
    return Done(context.records.drop_incarnation(context.scope, operation.job_name))


def clear(context: Context, operation: Clear) -> Outcome:
    kept = (operation.kept,) if operation.kept else ()
    sinks = (*operation.sinks, *kept)
    note_owed(context, operation.site, operation.link, sinks, operation.readers)
    deployed = context.deployed(operation.job_name)
    gone = operation.sinks
    if deployed is not None and deployed.job.sink == operation.link:  # it has come back
        job = deployed.job
        own = sink_client_id(context.records.installation, job.job_name, job.source)
        gone = tuple(sink for sink in gone if sink not in (own, *deployed.former_sinks))
    forget_sinks(context, operation.site, gone)
    if deployed is None or not deployed.stale:
        return Done()
    cleared = {(operation.site, operation.link, sink) for sink in operation.sinks}
    stale = tuple(s for s in deployed.stale if (s.site, s.link, s.client_id) not in cleared)
    return Done(context.records.put_incarnation(context.scope, replace(deployed, stale=stale)))


def note_owed(
    context: Context, site: str, link: Link, sinks: tuple[str, ...], readers: tuple[str, ...]
) -> None:
    """Note with the sessions of `readers` what `sinks` have told and they have not taken: when
    one leaves the link later it is drained by that, since nobody tells it any more."""
    if not readers:
        return
    view = context.connections.broker(site).view()
    told = [view.sent[sink] for sink in view.sinks_of(link.topic, sinks)]
    for client_id in readers if told else ():
        with context.noting:
            _note(context, site, client_id, told, view)


def _note(context: Context, site: str, client_id: str, told: list[Sent], view: BrokerView) -> None:
    session = context.records.session(context.scope, client_id, site)
    if session is None:
        return
    owed = {(producer, epoch): number for producer, epoch, number in session.owed}
    for sent in told:
        key = (sent.producer, sent.epoch)
        owed[key] = max(sent.number, owed.get(key, 0))
    left = owed if view.untaken(client_id, owed) else {}
    noted = tuple((*key, number) for key, number in sorted(left.items()))
    if noted != session.owed:
        noting = context.records.put_session(context.scope, replace(session, owed=noted))
        context.records.write(noting)


def forget_sinks(context: Context, site: str, sinks: tuple[str, ...]) -> None:
    context.connections.broker(site).forget(*sinks)
