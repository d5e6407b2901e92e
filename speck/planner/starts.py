"""How incarnations begin: the jar, the trial of `main`, the slots, and the start itself."""

from __future__ import annotations

from collections import defaultdict, deque

from speck.contract import tells_numbers
from speck.model import Job, engine_job_id, source_client_id
from speck.plan import Restore, Start, TryMain, Upload
from speck.planner.draft import Decision, Draft, ids
from speck.planner.sinks import former_sinks


def upload(draft: Draft, job: Job) -> int:
    key = (job.site, job.jar)
    if key not in draft.uploads:
        draft.uploads[key] = draft.add(Upload(*key), (), "needed there")
    return draft.uploads[key]


def try_main(draft: Draft, decision: Decision) -> int:
    """`main` is tried once for all jobs that differ in name and links only.

    A `main` that keeps the job contract takes those as they come; one with a spelling of
    its own is tried with each.
    """
    job = decision.new
    assert job is not None
    links = () if tells_numbers(job) else (job.source, job.sink)
    key = (job.site, job.jar, job.entry_class, job.args, job.parallelism, job.delivery, links)
    if key not in draft.tries:
        operation = TryMain(job, *next(draft, decision.job_name))
        draft.tries[key] = draft.add(operation, (upload(draft, job),), "before it stops")
    return draft.tries[key]


def next(draft: Draft, name: str) -> tuple[int, str]:
    attempt = draft.inventory.attempts.get(name, 0) + 1
    return attempt, engine_job_id(draft.installation, draft.desired.name, name, attempt)


def start(draft: Draft, decision: Decision) -> None:
    job = decision.new
    assert job is not None
    attempt, job_id = next(draft, decision.job_name)
    old = decision.old
    if decision.again and old is not None:
        attempt, job_id, old = old.attempt, old.engine_job_id, old.base
    own = source_client_id(draft.installation, job.job_name, job.source)
    after = [
        upload(draft, job),
        *draft.reserves.get(job.sink, []),
        *ids([draft.reserve_of.get(own), decision.stop_id, decision.clear_id]),
        *draft.slot_waits.get(decision.job_name, []),
    ]
    restore = None
    if old is not None and decision.keeps_state:
        restore = Restore(old.job.site, old.attempt, old.engine_job_id)
    former = former_sinks(draft, decision.old, job)
    operation = Start(job, attempt, job_id, job.sink in draft.read, restore, former)
    reason = "new job" if decision.old is None else decision.reason
    whatever = frozenset(ids([decision.clear_id]))
    decision.start_id = draft.add(operation, after, reason, whatever)


def note_slot_waits(draft: Draft, decisions: list[Decision]) -> None:
    """Stops at a site that must come before a start there because no slot is free for it.

    Starts take free slots in order of name; a start whose own stop frees its slots at the
    same site needs no others.
    """
    freeing: dict[str, deque[tuple[int, int]]] = defaultdict(deque)
    for decision in decisions:
        if decision.stop_id is not None and decision.old and not _in_place(decision):
            old = decision.old.job
            freeing[old.site].append((decision.stop_id, old.parallelism))
    budgets = {site: view.slots.free for site, view in draft.observed.engines.items() if view.slots}
    for decision in decisions:
        if not decision.starts or decision.new is None or decision.new.site not in budgets:
            continue
        site = decision.new.site
        budgets[site] -= decision.new.parallelism - _freed_in_place(decision)
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


def _freed_in_place(decision: Decision) -> int:
    if not decision.stops or not _in_place(decision) or decision.old is None:
        return 0
    return decision.old.job.parallelism
