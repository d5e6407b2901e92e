"""Plans how incarnations begin: the jar, the trial of `main`, the slots, and the start itself."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace

from speck.deploy.planner.decisions import is_live
from speck.deploy.planner.draft import Decision, Draft, ids
from speck.deploy.planner.sinks import find_stale_sinks, list_former_sinks, sink_of
from speck.deploy.planner.situation import Situation
from speck.model.ids import sink_client_id, source_client_id
from speck.model.incarnation import Incarnation
from speck.model.job import Job
from speck.model.link import Link
from speck.model.plan import Carry, Return, Start, TryMain, Upload
from speck.spec.fingerprint import differences
from speck.spec.job_contract import reports_numbers


def upload(draft: Draft, job: Job) -> int:
    key = (job.site, job.jar)
    if key not in draft.uploads:
        draft.uploads[key] = draft.add(Upload(*key), (), "needed there")
    return draft.uploads[key]


def try_main(draft: Draft, decision: Decision) -> int:
    """Add the step that tries `main`, once for all jobs that differ in name and links only.

    A `main` that keeps the job contract reads these from its arguments; one with arguments of its
    own is tried for each job.
    """
    job = decision.new
    assert job is not None
    links = () if reports_numbers(job) else (job.source, job.sink)
    how = (job.args, job.parallelism, job.delivery, job.link)
    key = (job.site, job.jar, job.entry_class, *how, links)
    if key not in draft.tries:
        operation = TryMain(job, *make_next_attempt(draft, decision.job_name))
        draft.tries[key] = draft.add(operation, (upload(draft, job),), "before it stops")
    return draft.tries[key]


def make_next_attempt(draft: Draft, name: str) -> tuple[int, str]:
    attempt = draft.situation.inventory.attempts.get(name, 0) + 1
    old = draft.situation.inventory.jobs.get(name)
    if old is not None and draft.find_together(old.job):
        attempt += 1  # after the one that catches up
    return attempt, draft.situation.engine_job_id(name, attempt)


def start(
    draft: Draft,
    decision: Decision,
    starts: Sequence[int] = (),
    stops: Sequence[int] = (),
    beside: Sequence[Decision] = (),
) -> None:
    """Add a start after what it needs, and what those `beside` it need, after other `starts`, and
    when other `stops` are over."""
    job = decision.new
    assert job is not None
    old = decision.old.base if decision.again and decision.old is not None else decision.old
    own = source_client_id(draft.situation.installation, job.job_name, job.source)
    needed = [
        upload(draft, job),
        *starts,
        *(step for each in (decision, *beside) for step in _list_needed(draft, each)),
        *ids([carry(draft, decision, old)]),
        *draft.slot_waits.get(decision.job_name, []),
    ]
    operation = replace(
        make_start(draft, decision), commits=_list_committed(draft, decision, beside)
    )
    reason = "new job" if decision.old is None else decision.reason
    whatever = frozenset(set(stops) - set(needed))
    decision.start_id = draft.add(operation, [*needed, *stops], reason, whatever)
    draft.start_of[own] = decision.start_id
    if _has_a_way_back(draft, decision):
        add_way_back(draft, decision, operation)


def rank_start(decision: Decision) -> tuple[bool, str]:
    """The order of the starts of jobs that change at the same record. Those that ran with the same
    links come last: they can most likely start."""
    return not is_rewired(decision), decision.job_name


def _list_committed(
    draft: Draft, decision: Decision, beside: Sequence[Decision]
) -> tuple[tuple[str, Job, bool], ...]:
    """The sessions that change at a cut behind which the first records flow with this start, and
    whether their readers start after it."""
    assert decision.new is not None
    source, sink = decision.new.source, decision.new.sink
    committed: dict[str, tuple[Job, bool]] = {}
    if draft.backlog_only and _begins_behind_a_cut(draft, decision.new):
        own = source_client_id(draft.situation.installation, decision.job_name, source)
        committed[own] = decision.new, False
    for link in [*([source] if _is_fed(draft, source) else []), *_list_links_fed(draft, sink)]:
        committed |= {c: (job, False) for c, job in draft.exchanges.get(link, {}).items()}
    for each in beside if _is_fed(draft, source) else ():
        assert each.new is not None
        own = source_client_id(draft.situation.installation, each.job_name, each.new.source)
        committed[own] = each.new, rank_start(decision) < rank_start(each)
    return tuple((client_id, *committed[client_id]) for client_id in sorted(committed))


def _begins_behind_a_cut(draft: Draft, job: Job) -> bool:
    """Whether a job that reads first begins with what another one that reads first sends behind a
    cut: that one is fed, itself or through others that read first."""
    own = source_client_id(draft.situation.installation, job.job_name, job.source)
    session = draft.situation.present.usable.get(own)
    if session is None or session.begun or session.instead_of is None:
        return False
    reading = [j for j in draft.situation.jobs.wanted.values() if j.job_name not in draft.kept_jobs]
    visited, ahead = set[Link](), [job.source]
    while ahead:
        at = ahead.pop()
        sources = {each.source for each in reading if each.sink == at} - visited
        if any(_is_sent_to(draft.situation, source) for source in sources):
            return True
        visited |= sources
        ahead += sources
    return False


def _is_fed(draft: Draft, link: Link) -> bool:
    """Whether a link is fed before any job starts."""
    leaving = {each.job_name for each in draft.leavers.get(link, ())}
    staying = any(
        each.job.job_name not in leaving for each in draft.situation.jobs.producers.get(link, ())
    )
    return staying or draft.situation.has_foreign_producers(link)


def _is_sent_to(situation: Situation, link: Link) -> bool:
    """Whether jobs that run, or publishers outside speck, write to a link."""
    if situation.is_fed_outside(link):
        return True
    producers = situation.jobs.producers.get(link, ())
    is_written = any(job.sink == link for job in situation.jobs.wanted.values())
    return any(is_live(situation, each) for each in producers) or not (producers or is_written)


def _list_links_fed(draft: Draft, sink: Link) -> list[Link]:
    return [] if _is_fed(draft, sink) else [sink]


def _list_needed(draft: Draft, decision: Decision) -> list[int]:
    """The steps at links, and the stops, that come before a start."""
    job = decision.new
    assert job is not None
    own = source_client_id(draft.situation.installation, job.job_name, job.source)
    return [
        *draft.reserves.get(job.sink, []),
        *_find_made_anew(draft, job.sink),
        *ids([draft.reserve_of.get(own), draft.handover_of.get(own), decision.stop_id]),
        *_find_leaving_readers(draft, decision, job),
        *(_find_closing_stops(draft, job) if is_rewired(decision) or not decision.stops else ()),
    ]


def _find_made_anew(draft: Draft, link: Link) -> list[int]:
    """The steps that make sessions anew on a link and behind it, which is written to already: what
    a job sends there is for them."""
    if not draft.made_anew:
        return []
    sinks_of: dict[Link, set[Link]] = defaultdict(set)
    for job in draft.situation.jobs.wanted.values():
        sinks_of[job.source].add(job.sink)
    visited, ahead = {link}, [link]
    while ahead:
        new = sinks_of[ahead.pop()] - visited
        visited |= new
        ahead += new
    return [step for each in visited for step in draft.made_anew.get(each, ())]


def make_start(draft: Draft, decision: Decision) -> Start:
    """The start of a job as it is wanted."""
    job, old = decision.new, decision.old
    assert job is not None
    attempt, job_id = make_next_attempt(draft, decision.job_name)
    if decision.again and old is not None:
        attempt, job_id, old = old.attempt, old.engine_job_id, old.base
    return Start(
        job,
        attempt,
        job_id,
        job.sink in draft.situation.wanted.links_read,
        old is not None and decision.keeps_state,
        list_former_sinks(draft.situation, decision.old, job),
        find_stale_sinks(draft.situation, decision),
    )


def _find_leaving_readers(draft: Draft, decision: Decision, job: Job) -> list[int]:
    """The steps in which readers leave the sink's link, if the job is new there, has another source
    than before, or did not run: its messages are for the readers from now on."""
    if decision.stops and not is_rewired(decision) and decision.job_name not in draft.cut_jobs:
        return []
    predecessors = [s.client_id for s in draft.predecessors.values() if s.link == job.sink]
    handovers = [
        draft.handover_of[client_id]
        for client_id, former in draft.predecessors.items()
        if former.link == job.sink and client_id in draft.handover_of
    ]
    stops = [
        step
        for client_id, step in draft.leaving_readers.get(job.sink, ())
        if client_id not in predecessors
    ]
    return [*handovers, *stops]


def note_circuits(draft: Draft, decisions: list[Decision]) -> None:
    """Record which links lead to which, through jobs as they are wanted, or as they run until they
    stop."""
    follows: dict[Link, list[tuple[Link, int | None]]] = defaultdict(list)
    for decision in decisions:
        if decision.stop_id is not None and decision.old is not None and is_rewired(decision):
            follows[decision.old.job.source].append((decision.old.job.sink, decision.stop_id))
    if not follows:
        return
    for decision in decisions:
        if decision.new is not None:
            follows[decision.new.source].append((decision.new.sink, None))
    draft.circuits = follows


def is_rewired(decision: Decision) -> bool:
    """Whether a job will have other links than before, or begins or ends."""
    old, new = decision.old, decision.new
    if old is None or new is None:
        return True
    return (old.job.source, old.job.sink) != (new.source, new.sink)


def find_successors(situation: Situation, old: Job) -> list[Job]:
    """The jobs that take the same records to the same link from now on."""
    before = situation.jobs.present_with_ends(old.ends)
    return [job for job in situation.jobs.wanted_with_ends(old.ends) if job.job_name not in before]


def _find_closing_stops(draft: Draft, job: Job) -> set[int]:
    """The stops that must come before a start: until then the job's output would come back to
    it."""
    waits, visited, ahead = set[int](), {job.sink}, [job.sink]
    while ahead:
        for link, stop_id in draft.circuits.get(ahead.pop(), ()):
            if stop_id is not None:
                waits.add(stop_id)
            if link not in visited:
                visited.add(link)
                ahead.append(link)
    return waits if job.source in visited else set()


def carry(draft: Draft, decision: Decision, old: Incarnation | None) -> int | None:
    """Add the step that transfers a job's state to its new site, if that cannot read the old site's
    storage."""
    assert decision.new is not None
    target = decision.new.site
    while old is not None and decision.keeps_state:
        if not old.void and (old.job.site, target) in draft.situation.conditions.apart:
            operation = Carry(target, decision.job_name, old.job.site)
            return draft.add(operation, ids([decision.stop_id]), "they share no storage")
        old = old.base
    return None


def _has_a_way_back(draft: Draft, decision: Decision) -> bool:
    """Whether the former incarnation may come back if a start fails.

    Not if it would publish to a link that a reader leaves in this plan, or what another job
    publishes now, read messages that another reader has received or that a new producer sends, or
    close a circle with rewired jobs.
    """
    old = _find_former_run(draft.situation, decision)
    if old is None:
        return False
    present = draft.situation.present.on_link
    if any(session not in draft.situation.wanted for session in present.get(old.job.sink, ())):
        return False
    if old.job.sink in draft.leaving_readers or _was_left(draft, old.job):
        return False
    new = decision.new
    if new is None or (new.source, new.sink) == (old.job.source, old.job.sink):
        return True
    if decision.job_name in draft.switching or _gets_a_producer(draft.situation, old.job.source):
        return False
    is_cut = draft.cut_jobs or draft.together
    if is_cut and _gets_a_producer(draft.situation, old.job.sink):
        return False
    own = source_client_id(draft.situation.installation, old.job.job_name, old.job.source)
    is_followed = any(former.client_id == own for former in draft.predecessors.values())
    there = {
        session.client_id for session in draft.situation.present.on_link.get(old.job.source, ())
    }
    joining = (
        s for s in draft.situation.wanted.on_link(old.job.source) if s.client_id not in there
    )
    handed_over = new.source != old.job.source and any(joining)
    return not (handed_over or is_followed) and not _may_circle(draft.situation, old.job)


def _is_fed_later(situation: Situation, link: Link) -> bool:
    """Whether anything writes to a link once the plan is carried out."""
    is_fed = situation.has_foreign_producers(link)
    return is_fed or any(job.sink == link for job in situation.jobs.wanted.values())


def _was_left(draft: Draft, job: Job) -> bool:
    """Whether an earlier change, which ended early, has handed over the link that a job read to
    another reader, or has let a reader of its sink's link leave that."""
    own = source_client_id(draft.situation.installation, job.job_name, job.source)
    session = draft.situation.present.by_id.get(own)
    is_followed = session is not None and session.followed_by is not None
    if is_followed and own not in draft.predecessors:
        return True
    return any(
        each.drained and each.client_id not in draft.predecessors
        for each in draft.situation.present.on_link.get(job.sink, ())
    )


