"""Finds readers that may stop at any moment: a change has asked them to, without an answer.

A session that is to follow such a reader holds what comes from its reservation on. The reader may
have stopped before that: then the messages in between are in its own session only.
"""

from __future__ import annotations

from collections.abc import Sequence

from speck.deploy.planner.decisions import is_live
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.wiring import Wiring
from speck.model.incarnation import Incarnation, Session
from speck.model.job_operations import Stop
from speck.model.plan import Step


def find_stopping(wiring: Wiring) -> list[Incarnation]:
    """The readers that are being stopped, and would get a follower by this plan, on links that are
    still fed. Nobody is waited for if the user has allowed to drop its queue."""
    situation = wiring.situation
    if situation.conditions.drops or situation.conditions.leave:
        return []
    readers = {
        former.client_id: former
        for client_id, former in wiring.followers.predecessors.items()
        if not _is_there(situation, client_id)
    }
    found = [old for former in readers.values() if (old := _find_stopping(situation, former))]
    return sorted(found, key=lambda each: each.job.job_name)


def settle(stopping: Sequence[Incarnation]) -> tuple[Step, ...]:
    """The steps in which the readers stop: the next plan knows where."""
    steps = []
    for number, each in enumerate(stopping, 1):
        job = each.job
        operation = Stop(job.site, job.job_name, each.attempt, each.engine_job_id)
        steps.append(Step(number, operation, (), "asked to stop by an earlier change"))
    return tuple(steps)


def _is_there(situation: Situation, client_id: str) -> bool:
    session = situation.present.by_id.get(client_id)
    return session is not None and session.usable


def _find_stopping(situation: Situation, reader: Session) -> Incarnation | None:
    old = situation.inventory.jobs.get(reader.job_name or "")
    if (
        old is None
        or not old.stopping
        or old.job.source != reader.link
        or not is_live(situation, old)
    ):
        return None
    producers = situation.jobs.producers.get(reader.link, ())
    is_fed = situation.has_foreign_producers(reader.link) or any(
        is_live(situation, p) for p in producers
    )
    return old if is_fed else None
