"""Sessions at brokers, and what readers and sinks told there."""

from __future__ import annotations

from dataclasses import replace

from speck.inventory import Session
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
    broker.forget(operation.client_id)
    return Done(context.records.drop_session(context.scope, operation.client_id, operation.site))


def forget(context: Context, operation: Forget) -> Outcome:
    forget_sinks(context, operation.sink_site, operation.sinks)
    return Done(context.records.drop_deployed(context.scope, operation.job_name))


def clear(context: Context, operation: Clear) -> Outcome:
    forget_sinks(context, operation.site, operation.sinks)
    return Done()


def forget_sinks(context: Context, site: str, sinks: tuple[str, ...]) -> None:
    broker = context.connections.broker(site)
    for sink in sinks:
        broker.forget(sink)
