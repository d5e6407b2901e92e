"""Brings readers of one link to the same record, and switches them there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

from speck.deploy.operations.context import Context
from speck.deploy.operations.cut_sessions import refuse_incomplete_switch
from speck.deploy.operations.draining import Draining
from speck.deploy.operations.final_reports import (
    Doubt,
    judge_readers,
    refuse_forgotten_readers,
    wait_while_unclear,
)
from speck.deploy.operations.links import put_handover
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.deploy.operations.starting import start
from speck.deploy.operations.stopping import Stopping
from speck.errors import EngineRefusedError
from speck.model.incarnation import Incarnation, StartState
from speck.model.job import Job
from speck.model.job_operations import CatchUp, Start, Stop, Switch
from speck.model.link_operations import Drain
from speck.model.observation import BrokerView, TakenEpoch, merge_taken
from speck.store.tables import Batch


def catch_up(context: Context, operation: CatchUp, doubt: Doubt | None = None) -> Outcome:
    """Let a reader run until it has taken what any of the readers has, and stop again. It does not
    run if it is the foremost. `doubt`: whether the broker still has what they said at their ends
    has been unclear.

    The others may be catching up, too: they take nothing beyond that.
    """
    incarnation = context.find_incarnation(operation.job_name)
    is_begun = incarnation is not None and incarnation.engine_job_id == operation.engine_job_id
    if is_begun and incarnation is not None and incarnation.ended:
        return Done()
    site, clients = operation.job.source_site, (operation.client_id, *operation.readers)
    view = context.views.view(site, clients)
    go_on = partial(catch_up, context, operation)
    judged = [each for each in operation.readers if each not in operation.trusts]
    waiting = _judge(context, site, judged, view, doubt, go_on)
    if waiting is not None:
        return waiting
    readers = operation.readers or (operation.client_id,)
    until = merge_taken(*(_list_taken(context, operation, each, view) for each in readers))
    own = _list_taken(context, operation, operation.client_id, view)
    if operation.readers and not is_begun and merge_taken(own, until) == own:
        return Done()
    limited = Start(
        operation.job,
        operation.attempt,
        operation.engine_job_id,
        operation.sink_has_readers,
        keeps_state=incarnation is not None and incarnation.has_state,
        former_sinks=operation.former_sinks,
        stale=incarnation.stale if incarnation is not None else (),
        until=until,
    )
    return _then(context, _start(context, limited), lambda: _read(context, operation, until))


def _judge(
    context: Context,
    site: str,
    readers: Collection[str],
    view: BrokerView,
    doubt: Doubt | None,
    go_on: Callable[[Doubt], Outcome],
) -> Waiting | None:
    """The wait until it is clear that a broker has what these readers said at their ends; None if
    that is clear. Raises PermanentError if it may have forgotten that."""
    judged = judge_readers(context, site, readers, view)
    waiting = wait_while_unclear(context, site, judged.values(), view, doubt, go_on)
    if waiting is None:
        refuse_forgotten_readers(context, judged)
    return waiting


def _start(context: Context, operation: Start) -> Outcome:
    """Start the reader. If its engine refuses that, the reader stays stopped where it was."""
    before = context.find_incarnation(operation.job_name)
    try:
        return start(context, operation)
    except EngineRefusedError:
        after = context.find_incarnation(operation.job_name)
        if before is not None and after is not None and after.void and not after.switched:
            context.records.write(context.records.incarnations.put(context.scope, before))
        raise


def _list_taken(
    context: Context, operation: CatchUp, client_id: str, view: BrokerView
) -> tuple[TakenEpoch, ...]:
    """What a reader has taken: a broker that was killed since its drain may have forgotten a part,
    which is stored with its session."""
    site = operation.job.source_site
    session = context.records.sessions.get(context.scope, client_id, site)
    reported = view.taken.get(client_id)
    known = session.skip if session is not None else ()
    return merge_taken(known, reported.epochs() if reported is not None else ())


def _read(context: Context, operation: CatchUp, until: tuple[TakenEpoch, ...]) -> Outcome:
    """Wait until all numbers are taken, or all that was in the session has been looked at; stop."""
    job = operation.job
    drain = Drain(
        job.source_site,
        job.source,
        operation.client_id,
        job.job_name,
        (),
        job.site,
        operation.engine_job_id,
    )
    last = {
        (each.producer, each.epoch): max(each.upto, *(b for _, b in each.above), 0)
        for each in until
    }
    stop = Stop(job.site, job.job_name, operation.attempt, operation.engine_job_id, exact=True)
    draining = Draining(drain, context, owed=last, until=until)
    return _then(context, draining.poll(), lambda: Stopping(context, stop).begin())


def _then(context: Context, outcome: Outcome, follow: Callable[[], Outcome]) -> Outcome:
    """The outcome of what follows, once this one is done."""
    if isinstance(outcome, Waiting):
        finish = outcome.finish
        return replace(outcome, finish=lambda: _then(context, finish(), follow), may_be_left=False)
    context.store(outcome)
    if outcome.afterwards is not None:
        outcome.afterwards()
    return follow()


def switch(context: Context, operation: Switch, doubt: Doubt | None = None) -> Outcome:
    """Store the next incarnations of the jobs, which have not been started yet, and what new
    readers skip. `doubt`: see `catch_up`."""
    names = {context.source_client_id(each.job) for each in operation.starts}
    for handover in operation.handovers:
        names |= {handover.former, handover.client_id, *handover.others}
    names |= {name for each in operation.joining for name in (each.client_id, each.former)}
    sites = {each.site for each in (*operation.handovers, *operation.joining)}
    views = {site: context.views.view(site) for site in sorted(sites)}
    # after these views: had the broker been restarted before one of them, it shows now
    for site in sorted({site for site, _ in operation.readers}):
        there = (client_id for at, client_id in operation.readers if at == site)
        readers = [client_id for client_id in there if client_id not in operation.trusts]
        view = context.views.view(site, readers)
        go_on = partial(switch, context, operation)
        waiting = _judge(context, site, readers, view, doubt, go_on)
        if waiting is not None:
            return waiting
    refuse_incomplete_switch(context, operation, views)
    with context.writing.all_of(names):
        context.records.write(_put_switch(context, operation, views))
    return Done()


def _put_switch(
    context: Context,
    operation: Switch,
    views: Mapping[str, BrokerView],
) -> Batch:
    """The writes of a switch, by what the brokers of its links report."""
    records, scope = context.records, context.scope
    batch: Batch = {}
    for each in operation.starts:
        base = context.find_incarnation(each.job_name)
        if base is None or base.engine_job_id != each.engine_job_id:
            batch |= records.incarnations.put(scope, _make_waiting(each, base))
            batch |= _record_reader(context, each.job)
    for handover in operation.handovers:
        batch |= put_handover(context, handover, views[handover.site], is_last=False)
    for joining in operation.joining:
        session = records.sessions.get(scope, joining.client_id, joining.site)
        former = records.sessions.get(scope, joining.former, joining.site)
        reported = views[joining.site].taken.get(joining.former)
        # a broker that was killed since the drain may have forgotten what was taken until then
        known = former.skip if former is not None else ()
        if session is not None:
            skip = merge_taken(session.skip, known, reported.epochs() if reported else ())
            batch |= records.sessions.put(scope, replace(session, skip=skip))
    return batch


def _record_reader(context: Context, job: Job) -> Batch:
    """What waits in the job's session is for the job in this form from now on."""
    session = context.find_session(job)
    if session is None:
        return {}
    return context.records.sessions.put(
        context.scope, replace(session, job=job, begun=False, committed=False)
    )


def _make_waiting(start: Start, base: Incarnation | None) -> Incarnation:
    left = base.left if base is not None else ()
    while base is not None and base.void:
        base = base.base
    return Incarnation(
        start.job,
        start.attempt,
        start.engine_job_id,
        StartState.VOID,
        base=base,
        former_sinks=start.former_sinks,
        left=left,
        stale=start.stale,
        switched=True,
    )
