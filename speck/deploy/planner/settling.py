"""Finds readers of which it has to be known first where they ended, and settles that.

A change has asked some to stop, without an answer: they may stop at any moment. A session that is
to follow such a reader holds what comes from its reservation on. The reader may have stopped before
that: then the messages in between are in its own session only.

Others have stopped, and are to be followed, or to change at the same record as further readers; but
their broker was restarted since, and may have forgotten what they had taken. Or their engine died
while they stopped, so that they have not said it. They run for a moment and say it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from speck.deploy.planner.catching_up import make_catch_up
from speck.deploy.planner.decisions import Decision, is_live
from speck.deploy.planner.exact_ends import ends_exactly
from speck.deploy.planner.handovers import own_session, trusts
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.wiring import Wiring
from speck.model.incarnation import EndState, Incarnation, Inventory, Session
from speck.model.job_operations import Stop
from speck.model.observation import Observation, RunState
from speck.model.plan import Step


@dataclass(frozen=True, slots=True)
class Settling:
    """The readers that are settled first. Those `unheard` have ended already."""

    unheard: Sequence[Incarnation] = ()
    stopping: Sequence[Incarnation] = ()
    forgotten: Sequence[Incarnation] = ()
    reads: frozenset[str] = frozenset()
    """The engine job ids of those of the latter that are tried once: queues may be dropped."""

    @property
    def readers(self) -> Sequence[Incarnation]:
        return (*self.unheard, *self.stopping, *self.forgotten)


def find_settling(wiring: Wiring, stage: Wiring, unheard: Sequence[Incarnation]) -> Settling:
    """The readers that are settled before anything else is planned: those of the whole plan, and of
    the `stage` that comes first. Both assume of those that are `unheard` that they have ended."""
    forgotten = find_forgotten(wiring, stage)
    once = forgotten if wiring.situation.conditions.drops else ()
    reads = frozenset(each.run.engine_job_id for each in once if each.run is not None)
    return Settling(unheard, find_stopping(wiring), forgotten, reads)


def list_unheard(inventory: Inventory, observation: Observation) -> list[Incarnation]:
    """The jobs that have ended since they were asked to, though the answer was not heard: what is
    stored with their end tells the plan where others go on."""
    return [
        old
        for _, old in sorted(inventory.jobs.items())
        if old.stopping
        and (there := observation.job(old.job.site, old.engine_job_id)) is not None
        and there.state is RunState.FINISHED
    ]


def assume_ended(inventory: Inventory, unheard: Iterable[Incarnation]) -> Inventory:
    """The inventory once the end of these is stored."""
    ended = {each.job.job_name: replace(each, end=EndState.ENDED) for each in unheard}
    return replace(inventory, jobs={**inventory.jobs, **ended})


def find_stopping(wiring: Wiring) -> list[Incarnation]:
    """The readers that are being stopped, and would get a follower by this plan, on links that are
    still fed; and those that would stop at some record of their link, since a change was
    interrupted while they caught up with others: if they ran on, these would have to catch up with
    them. Nobody is waited for if the user has allowed to drop its queue."""
    situation = wiring.situation
    if situation.conditions.drops or situation.conditions.leave:
        return []
    readers = {
        former.client_id: former
        for client_id, former in wiring.followers.predecessors.items()
        if not _is_there(situation, client_id)
    }
    stopping = [old for former in readers.values() if (old := _find_stopping(situation, former))]
    present = situation.inventory.jobs.values()
    early = [each for each in present if each.ends_early and _is_seen(situation, each)]
    named = {each.job.job_name: each for each in (*stopping, *early)}
    return [named[name] for name in sorted(named)]


def _is_seen(situation: Situation, old: Incarnation) -> bool:
    """Whether it runs, as its engine says now."""
    return is_live(situation, old) and not situation.is_engine_silent(old.job.engine)


def find_forgotten(wiring: Wiring, stage: Wiring) -> list[Incarnation]:
    """The readers that are followed, or stop at the same record as others, or start at another link
    while one waits to follow them, or have to end exactly, and of which their broker may have
    forgotten how far they had come, or which have not said it since their engine died. Nobody is
    waited for if what is known has to do."""
    situation = wiring.situation
    present = situation.inventory.jobs
    names = set[str]().union(*wiring.cuts.together.values())
    for former in (*wiring.followers.predecessors.values(), *list_handed_back(stage)):
        old = present.get(former.job_name or "")
        run = old.run if old is not None else None
        if run is not None and run.job.source == former.link and former.followed_by is None:
            names.add(run.job.job_name)
    names |= {d.job_name for d in (*wiring.decisions, *stage.decisions) if _goes_away(situation, d)}
    names |= {d.job_name for d in wiring.decisions if _is_unsaid(d) and ends_exactly(wiring, d)}
    readers = [present[name] for name in sorted(names) if present[name].is_forgotten]
    return [_find_form(each) for each in readers if not trusts(situation, each)]


def _is_unsaid(decision: Decision) -> bool:
    """Whether a job has ended without a savepoint: what it had taken may not be published."""
    run = decision.old.run if decision.old is not None else None
    return run is not None and run.ended and run.savepoint is None


def _goes_away(situation: Situation, decision: Decision) -> bool:
    """Whether a job starts at another link than its own, which another reader waits to be given."""
    run = decision.old.run if decision.old is not None else None
    if run is None or decision.new is None or not decision.starts:
        return False
    own = own_session(situation, run)
    is_elsewhere = decision.new.source != run.job.source
    return is_elsewhere and bool(situation.present.followers.get(own))


def _find_form(reader: Incarnation) -> Incarnation:
    """The reader at the link that it has read: a start at another one was refused."""
    run = reader.run
    return run if run is not None and run.job.source != reader.job.source else reader


def list_handed_back(stage: Wiring) -> list[Session]:
    """The sessions that are followed in a stage in which jobs read first what waits for them."""
    return list(stage.first.handed_back.values()) if stage.first is not None else []


def settle(wiring: Wiring, settling: Settling) -> tuple[Step, ...]:
    """The steps in which the readers stop, or say again where they have: the next plan knows."""
    steps = list[Step]()
    for each in (*settling.unheard, *settling.stopping):
        job = each.job
        stop = Stop(job.site, job.job_name, each.attempt, each.engine_job_id, exact=True)
        reason = "asked to stop by an earlier change"
        if each in settling.unheard:
            reason = "has ended, as an earlier change had asked; its end was not heard"
        elif each.ends_early and not each.stopping:
            reason = "an earlier change was interrupted while it caught up with others"
        steps.append(Step(len(steps) + 1, stop, (), reason))
    for number, each in enumerate(settling.forgotten, len(steps) + 1):
        again = make_catch_up(wiring.situation, each, ())
        site = each.job.source_site
        reason = f"says again what it has taken: the broker of {site} was restarted"
        if each.run is not None and each.run.savepoint is None:  # see `_is_unsaid`
            reason = "says what it has taken and sent: it had no savepoint when it ended"
        steps.append(Step(number, again, (), reason))
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
    # where nothing is sent, a session that is reserved later misses nothing
    return old if is_fed else None