def _gets_a_producer(situation: Situation, link: Link) -> bool:
    before = {incarnation.job.job_name for incarnation in situation.jobs.producers.get(link, ())}
    return any(
        job.sink == link and job.job_name not in before for job in situation.jobs.wanted.values()
    )


def _find_former_run(situation: Situation, decision: Decision) -> Incarnation | None:
    """The incarnation that stops for a start, or was stopped for it before the change was planned
    again, or has failed or was lost: after an unsuccessful update, a repair tries the update
    first."""
    old = decision.old
    if decision.job_name in situation.conditions.stopped_jobs:
        while old is not None and not old.confirmed:
            old = None if old.switched else old.base
        return old
    if old is None or not old.confirmed or old.ended:
        return None
    assert decision.new is not None
    return old if decision.stops or differences(old.job, decision.new) else None


def _may_circle(situation: Situation, job: Job) -> bool:
    """Whether the output of `job` may come back to it while others run as before or as wanted."""
    follows: dict[Link, set[Link]] = defaultdict(set)
    for each in (*situation.desired.jobs, *(d.job for d in situation.inventory.jobs.values())):
        follows[each.source].add(each.sink)
    visited, ahead = set[Link](), [job.sink]
    while ahead:
        link = ahead.pop()
        if link not in visited:
            visited.add(link)
            ahead += follows[link]
    return job.source in visited


