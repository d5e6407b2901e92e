"""The forms in which a reader may run first, to take what waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from speck.deploy.planner.decisions import is_lost
from speck.deploy.planner.lineages import Lineage, is_arriving, is_outrun
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.stranded import is_stranded, reaches_wanted_links
from speck.deploy.planner.waiting import is_fed_first, lost_its_follower
from speck.deploy.planner.wiring import Followers
from speck.model.incarnation import Session
from speck.model.job import DesiredState, Job


def find_outrun(situation: Situation, followers: Followers, session: Session) -> Job | None:
    """The session's reader as it was to run, if it has to reach the record that a reader beside it
    has reached."""
    if session.job is None or not is_outrun(situation, session):
        return None
    is_followed = session in followers.predecessors.values()
    if not (is_followed or reaches_wanted_links(situation, session.job.port)):
        return None
    return replace(session.job, state=DesiredState.RUNNING)


def find_candidates(
    situation: Situation,
    followers: Followers,
    session: Session,
    lineage: Lineage | None,
    waiting: Mapping[str, Job],
) -> list[Job]:
    """The forms in which the session's reader may run, the best first: as it ran or was to run
    there; as wanted, with its former sink if that is read, or with its new one; as it ran last, if
    it is no longer wanted."""
    name = session.job_name or ""
    job, old = situation.jobs.wanted.get(name), situation.inventory.jobs.get(name)
    forms = _find_unfinished_forms(situation, followers, session, lineage, waiting)
    if job is None:
        if old is None:
            return forms
        comes_back = is_lost(situation, old) or lost_its_follower(situation, followers, session)
        again = old.job.source == session.link and is_fed_first(situation, session.link, waiting)
        return [*forms, old.job] if comes_back or again else forms
    if job.state is not DesiredState.RUNNING:
        return forms
    if old is None:
        return [*forms, job]
    before = job.with_port(old.job.port)
    if session in situation.wanted:
        return [*forms, before]
    read = situation.outside.readers | situation.present.reserved_links
    is_read = not read.isdisjoint(before.port)
    return [*forms, before, job] if is_read else [*forms, job]


def _find_unfinished_forms(
    situation: Situation,
    followers: Followers,
    session: Session,
    lineage: Lineage | None,
    waiting: Mapping[str, Job],
) -> list[Job]:
    """The reader as it ran with the session or was to run, if a change that ended early has left
    messages there, or if it is to read what another job writes first."""
    if session.job is None or lineage is None:
        return []
    is_fed = is_fed_first(situation, session.link, waiting)
    if not (is_fed or is_stranded(situation, followers, lineage, waiting)):
        return []
    old = situation.inventory.jobs.get(session.job_name or "")
    form = old.job if old is not None and is_arriving(situation, session) else session.job
    return [replace(form, state=DesiredState.RUNNING)]
