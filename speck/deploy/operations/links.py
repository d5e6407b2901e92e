"""Operations at brokers: sessions, and the numbers that readers and sinks report there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from speck.deploy.operations.context import Context
from speck.deploy.operations.final_reports import (
    Doubt,
    judge_handover,
    refuse_forgotten_report,
    wait_while_unclear,
)
from speck.deploy.operations.outcome import Done, Outcome
from speck.errors import PermanentError, TransientError
from speck.model.incarnation import Session
from speck.model.job_operations import Forget
from speck.model.link import Link
from speck.model.link_operations import Clear, HandOver, Release, Reserve
from speck.model.observation import BrokerView, Sent, TakenEpoch, merge_taken
from speck.model.queue import Count, DroppedQueue
from speck.model.unread import count_unread, fold_owed
from speck.model.values import cut
from speck.store.tables import Batch


def reserve(context: Context, operation: Reserve) -> Outcome:
    """Reserve a session. Without a reservation in the store it begins empty: whatever the broker
    still keeps under that client id is left from earlier and belongs to no reader, unless an
    adoption has kept it for this one."""
    view, stopped = None, list[str]()
    if operation.sinks and _find_known(context, operation) is None:
        stopped = context.records.incarnations.stopped_sinks(operation.link, operation.sinks)
        view = context.views.view(operation.site, operation.sinks)
    with context.reserving[operation.client_id]:
        _reserve(context, operation, view, stopped)
    return Done()


def _reserve(
    context: Context, operation: Reserve, view: BrokerView | None, stopped: Sequence[str]
) -> None:
    broker = context.connections.broker(operation.site)
    with context.writing[operation.client_id]:
        known = _find_known(context, operation)
        session = _intend(operation, known)
        context.records.write(context.records.sessions.put(context.scope, session))
    is_kept = context.records.sessions.is_kept(operation.client_id, operation.site)
    # an outside reader may have made its session itself: what waits in it is not speck's to drop
    may_drop = operation.renewed or operation.job_name is not None
    first = known is None and not is_kept
    at = None if known is None else context.records.sessions.find_position(known)
    made = broker.reserve(
        operation.client_id, operation.link.topic, fresh=first and may_drop, first=first, at=at
    )
    last, final = made.position, dict[tuple[str, int], int]()
    if view is not None and not (last or made.existed):
        last = view.find_last(operation.link.topic, operation.sinks)
        if operation.link.topic not in view.ends:  # a log is not sent again
            final = view.find_last(operation.link.topic, stopped)
    with context.writing[operation.client_id]:
        now = context.records.sessions.get(context.scope, operation.client_id, operation.site)
        made_session = replace(now or session, reserved=True)
        if known is None and last:
            made_session = replace(made_session, since=_sort(last), passed=_sort(final))
        context.records.write(
            context.records.sessions.put(context.scope, made_session),
            context.records.sessions.drop_kept(operation.client_id, operation.site),
        )


def _sort(numbers: Mapping[tuple[str, int], int]) -> tuple[tuple[str, int, int], ...]:
    return tuple(sorted((*key, number) for key, number in numbers.items()))


def _find_known(context: Context, operation: Reserve) -> Session | None:
    """The session that is there, if it is to be used again."""
    former = context.records.sessions.get(context.scope, operation.client_id, operation.site)
    return former if former is not None and former.usable and not operation.fresh else None


def _intend(operation: Reserve, known: Session | None) -> Session:
    """A session that is not reserved yet, with what is `known` of it."""
    return Session(
        operation.client_id,
        operation.link,
        operation.site,
        operation.job_name,
        reserved=False,
        follows=operation.follows,
        beside=operation.beside,
        owed=known.owed if known else (),
        since=known.since if known else (),
        passed=known.passed if known else (),
        fed_outside=operation.fed_outside,
        job=operation.job,
        left_by=operation.left_by if known is None else known.left_by,
        instead_of=operation.instead_of if known is None else known.instead_of,
    )


def release(context: Context, operation: Release) -> Outcome:
    """Release a session. It counts as released from the moment the release begins.

    Raises PermanentError, and keeps the session, if the release is `guarded` and messages wait in
    it, or if nothing is known of that.
    """
    records = context.records
    broker = context.connections.broker(operation.site)
    # read before the session: numbers that another step clears now are stored with it by then
    view, clients = None, (operation.client_id, *operation.sinks)
    if operation.guarded:
        view = context.views.view(operation.site, clients)
    elif operation.limit_s is not None:
        view = context.views.view_after_end(operation.site, clients)
    if view is not None and operation.guarded and context.resends.await_all(operation.link, view):
        raise TransientError(
            f"cannot release the session of {operation.client_id}: what the broker of"
            f" {operation.site} has forgotten is sent again first"
        )
    with context.reserving[operation.client_id]:
        with _writing_released(context, operation):
            stored = records.sessions.get(context.scope, operation.client_id, operation.site)
            if view is not None and operation.guarded:
                _refuse_to_drop(operation, view, stored)
            dropped = find_dropped(operation, stored, view)
            _write_release(context, operation, _begin_release(operation, stored, dropped))
        broker.release(operation.client_id, operation.link.topic, last_reader=operation.last_reader)
    batch = records.sessions.drop(context.scope, operation.client_id, operation.site)
    if operation.last_reader:
        batch |= context.resends.leave(operation.link)
    return Done(batch, dropped=dropped, sessions=(operation.client_id,))


def _begin_release(
    operation: Release, stored: Session | None, dropped: DroppedQueue | None
) -> Session:
    """The session whose release has begun."""
    return Session(
        operation.client_id,
        operation.link,
        operation.site,
        operation.job_name,
        reserved=False,
        owed=stored.owed if stored is not None else (),
        since=stored.since if stored is not None else (),
        dropping=dropped,
    )


@contextmanager
def _writing_released(context: Context, operation: Release) -> Iterator[None]:
    """Hold the locks for writing the session that is released and all whose records are taken from
    it: until these are held, others may become such."""
    while True:
        names = {operation.client_id, *_list_instead(context, operation)}
        with context.writing.all_of(names):
            if names.issuperset(_list_instead(context, operation)):
                yield
                return


def _list_instead(context: Context, operation: Release) -> list[str]:
    """The sessions whose records are taken from the one that is released."""
    sessions = context.records.sessions.of_scope(context.scope)
    return [each.client_id for each in sessions if each.instead_of == operation.client_id]


def _write_release(context: Context, operation: Release, session: Session) -> None:
    """Store a session whose release has begun. No records are taken from it any more: one that is
    made later under its client id, for the same reader, has nothing to do with it."""
    records, scope = context.records, context.scope
    batch = records.sessions.put(scope, session)
    names = _list_instead(context, operation)
    for each in records.sessions.of_scope(scope) if names else ():
        if each.client_id in names:
            batch |= records.sessions.put(scope, replace(each, instead_of=None))
    records.write(batch)


def give_up_release(context: Context, operation: Release, why: str) -> Done:
    """Drop a session whose broker does not answer. It is ended there once the broker answers
    (`speck.monitor.lost_sessions`)."""
    records = context.records
    with _writing_released(context, operation):
        stored = records.sessions.get(context.scope, operation.client_id, operation.site)
        dropped = find_dropped(operation, stored, None)
        session = _begin_release(operation, stored, dropped)
        _write_release(context, operation, session)

    def mark_released() -> Batch:
        stored = records.sessions.get(context.scope, operation.client_id, operation.site)
        marked = replace(stored or session, released=True)
        return records.sessions.put(context.scope, marked)

    event = records.events.make(
        "session",
        f"the session of {session.reader} at {session.site}/{cut(session.link.topic)} is ended when"
        f" its broker answers: {why}",
        site=session.site,
        job_name=session.job_name,
    )
    # with what is dropped: once it may be ended at its broker, nothing tells of that any more
    return Done(event, dropped=dropped, sessions=(operation.client_id,), put_sessions=mark_released)


def find_dropped(
    operation: Release, stored: Session | None, view: BrokerView | None
) -> DroppedQueue | None:
    """The queue that a release drops, as the user has allowed; None if nothing waits in it. Without
    a `view` of the broker the number is not known."""
    if stored is None or operation.limit_s is None:
        return None
    if not stored.reserved:  # the release has begun before, and who wrote to it may be gone
        return stored.dropping
    why, holes = operation.why or stored.undrained, 0
    if not why:
        if view is None or not (operation.drained and operation.counted):
            return None
        why, holes = "it came after the job had taken everything", stored.holes
    messages, count = None, Count.UNKNOWN
    if view is not None and operation.counted:
        # what was sent since its follower's session was made is in that one
        sinks = () if stored.undrained and stored.followed_by else operation.sinks
        messages = max(0, count_unread(view, stored, sinks) - holes)
        count = Count.ABOUT if operation.client_id in view.taken else Count.AT_MOST
    if messages == 0:
        return None
    place = operation.site, operation.link.topic
    return DroppedQueue(operation.client_id, operation.job_name, *place, messages, count, why)


def _refuse_to_drop(operation: Release, view: BrokerView, stored: Session | None) -> None:
    if stored is None or not (stored.reserved or stored.dropping):  # it has begun before
        return
    unread = count_unread(view, stored, operation.sinks)
    if unread == 0 and operation.abandons is not None:
        return
    count = "at most" if operation.client_id not in view.taken else "about"
    size = "messages may wait" if operation.abandons is None else f"{count} {unread} messages wait"
    raise PermanentError(
        f"cannot end the session of {operation.job_name or operation.client_id} on"
        f" {operation.site}/{cut(operation.link.topic)}: {size} in it, and nobody takes them; the"
        " session is kept. Use --drop-queues to drop them"
    )


def hand_over(context: Context, operation: HandOver, doubt: Doubt | None = None) -> Outcome:
    """Store the numbers taken of the link by the old reader, and by those before it, with the new
    reader's session. From then on the link belongs to the new reader, and what waits is for it as
    it is to run now. `doubt`: whether the broker still has these numbers has been unclear."""
    view = context.views.view(operation.site)
    if _needs_report(context, operation):
        go_on = partial(hand_over, context, operation)
        judged = [judge_handover(context, operation, view)]
        waiting = wait_while_unclear(context, operation.site, judged, view, doubt, go_on)
        if waiting is not None:
            return waiting
    # it may be handed over to several at once, and a start may commit a cut of theirs
    with context.writing.all_of((operation.former, operation.client_id, *operation.others)):
        context.records.write(put_handover(context, operation, view))
    return Done()


def _needs_report(context: Context, operation: HandOver) -> bool:
    """Whether no other handover has stored yet what the old reader had taken."""
    old = context.records.sessions.get(context.scope, operation.former, operation.site)
    return old is not None and old.followed_by is None


def put_handover(
    context: Context, operation: HandOver, view: BrokerView, *, is_last: bool = True
) -> Batch:
    """The writes of a handover."""
    records, scope = context.records, context.scope
    new = records.sessions.get(scope, operation.client_id, operation.site)
    old = records.sessions.get(scope, operation.former, operation.site)
    if new is None or old is None:
        lost_reader = operation.job_name if new is None else operation.former_job
        raise PermanentError(
            f"cannot hand over {operation.site}/{cut(operation.link.topic)} from"
            f" {operation.former_job} to {operation.job_name}: the session of {lost_reader} is"
            " gone; apply again"
        )
    if is_last and _needs_report(context, operation):
        refuse_forgotten_report(context, operation, view)
    reported = view.taken.get(operation.former)
    epochs = reported.epochs() if reported else ()
    seen = records.sessions.find_seen(old)  # its broker may have lost its place since
    places = [TakenEpoch(*each) for each in seen.numbers] if seen is not None else ()
    live = {series for series, _ in view.ends.get(operation.link.topic, ())}
    live |= {each.producer for each in epochs}
    taken = _limit_epochs(merge_taken(old.skip, places, epochs, new.skip), live, view)
    new = replace(
        new,
        follows=None,
        followed_by=None,
        whole=False,
        former=operation.former,
        skip=taken,
        committed=False,
    )
    if operation.job not in (None, new.job):
        new = replace(new, job=operation.job, begun=False)
    batch = records.sessions.put(scope, new)
    if not new.beside or old.followed_by is None:
        # a broker that is killed now may lose the new session, and forget what the old one took
        old = replace(old, followed_by=operation.client_id, skip=taken)
        batch |= records.sessions.put(scope, old)
    for client_id in operation.others:
        other = records.sessions.get(scope, client_id, operation.site)
        if other is not None and other.reserved:
            batch |= records.sessions.put(scope, replace(other, followed_by=operation.client_id))
    return batch


def _limit_epochs(
    taken: Sequence[TakenEpoch], live: Collection[str], view: BrokerView
) -> tuple[TakenEpoch, ...]:
    """Drop epochs that no producer can send again: of series that are not `live` (the old reader
    reports them, or they are parts of the link's log) and no producer of the broker, only the
    newest few are kept. All of them go on a command line."""
    producers = {sent.producer for sent in view.sent.values()} | {*live}
    others = [each for each in taken if each.producer not in producers]
    surplus = others[:-_OTHERS_KEPT]
    return tuple(each for each in taken if each not in surplus)


_OTHERS_KEPT = 16


def forget(context: Context, operation: Forget) -> Outcome:
    batch = context.records.incarnations.drop(context.scope, operation.job_name)
    for each in operation.left:
        record_owed(context, each.link.site, each.link, each.sinks, each.readers)
        batch |= forget_sinks(context, each.link.site, each.link, each.sinks)
    return Done(batch)


def clear(context: Context, operation: Clear) -> Outcome:
    record_owed(context, operation.site, operation.link, operation.sinks, operation.readers)
    incarnation = context.find_incarnation(operation.job_name)
    sinks_to_forget = operation.sinks
    if incarnation is not None and operation.link in incarnation.job.port:  # it has come back
        job = incarnation.job
        own = context.sink_client_id(job, operation.link)
        used = (own, *incarnation.former_sinks_of(operation.link))
        sinks_to_forget = tuple(sink for sink in sinks_to_forget if sink not in used)
    batch = forget_sinks(context, operation.site, operation.link, sinks_to_forget)
    if incarnation is None or not incarnation.stale:
        return Done(batch)
    keys = {(operation.site, operation.link, sink) for sink in operation.sinks}
    stale = tuple(s for s in incarnation.stale if (s.site, s.link, s.client_id) not in keys)
    cleared = replace(incarnation, stale=stale)
    return Done(batch | context.records.incarnations.put(context.scope, cleared))


def record_owed(
    context: Context, site: str, link: Link, sinks: tuple[str, ...], readers: tuple[str, ...]
) -> None:
    """Store with the sessions of `readers` the numbers that `sinks` have reported and they have not
    taken. When a reader leaves the link later, it is drained by these numbers, since no sink
    reports them any more."""
    if not readers or _is_forgotten(context, site):
        return
    view = context.views.view(site)
    reports = [view.sent[sink] for sink in view.sinks_of(link.topic, sinks)]
    for client_id in readers if reports else ():
        with context.writing[client_id]:
            _add_owed(context, site, client_id, reports, view)


def _add_owed(
    context: Context, site: str, client_id: str, reports: list[Sent], view: BrokerView
) -> None:
    session = context.records.sessions.get(context.scope, client_id, site)
    if session is None or not session.reserved:  # it is being released
        return
    owed = {(producer, epoch): number for producer, epoch, number in session.owed}
    for sent in reports:
        key = (sent.producer, sent.epoch)
        owed[key] = max(sent.number, owed.get(key, 0))
    numbers = tuple((*key, number) for key, number in sorted(owed.items()))
    ended = {(sent.producer, sent.epoch) for sent in reports}
    running = tuple(each for each in session.running if each not in ended)
    owing = replace(session, owed=numbers, running=running)
    if not count_unread(view, owing, ()):
        owing = replace(owing, owed=())
    owing = fold_owed(owing, {(sent.producer, sent.epoch) for sent in view.sent.values()})
    if owing != session:
        context.records.write(context.records.sessions.put(context.scope, owing))


def give_up_forgetting(context: Context, operation: Forget) -> Done:
    """Forget a removed job though the broker of its sink does not answer: its numbers stay there,
    where they harm nobody, until a job of the same name and links sends again."""
    return Done(context.records.incarnations.drop(context.scope, operation.job_name))


def _is_forgotten(context: Context, site: str) -> bool:
    """Whether a site is not registered any more, by force: there is nothing to tidy up then."""
    return site not in context.records.sites.all()


def forget_sinks(context: Context, site: str, link: Link, sinks: tuple[str, ...]) -> Batch:
    """Clear the numbers of sinks, except of those that may have to send again: by them these know
    what the broker has. Returns the writes for those that need not, since nobody reads the link."""
    batch: Batch = {}
    responsible: set[str] = set()
    if context.records.sessions.has_reserved(link):
        responsible = {sink.client_id for _, sink in context.records.ended_sinks.on_link(link)}
    else:
        batch = context.resends.let_go(link, sinks)
    to_clear = tuple(sink for sink in sinks if sink not in responsible)
    if to_clear and not _is_forgotten(context, site):
        context.forgetting.ask(site, to_clear)
    return batch
