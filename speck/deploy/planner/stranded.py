"""Finds messages that a change which ended early has left where no reader takes them any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from speck.deploy.planner.decisions import has_silent_start, is_live
from speck.deploy.planner.lineages import Lineage, has_ended_unseen, is_running, was_interrupted
from speck.deploy.planner.sessions import count_untaken
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.wiring import Followers
from speck.model.job import Job
from speck.model.link import Link


def is_stranded(
    situation: Situation, followers: Followers, lineage: Lineage, waiting: Mapping[str, Job]
) -> bool:
    """Whether a change that ended early has left messages that no reader takes any more, and that
    are for one which follows now, or for an output."""
    session = lineage.find_reader(waiting)
    if session is None or session.job is None:
        return False
    going_on = lineage.members
    if has_ended_unseen(situation, lineage.owner):
        going_on = (lineage.owner,)
    if any(each in situation.wanted or is_running(situation, each, waiting) for each in going_on):
        return False
    if not was_interrupted(situation, session):
        return False
    is_followed = any(former in lineage.members for former in followers.predecessors.values())
    if is_followed and _may_be_fed_outside(situation, session.link):
        return True
    if not (is_followed or reaches_wanted_links(situation, session.job.port)):
        return False
    producers = situation.jobs.producers.get(session.link, ())
    sending = any(
        d.job.job_name in waiting or (is_live(situation, d) and not has_silent_start(situation, d))
        for d in producers
    )
    count = count_untaken(situation, lineage.find_last_begun() or session)
    return sending or (count != 0 if producers else bool(count))


def _may_be_fed_outside(situation: Situation, link: Link) -> bool:
    """Whether publishers outside speck or jobs of other scopes may feed a link."""
    return situation.is_fed_outside(link) or link not in situation.ways_ever.sinks


def reaches_wanted_links(situation: Situation, links: Iterable[Link]) -> bool:
    """Whether records on one of these links reach one that a wanted job writes."""
    reached = situation.ways_ever.find_reached(links)
    return not reached.isdisjoint(situation.jobs.writers)
