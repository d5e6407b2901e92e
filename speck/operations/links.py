"""Sessions at brokers, and what readers and sinks told there."""

from __future__ import annotations

from dataclasses import replace

from speck.inventory import Session
from speck.observed import BrokerView, Sent
from speck.operations.context import Context
from speck.operations.outcome import Done, Outcome
from speck.plan import Clear, Forget, Release, Reserve


def reserve(context: Context, operation: Reserve) -> Outcome:
    session = Session(
        operation.client_id, operation.link, operation.site, operation.job_name, reserved=False
    )
    context.records.write(context.records.put_session(context.scope, session))
    broker = context.connections.broker(operation.site)
    broker.reserve(operation.client_id, operation.link.topic)
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


def forget(context: Context, operation: Forget) -> Outcome:
    note_owed(context, operation.sink_site, operation.sinks, operation.readers)
    forget_sinks(context, operation.sink_site, operation.sinks)
    return Done(context.records.drop_deployed(context.scope, operation.job_name))


def clear(context: Context, operation: Clear) -> Outcome:
    note_owed(context, operation.site, operation.sinks, operation.readers)
    forget_sinks(context, operation.site, operation.sinks)
    return Done()


def note_owed(
    context: Context, site: str, sinks: tuple[str, ...], readers: tuple[str, ...]
) -> None:
    """Note with the sessions of `readers` what `sinks` have told and they have not taken: when
    one leaves the link later it is drained by that, since nobody tells it any more."""
    if not readers:
        return
    view = context.connections.broker(site).view()
    told = [view.sent[sink] for sink in sinks if sink in view.sent]
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