def add_way_back(draft: Draft, decision: Decision, failed_start: Start) -> None:
    """Add the step in which the former incarnation comes back, as a new attempt, if `failed_start`
    fails."""
    old, new, start_id = (
        _find_former_run(draft.situation, decision),
        decision.new,
        decision.start_id,
    )
    assert old is not None and new is not None and start_id is not None
    attempt = failed_start.attempt + 1
    former = old.former_sinks
    if new.sink == old.job.sink:  # the start may have sent messages there before it failed
        own = sink_of(draft.situation, old)
        failed = sink_client_id(draft.situation.installation, new.job_name, new.source, new.sink)
        sinks = (*failed_start.former_sinks, failed)
        former = tuple(sink for sink in sinks if sink != own)
    operation = Return(
        old.job,
        attempt,
        draft.situation.engine_job_id(decision.job_name, attempt),
        old.job.sink in draft.situation.wanted.links_read,
        failed_start.engine_job_id,
        keeps_state=old.job.site not in draft.situation.conditions.cannot_save,
        former_sinks=former,
        fed=_is_fed_later(draft.situation, old.job.source),
    )
    # a reader whose link another one has goes on there once it was handed back
    own = source_client_id(draft.situation.installation, old.job.job_name, old.job.source)
    after = ids([decision.stop_id, start_id, draft.handover_of.get(own)])
    reason = f"if #{start_id} fails"
    draft.add(operation, after, reason, frozenset({start_id}), only_if_failed=start_id)


