"""Whether, and how, the former incarnation of a job comes back if its start fails."""

from __future__ import annotations

from speck.deploy.planner.decisions import Decision
from speck.deploy.planner.sinks import sink_of
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.wiring import Wiring
from speck.model.ids import sink_client_id, source_client_id
from speck.model.incarnation import FormerSink, Incarnation
from speck.model.job import Job
from speck.model.job_operations import Return, Start
from speck.model.link import Link
from speck.spec.differences import differences


def find_way_back(wiring: Wiring, decision: Decision, start: Start) -> Return | None:
    """How the former incarnation comes back, as a new attempt, if a start fails; None if it must
    not."""
    if not _has_a_way_back(wiring, decision):
        return None
    situation = wiring.situation
    old, new = _find_former_run(situation, decision), decision.new
    assert old is not None and new is not None
    attempt = start.attempt + 1
    return Return(
        old.job,
        attempt,
        situation.engine_job_id(decision.job_name, attempt),
        not situation.wanted.links_read.isdisjoint(old.job.port),
        start.engine_job_id,
        keeps_state=situation.can_save(old.job),
        former_sinks=_list_former_sinks(situation, old, start),
        fed=situation.is_fed_later(old.job.source),
        commits=start.commits if new.ends == old.job.ends else (),
    )


def _list_former_sinks(
    situation: Situation, old: Incarnation, start: Start
) -> tuple[FormerSink, ...]:
    """The former sinks of an incarnation that comes back. Where the failed start has the same
    links, it may have sent messages there before it failed."""
    former = []
    for link in old.job.port:
        own, earlier = sink_of(situation, old, link), old.former_sinks
        if link in start.job.port:
            failed = sink_client_id(situation.installation, start.job_name, start.job.source, link)
            earlier = (*start.former_sinks, FormerSink(link, failed))
        former += [each for each in earlier if each.link == link and each.client_id != own]
    return tuple(former)


def _has_a_way_back(wiring: Wiring, decision: Decision) -> bool:
    """Whether the former incarnation may come back if a start fails.

    Not if it would publish to a link that a reader leaves in this plan, or what another job
    publishes now, read messages that another reader has received or that a new producer sends, or
    close a circle with rewired jobs.
    """
    old = _find_former_run(wiring.situation, decision)
    if old is None:
        return False
    present = wiring.situation.present.on_link
    sessions = (session for link in old.job.port for session in present.get(link, ()))
    # a reader leaves that link: what is sent there now would not be taken
    if any(session not in wiring.situation.wanted for session in sessions):
        return False
    if not wiring.leaving.readers.keys().isdisjoint(old.job.port) or _was_left(wiring, old.job):
        return False
    new = decision.new
    # with the same links it takes and sends what its successor would
    if new is None or new.ends == old.job.ends:
        return True
    if decision.job_name in wiring.cuts.switching or _gets_a_producer(
        wiring.situation, old.job.source
    ):
        return False
    # behind a cut another producer may have sent the same records to its sink
    is_cut = wiring.cuts.jobs or wiring.cuts.together
    if is_cut and any(_gets_a_producer(wiring.situation, link) for link in old.job.port):
        return False
    own = source_client_id(wiring.situation.installation, old.job.job_name, old.job.source)
    is_followed = any(former.client_id == own for former in wiring.followers.predecessors.values())
    there = {
        session.client_id for session in wiring.situation.present.on_link.get(old.job.source, ())
    }
    joining = (
        s for s in wiring.situation.wanted.on_link(old.job.source) if s.client_id not in there
    )
    handed_over = new.source != old.job.source and any(joining)
    return not (handed_over or is_followed) and not _may_circle(wiring.situation, old.job)


def _was_left(wiring: Wiring, job: Job) -> bool:
    """Whether an earlier change, which ended early, has handed over the link that a job read to
    another reader, or has let a reader of its sink's link leave that."""
    own = source_client_id(wiring.situation.installation, job.job_name, job.source)
    session = wiring.situation.present.by_id.get(own)
    is_followed = session is not None and session.followed_by is not None
    if is_followed and own not in wiring.followers.predecessors:
        return True
    return any(
        each.drained and each.client_id not in wiring.followers.predecessors
        for link in job.port
        for each in wiring.situation.present.on_link.get(link, ())
    )


def _gets_a_producer(situation: Situation, link: Link) -> bool:
    before = {incarnation.job.job_name for incarnation in situation.jobs.producers.get(link, ())}
    return any(job.job_name not in before for job in situation.jobs.writers.get(link, ()))


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
    return job.source in situation.jobs.ways.find_reached(job.port)
