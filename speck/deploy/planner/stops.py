"""Plans how incarnations end: what is tried and drained before, and the stop itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from speck.deploy.planner.catching_up import find_catch_ups
from speck.deploy.planner.debts import is_followed
from speck.deploy.planner.decisions import Decision, may_arrive
from speck.deploy.planner.exact_ends import ends_exactly
from speck.deploy.planner.leaving import (
    find_leaving_producers,
    is_still_fed,
    leads,
    leaves,
)
from speck.deploy.planner.releases import find_awaited_stops
from speck.deploy.planner.sinks import find_staying_readers, has_outside_reader
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.starts import make_trial, need_jar
from speck.deploy.planner.steps import Numbers, Reserved, StepList, Stopped
from speck.deploy.planner.wiring import Wiring
from speck.model.ids import source_client_id
from speck.model.job import Delivery, DesiredState, Job
from speck.model.job_operations import Cancel, Fence, Stop
from speck.model.link import Link
from speck.spec.job_contract import reports_numbers


class _Stops:
    """The steps in which jobs stop, while they are made."""

    def __init__(self, numbers: Numbers):
        self.steps = StepList(numbers)
        self.of: dict[str, int] = {}
        self.drains_of = defaultdict[str, tuple[int, ...]](tuple)
        self.uploads: dict[tuple[str, str], int] = {}
        self.trials: dict[tuple[object, ...], int] = {}

    def finished(self) -> Stopped:
        return Stopped(self.steps.listed(), self.of, dict(self.drains_of), self.uploads)


def stop_jobs(wiring: Wiring, reserved: Reserved, numbers: Numbers) -> Stopped:
    """Stop jobs, producers before the readers that are drained after them. Readers that stop at the
    same record catch up with each other once the last of them has stopped."""
    stops = _Stops(numbers)
    stopping = [d for d in wiring.decisions if d.stops]
    names = {d.job_name for d in stopping}
    for readers in wiring.cuts.together.values():
        if not readers & names:  # an earlier change has stopped them
            _catch_up(wiring, stops, readers)
    for decision in _sort_upstream_first(wiring, stopping):
        assert decision.old is not None
        _stop(wiring, reserved, stops, decision)
        readers = wiring.cuts.find_together(decision.old.job)
        if (readers & names) <= stops.of.keys():
            _catch_up(wiring, stops, readers)
    return stops.finished()


def _catch_up(wiring: Wiring, stops: _Stops, readers: frozenset[str]) -> None:
    after = [stops.of[name] for name in sorted(readers) if name in stops.of]
    for operation, reason in find_catch_ups(wiring, readers):
        stops.of[operation.job_name] = stops.steps.add(operation, after, reason)


def _sort_upstream_first(wiring: Wiring, stopping: list[Decision]) -> list[Decision]:
    """Sort producers before the readers that are drained after them, ties by name.

    Deployed jobs form no circle, unless a job outside speck closes one: then no job waits for
    another.
    """
    by_name = {d.job_name: d for d in stopping}
    before = {d.job_name: sorted(_find_earlier(wiring, d) & by_name.keys()) for d in stopping}
    try:
        return [by_name[name] for name in TopologicalSorter(before).static_order()]
    except CycleError:
        return stopping


def _find_earlier(wiring: Wiring, reader: Decision) -> set[str]:
    """The producers that a reader is drained after, and those that stop together with these."""
    producers = _find_producers(wiring, reader)
    names = {d.job_name for d in producers}
    together = (wiring.cuts.find_together(d.old.job) for d in producers if d.old is not None)
    return names.union(*together)


def _find_producers(wiring: Wiring, reader: Decision) -> list[Decision]:
    return find_leaving_producers(wiring.situation, wiring.cuts, wiring.leaving, reader)


def _stop(wiring: Wiring, reserved: Reserved, stops: _Stops, decision: Decision) -> None:
    old, new = decision.old, decision.new
    assert old is not None
    after: list[int] = []
    if new and decision.starts and new.engine not in wiring.situation.conditions.cannot_try:
        after.append(_try_main(wiring, stops, decision))
    # While the link is still fed, another session has to receive what comes from now on.
    is_fed = is_still_fed(wiring.situation, wiring.leaving, old.job.source)
    followed = leads(wiring.cuts, decision) and is_fed
    reserve_steps = reserved.on.get(old.job.source, ()) if followed else ()
    after += _drain(wiring, stops, decision, reserve_steps)
    operation = _make_stop(wiring, decision)
    stops.of[decision.job_name] = stops.steps.add(
        operation, [*after, *reserve_steps], decision.reason
    )


def _try_main(wiring: Wiring, stops: _Stops, decision: Decision) -> int:
    """Add the step that tries `main`, once for all jobs that differ in name and links only.

    A `main` that keeps the job contract reads these from its arguments; one with arguments of its
    own is tried for each job.
    """
    job = decision.new
    assert job is not None
    links = () if reports_numbers(job) else (job.source, *job.port)
    how = (job.args, job.parallelism, job.delivery, job.link)
    key = (job.site, job.artifact, job.entry_class, *how, links)
    if key not in stops.trials:
        operation = make_trial(wiring, decision)
        upload = need_jar(stops.steps, stops.uploads, job)
        stops.trials[key] = stops.steps.add(operation, (upload,), "before it stops")
    return stops.trials[key]


def _drain(
    wiring: Wiring, stops: _Stops, reader: Decision, reserve_steps: Sequence[int]
) -> tuple[int, ...]:
    """The step in which a reader empties the link that it leaves, if it needs one.

    From producers that stay on the link it takes what they had sent until `reserve_steps` had
    reserved the sessions of the readers that go on.
    """
    operation = wiring.debts.drains.get(reader.job_name)
    if operation is None:
        return ()
    producers = _find_producers(wiring, reader)
    awaited = find_awaited_stops(wiring.situation, stops.of, producers)
    whatever = frozenset(awaited if wiring.situation.conditions.drops else ())
    after = (*awaited, *reserve_steps)
    step = stops.steps.add(operation, after, _explain_drain(wiring, reader), whatever)
    for sink in operation.sinks:
        stops.drains_of[sink] += (step,)
    return (step,)


def _explain_drain(wiring: Wiring, reader: Decision) -> str:
    drain, producers = wiring.debts.drains[reader.job_name], _find_producers(wiring, reader)
    names = ", ".join(sorted(d.job_name for d in producers))
    reason = f"{names} left it" if producers else "left from before"
    if (drain.going_on or drain.followed) and not producers:
        reason = "what was sent so far"
    if drain.limit_s is not None:
        reason += f"; what it has not taken in {drain.limit_s:g} s is dropped"
    return reason


def _make_stop(wiring: Wiring, decision: Decision) -> Fence | Cancel | Stop:
    old, new = decision.old, decision.new
    assert old is not None
    is_drained = decision.job_name in wiring.debts.drains
    final = is_drained and leaves(decision) and _is_final(wiring, old.job.source)
    pauses = new is not None and new.state is DesiredState.STOPPED
    identity = (old.job.site, decision.job_name, old.attempt, old.engine_job_id)
    if may_arrive(wiring.situation, old):
        return Fence(*identity)
    if not wiring.situation.can_save(old.job) or _needs_no_state(wiring, decision):
        return Cancel(*identity, final, pauses)
    exact = not wiring.situation.conditions.drops and ends_exactly(wiring, decision)
    return Stop(*identity, final, pauses, exact)


def _is_final(wiring: Wiring, link: Link) -> bool:
    """Whether messages that reach the link after a drain are not for its reader. False where
    producers only pause: their next messages may be for it if the change is interrupted."""
    producers = wiring.situation.jobs.producers.get(link, ())
    wanted = wiring.situation.jobs.writers.get(link, ())
    going_on = {each.job_name for each in wanted if each.state is DesiredState.RUNNING}
    pausing = wiring.cuts.stopping & going_on & {each.job.job_name for each in producers}
    return not pausing and not is_still_fed(wiring.situation, wiring.leaving, link)


def _needs_no_state(wiring: Wiring, decision: Decision) -> bool:
    """Whether a job may be cancelled instead of stopped with its state saved.

    Not if a reader is drained after it, now or later, or a reader outside speck has a session on
    its link: only a stop flushes its sink and reports its last number, by which the messages in
    that session are counted. Nor if another reader follows it, or goes on at its sink link: only a
    stop determines exactly what it has taken, and publishes all of that.
    """
    assert decision.old is not None
    old, new = decision.old.job, decision.new
    own = source_client_id(wiring.situation.installation, decision.job_name, old.source)
    if (
        not wiring.leaving.drained_links.isdisjoint(old.port)
        or is_followed(wiring.situation, wiring.followers, wiring.first, own)
        or wiring.cuts.find_together(old)
    ):
        return False
    if reports_numbers(old) and any(map(reports_numbers, _find_successors(wiring.situation, old))):
        return False
    if new is None:
        is_counted = any(
            find_staying_readers(wiring.situation, link)
            or has_outside_reader(wiring.situation, link)
            for link in old.port
        )
        return not (wiring.situation.conditions.drains and is_counted)
    return _restarts_without_state(wiring, decision, old, new)


def _find_successors(situation: Situation, old: Job) -> list[Job]:
    """The jobs that take the same records to the same link from now on."""
    before = situation.jobs.present_with_ends(old.ends)
    return [job for job in situation.jobs.wanted_with_ends(old.ends) if job.job_name not in before]


def _restarts_without_state(wiring: Wiring, decision: Decision, old: Job, new: Job) -> bool:
    """Whether the next incarnation reads and writes the same links without any state of this one.

    What this one took since its last checkpoint then comes again: that is not acknowledged. Not
    under `exactly_once`, since results that are not published yet are in the state, and a repeated
    input would be published again under another number.
    """
    is_cut = decision.job_name in wiring.cuts.jobs or decision.job_name in wiring.cuts.between
    in_place = old.ends == new.ends and not is_cut
    publishes_at_once = Delivery.EXACTLY_ONCE not in (old.delivery, new.delivery)
    return decision.starts and not decision.keeps_state and in_place and publishes_at_once