def note_slot_waits(draft: Draft, decisions: list[Decision]) -> None:
    """Record the stops at a site that must come before a start there because no slot is free for
    it.

    Starts take free slots in order of name; a start whose own stop frees slots at the same site
    needs no others.
    """
    freeing: dict[str, deque[tuple[int, int]]] = defaultdict(deque)
    for decision in decisions:
        if decision.stop_id is not None and decision.old and not _in_place(decision):
            old = decision.old.job
            freeing[old.site].append((decision.stop_id, old.parallelism))
    budgets = {
        site: view.slots.free
        for site, view in draft.situation.observation.engines.items()
        if view.slots
    }
    for decision in decisions:
        if not decision.starts or decision.new is None or decision.new.site not in budgets:
            continue
        site = decision.new.site
        budgets[site] -= decision.new.parallelism - _count_slots_freed_in_place(decision)
        while budgets[site] < 0 and freeing[site]:
            stop_id, slots = freeing[site].popleft()
            budgets[site] += slots
            draft.slot_waits.setdefault(decision.job_name, []).append(stop_id)


def _in_place(decision: Decision) -> bool:
    return bool(
        decision.starts
        and decision.old
        and decision.new
        and decision.old.job.site == decision.new.site
    )


def _count_slots_freed_in_place(decision: Decision) -> int:
    if not decision.stops or not _in_place(decision) or decision.old is None:
        return 0
    return decision.old.job.parallelism
