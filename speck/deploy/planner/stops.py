"""Plans how incarnations end: who leaves which link, what is drained, and the stop itself."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from speck.deploy.planner.decisions import may_arrive
from speck.deploy.planner.draft import Decision, Draft, ids
from speck.deploy.planner.queues import explain_undrained
from speck.deploy.planner.sessions import find_awaited_stops, is_still_fed
from speck.deploy.planner.sinks import find_staying_readers, has_outside_reader, sinks_of
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.starts import find_successors, try_main
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation
from speck.model.job import Delivery, DesiredState, Job
from speck.model.link import Link
from speck.model.plan import Cancel, Drain, Fence, Stop
from speck.spec.job_contract import reports_numbers


def note_leaving(draft: Draft, decisions: list[Decision]) -> None:
    """Record which producers leave which links, and which of those links are drained.

    A producer that has stopped before leaves too: what it sent may still wait. A producer that
    changes its source leaves its link and joins it again: readers that leave the link take what it
    sent until then, and readers that join take what it sends afterwards.
    """
    for decision in decisions:
        if decision.old is None:
            continue
        sink = decision.old.job.sink
        new = decision.new
        is_left = new is None or new.sink != sink or new.state is DesiredState.STOPPED
        is_left = is_left or (decision.old.finished and not decision.starts)  # all was sent
        cut = decision.job_name in draft.cut_jobs
        if is_left or cut or (new is not None and new.source != decision.old.job.source):
            draft.leavers[sink].append(decision)
    between = draft.cut_between
    if draft.situation.conditions.drains:
        draft.drained_links = {
            d.old.job.source
            for d in decisions
            if d.stops
            and d.old
            and (_is_drained_as_it_leaves(draft.situation, d) or d.job_name in between)
        }


def leaves(decision: Decision) -> bool:
    """Whether a job stops being a reader of the link that it reads now."""
    assert decision.old is not None
    return decision.new is None or decision.new.source != decision.old.job.source


def _is_drained_as_it_leaves(situation: Situation, reader: Decision) -> bool:
    assert reader.old is not None
    return leaves(reader) and explain_undrained(situation, reader.old) is None


def drains(draft: Draft, reader: Decision) -> bool:
    """Whether `reader` can empty a link before it stops reading it."""
    old = reader.old
    assert old is not None
    is_drained = (
        _is_drained_as_it_leaves(draft.situation, reader) or reader.job_name in draft.cut_between
    )
    return (
        is_drained
        and old.job.source in draft.drained_links
        and not may_arrive(draft.situation, old)
    )


def find_leaving_producers(draft: Draft, reader: Decision) -> list[Decision]:
    """Producers that leave, in this plan, the link that `reader` leaves; none if the reader
    stays."""
    assert reader.old is not None
    if not drains(draft, reader):
        return []
    return [d for d in draft.leavers.get(reader.old.job.source, []) if d is not reader]


def sort_upstream_first(draft: Draft, stopping: list[Decision]) -> list[Decision]:
    """Sort producers before the readers that are drained after them, ties by name.

    Deployed jobs form no circle, unless a job outside speck closes one: then no job waits for
    another.
    """
    by_name = {d.job_name: d for d in stopping}
    before = {d.job_name: sorted(_find_earlier(draft, d) & by_name.keys()) for d in stopping}
    try:
        return [by_name[name] for name in TopologicalSorter(before).static_order()]
    except CycleError:
        return stopping


def _find_earlier(draft: Draft, reader: Decision) -> set[str]:
    """The producers that a reader is drained after, and those that stop together with these."""
    producers = find_leaving_producers(draft, reader)
    names = {d.job_name for d in producers}
    return names.union(*(draft.find_together(d.old.job) for d in producers if d.old is not None))


def stop(draft: Draft, decision: Decision) -> None:
    old = decision.old
    assert old is not None
    after: list[int] = []
    if (
        decision.new
        and decision.starts
        and decision.new.site not in draft.situation.conditions.cannot_try
    ):
        after.append(try_main(draft, decision))
    # While the link is still fed, another session has to receive what comes from now on.
    leads = leaves(decision) or draft.find_together(old.job)
    reserve_steps = draft.reserves[old.job.source] if leads else []
    reserve_steps = reserve_steps if is_still_fed(draft, old.job.source) else []
    drain_step = drain(draft, decision, old, reserve_steps)
    after += [*ids([drain_step]), *reserve_steps]
    final = drain_step is not None and leaves(decision) and _is_final(draft, old.job.source)
    identity = (old.job.site, decision.job_name, old.attempt, old.engine_job_id)
    pauses = decision.new is not None and decision.new.state is DesiredState.STOPPED
    operation: Fence | Cancel | Stop = Stop(*identity, final, pauses)
    if may_arrive(draft.situation, old):
        operation = Fence(*identity)
    elif (
        needs_no_savepoint(draft, decision)
        or old.job.site in draft.situation.conditions.cannot_save
    ):
        operation = Cancel(*identity, final, pauses)
    decision.stop_id = draft.add(operation, after, decision.reason)
    if leads or decision.job_name in draft.cut_between:
        own = source_client_id(draft.situation.installation, decision.job_name, old.job.source)
        draft.leaving_readers[old.job.source].append((own, decision.stop_id))


def _is_final(draft: Draft, link: Link) -> bool:
    """Whether messages that reach the link after a drain are not for its reader. False where
    producers only pause: their next messages may be for it if the change is interrupted."""
    staying = any(
        d.job.job_name in draft.cut_jobs for d in draft.situation.jobs.producers.get(link, ())
    )
    return not staying and not is_still_fed(draft, link)


def _is_lossy(situation: Situation, link: Link) -> bool:
    """Whether no producer sends again what a reader of the link has missed."""
    producers = [incarnation.job for incarnation in situation.jobs.producers.get(link, ())]
    lossy = all(job.delivery is Delivery.AT_MOST_ONCE for job in producers)
    return bool(producers) and lossy and not situation.is_fed_outside(link)


def find_staying_producers(draft: Draft, reader: Decision) -> list[Incarnation]:
    """Producers of the scope that stay on the link that `reader` leaves, and report numbers."""
    assert reader.old is not None
    if not drains(draft, reader):
        return []
    link = reader.old.job.source
    leaving = {d.job_name for d in draft.leavers[link]}
    staying = [
        d for d in draft.situation.jobs.producers.get(link, ()) if d.job.job_name not in leaving
    ]
    return [incarnation for incarnation in staying if reports_numbers(incarnation.job)]


def drain(
    draft: Draft, decision: Decision, old: Incarnation, reserve_steps: Sequence[int] = ()
) -> int | None:
    """The step in which a reader empties the link that it leaves, if it needs one.

    From producers that stay on the link it takes what they had sent until `reserve_steps` had
    reserved the sessions of the readers that go on.
    """
    source = old.job.source
    client_id = source_client_id(draft.situation.installation, decision.job_name, source)
    producers = find_leaving_producers(draft, decision)
    going_on = find_staying_producers(draft, decision)
    has_debt = client_id in draft.situation.present.owed and drains(draft, decision)
    is_joined = bool(draft.find_together(old.job)) and source in draft.joined_links
    handed_over = drains(draft, decision) and (is_followed(draft, client_id) or is_joined)
    has_follower = handed_over and is_still_fed(draft, source)
    if not (producers or going_on or has_debt or has_follower):
        return None
    leavers = [d.old for d in producers if d.old]
    sinks = [sink for each in leavers for sink in sinks_of(draft.situation, each)]
    silent = [
        s for d in leavers if not reports_numbers(d.job) for s in sinks_of(draft.situation, d)
    ]
    others = draft.situation.outside.sinks.get(source, ()) if has_follower else ()
    operation = Drain(
        old.job.source_site,
        source,
        client_id,
        decision.job_name,
        tuple(sorted(sinks)),
        old.job.site,
        old.engine_job_id,
        tuple(sorted(silent)),
        tuple(
            sorted({*others, *(s for each in going_on for s in sinks_of(draft.situation, each))})
        ),
        has_follower,
        has_follower and is_fed_uncounted(draft.situation, source),
        _is_lossy(draft.situation, source),
        draft.situation.conditions.limit_s,
        handed_over,
    )
    names = ", ".join(sorted(d.job_name for d in producers))
    reason = f"{names} left it" if producers else "left from before"
    if (going_on or has_follower) and not producers:
        reason = "what was sent so far"
    if draft.situation.conditions.limit_s is not None:
        reason += f"; what it has not taken in {draft.situation.conditions.limit_s:g} s is dropped"
    stops = find_awaited_stops(draft.situation, producers)
    whatever = frozenset(stops if draft.situation.conditions.drops else ())
    step = draft.add(operation, (*stops, *reserve_steps), reason, whatever)
    draft.drained_readers.add(client_id)
    for sink in operation.sinks:
        draft.drains_of[sink].append(step)
    if reports_numbers(old.job) and not silent and not is_still_fed(draft, source):
        draft.emptied_readers.add(client_id)
    return step


def is_fed_uncounted(situation: Situation, link: Link) -> bool:
    """Whether a publisher without reported numbers feeds the link."""
    producers = situation.jobs.producers.get(link, ())
    if not producers and link not in situation.outside.sinks:
        return True
    return link in situation.desired.inputs or not all(reports_numbers(p.job) for p in producers)


def is_followed(draft: Draft, client_id: str) -> bool:
    """Whether another reader continues where the reader with that session ends, now or in the plan
    after this one."""
    if any(former.client_id == client_id for former in draft.predecessors.values()):
        return True
    sessions = draft.situation.inventory.sessions if draft.backlog_only else ()
    return any(session.follows == client_id and session.reserved for session in sessions)


def needs_no_savepoint(draft: Draft, decision: Decision) -> bool:
    """Whether a job may be cancelled instead of stopped with a savepoint.

    Not if a reader is drained after it, now or later, or a reader outside speck has a session on
    its link: only a stop flushes its sink and reports its last number, by which the messages in
    that session are counted. Nor if another reader follows it, or goes on at its sink link: only a
    stop determines exactly what it has taken, and publishes all of that.
    """
    assert decision.old is not None
    old, new = decision.old.job, decision.new
    own = source_client_id(draft.situation.installation, decision.job_name, old.source)
    if old.sink in draft.drained_links or is_followed(draft, own) or draft.find_together(old):
        return False
    if reports_numbers(old) and any(map(reports_numbers, find_successors(draft.situation, old))):
        return False
    if new is None:
        is_counted = find_staying_readers(draft.situation, old.sink) or has_outside_reader(
            draft.situation, old.sink
        )
        return not (draft.situation.conditions.drains and is_counted)
    return _restarts_without_state(draft, decision, old, new)


def _restarts_without_state(draft: Draft, decision: Decision, old: Job, new: Job) -> bool:
    """Whether the next incarnation reads and writes the same links without any state of this one.

    What this one took since its last checkpoint then comes again: that is not acknowledged. Not
    under `exactly_once`, since results that are not published yet are in the state, and a repeated
    input would be published again under another number.
    """
    is_cut = decision.job_name in draft.cut_jobs or decision.job_name in draft.cut_between
    in_place = (old.source, old.sink) == (new.source, new.sink) and not is_cut
    publishes_at_once = Delivery.EXACTLY_ONCE not in (old.delivery, new.delivery)
    return decision.starts and not decision.keeps_state and in_place and publishes_at_once
