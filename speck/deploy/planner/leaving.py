"""Who leaves which link: producers, readers, and the links that are drained for these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from speck.deploy.planner.decisions import Decision, is_live, may_arrive
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.ways import group
from speck.deploy.planner.wiring import Cuts, Leaving
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation
from speck.model.job import DesiredState
from speck.model.link import Link
from speck.model.observation import RunState
from speck.spec.job_contract import reports_numbers

STUCK = "the job takes nothing: it keeps failing or is stalled"
NOT_DRAINED = "the job leaves it undrained"


def find_leaving(situation: Situation, decisions: Sequence[Decision], cuts: Cuts) -> Leaving:
    """Which producers and readers leave which links, and which of those links are drained.

    A producer that has stopped before leaves too: what it sent may still wait. A producer that
    changes its source leaves its link and joins it again: readers that leave the link take what it
    sent until then, and readers that join take what it sends afterwards.
    """
    producers = (
        (link, d)
        for d in decisions
        if d.old
        for link in d.old.job.port
        if _leaves_sink(d, link, cuts)
    )
    stopping = [d for d in decisions if d.stops and d.old]
    readers = (
        (d.old.job.source, (_own_session(situation, d), d.job_name))
        for d in stopping
        if d.old and (leads(cuts, d) or d.job_name in cuts.between)
    )
    drained = frozenset(
        d.old.job.source for d in stopping if d.old and _empties(situation, cuts, d)
    )
    if not situation.conditions.drains:
        drained = frozenset()
    return Leaving(group(producers), group(readers), drained)


def _leaves_sink(producer: Decision, link: Link, cuts: Cuts) -> bool:
    """Whether a producer leaves a link of its port."""
    old, new = producer.old, producer.new
    assert old is not None
    if new is None or link not in new.port or new.state is DesiredState.STOPPED:
        return True
    if old.finished and not producer.starts:  # all was sent
        return True
    return producer.job_name in cuts.stopping or new.source != old.job.source


def _own_session(situation: Situation, reader: Decision) -> str:
    assert reader.old is not None
    return source_client_id(situation.installation, reader.job_name, reader.old.job.source)


def leaves(reader: Decision) -> bool:
    """Whether a job stops being a reader of the link that it reads now."""
    assert reader.old is not None
    return reader.new is None or reader.new.source != reader.old.job.source


def leads(cuts: Cuts, reader: Decision) -> bool:
    """Whether a job leaves its link, or stops at the same record of it as others."""
    assert reader.old is not None
    return leaves(reader) or bool(cuts.find_together(reader.old.job))


def _empties(situation: Situation, cuts: Cuts, reader: Decision) -> bool:
    """Whether a job takes what waits for it before it stops."""
    assert reader.old is not None
    is_drained = leaves(reader) and explain_undrained(situation, reader.old) is None
    return is_drained or reader.job_name in cuts.between


def drains(situation: Situation, cuts: Cuts, leaving: Leaving, reader: Decision) -> bool:
    """Whether `reader` can empty a link before it stops reading it."""
    old = reader.old
    assert old is not None
    if old.job.source not in leaving.drained_links or may_arrive(situation, old):
        return False
    return _empties(situation, cuts, reader)


def find_leaving_producers(
    situation: Situation, cuts: Cuts, leaving: Leaving, reader: Decision
) -> list[Decision]:
    """Producers that leave, in this plan, the link that `reader` leaves; none if the reader
    stays."""
    assert reader.old is not None
    if not drains(situation, cuts, leaving, reader):
        return []
    return [d for d in leaving.producers.get(reader.old.job.source, ()) if d is not reader]


def is_still_fed(situation: Situation, leaving: Leaving, link: Link) -> bool:
    """Whether a producer of the link, in speck or outside, goes on when its reader leaves."""
    producers = situation.jobs.producers.get(link, ())
    names = _name_running(situation, (each for each in producers if not is_idle(situation, each)))
    left = {d.job_name for d in leaving.producers.get(link, ())}
    return situation.is_fed_outside(link) or not producers or not names <= left


def is_idle(situation: Situation, producer: Incarnation) -> bool:
    """Whether a job has nothing to send, since nothing reaches it: an earlier change, which ended
    early, has started it before those that were to send to it. What is owed to it, or was sent by
    jobs whose numbers are not cleared yet, does."""
    source = producer.job.source
    if source in situation.links_reached or not reports_numbers(producer.job):
        return False
    present = situation.inventory.jobs.values()
    return not any(stale.link == source for each in present for stale in each.stale)


def _name_running(situation: Situation, producers: Iterable[Incarnation]) -> set[str]:
    return {
        each.job.job_name
        for each in producers
        if is_live(situation, each) or may_arrive(situation, each)
    }


def explain_undrained(situation: Situation, old: Incarnation) -> str | None:
    """Why a job that may run does not take first what waits on the link that it leaves; None if it
    does. Without the consent to drop queues, a site that does not answer is waited for."""
    conditions, site, broker = situation.conditions, old.job.site, old.job.source_site
    engine_job = situation.observation.job(site, old.engine_job_id)
    is_restarting = engine_job is not None and engine_job.state is RunState.RESTARTING
    if is_restarting or old.job.job_name in conditions.stuck_jobs:
        return STUCK
    if not conditions.drains:
        return NOT_DRAINED
    if conditions.drops and situation.is_engine_silent(old.job.engine):
        return f"the engine of {site} does not answer"
    if conditions.drops and situation.is_broker_silent(broker):
        return f"the broker of {broker} does not answer"
    return None
