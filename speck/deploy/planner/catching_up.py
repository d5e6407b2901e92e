"""Readers of a link that is fed from outside stop at the same record.

Their producers cannot be stopped. So the readers stop anywhere, and then each of them reads on to
what any of them has taken, by the numbers of the messages. What they write to from there on is
stored for all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from speck.deploy.planner.decisions import Decision, is_rewired
from speck.deploy.planner.handovers import list_others, make_handover, own_session, trusts
from speck.deploy.planner.sessions import is_new_reader
from speck.deploy.planner.sinks import list_former_sinks
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.starts import make_start
from speck.deploy.planner.steps import HandedOver, Numbers, Reserved, StepList, Stopped, ids
from speck.deploy.planner.wiring import Wiring
from speck.model.incarnation import Incarnation, Session
from speck.model.job_operations import CatchUp, Switch
from speck.model.link_operations import HandOver


def find_catch_ups(wiring: Wiring, names: Set[str]) -> list[tuple[CatchUp, str]]:
    """How readers that stop together catch up with each other, and why. What comes after their
    stops comes after that.

    Those that an earlier change has stopped do so, too.
    """
    present = wiring.situation.inventory.jobs
    readers = [present[name] for name in sorted(names)]
    if len(readers) < 2:
        return []
    operations = []
    for reader in readers:
        others = ", ".join(each.job.job_name for each in readers if each is not reader)
        operation = make_catch_up(wiring.situation, reader, readers)
        operations.append((operation, f"ends at the same record as {others}"))
    return operations


def make_catch_up(
    situation: Situation, reader: Incarnation, readers: Sequence[Incarnation]
) -> CatchUp:
    job = reader.job
    attempt = situation.inventory.attempts.get(job.job_name, 0) + 1
    return CatchUp(
        job,
        attempt,
        situation.engine_job_id(job.job_name, attempt),
        own_session(situation, reader),
        tuple(own_session(situation, each) for each in readers),
        not (situation.present.reserved_links | situation.outside.readers).isdisjoint(job.port),
        list_former_sinks(situation, reader, job),
        _list_trusted(situation, readers),
    )


def _list_trusted(situation: Situation, readers: Iterable[Incarnation]) -> tuple[str, ...]:
    """The client ids of those of which what is known has to do."""
    return tuple(own_session(situation, each) for each in readers if trusts(situation, each))


def switch(
    wiring: Wiring, reserved: Reserved, stopped: Stopped, numbers: Numbers
) -> tuple[Stopped, HandedOver]:
    """The stops and handovers with the step from which the jobs that change at a record of such
    links have their new links: after they have all stopped, and before any of them starts."""
    cuts = wiring.cuts
    if not cuts.together:
        return stopped, HandedOver()
    readers = frozenset[str]().union(*cuts.together.values())
    changing = [d for d in wiring.decisions if d.job_name in cuts.switching | readers]
    starts = [make_start(wiring, d) for d in wiring.decisions if _is_switched(wiring, d)]
    handovers, joining = _find_handovers(wiring), _find_joining(wiring)
    if not starts and not handovers and not joining:
        return stopped, HandedOver()
    given_a_place = [each.client_id for each in (*handovers, *joining)]
    after = ids(stopped.of.get(d.job_name) for d in changing)
    after += ids(reserved.of.get(client_id) for client_id in given_a_place)
    sites = sorted({d.old.job.source_site for d in changing if d.old is not None})
    places = _list_places(wiring)
    trusted = _list_trusted(wiring.situation, (d.old for d in changing if d.old is not None))
    operation = Switch(sites[0], tuple(starts), tuple(handovers), tuple(joining), places, trusted)
    steps = StepList(numbers)
    step = steps.add(operation, after, _explain(wiring))
    of = {**stopped.of, **dict.fromkeys((d.job_name for d in changing), step)}
    handed_over = HandedOver(steps.listed(), dict.fromkeys(given_a_place, step))
    return replace(stopped, of=of), handed_over


def _list_places(wiring: Wiring) -> tuple[tuple[str, str], ...]:
    """The sites and client ids of the readers that stop at the same record."""
    situation = wiring.situation
    return tuple(
        (link.site, own_session(situation, situation.inventory.jobs[name]))
        for link, names in sorted(wiring.cuts.together.items(), key=str)
        for name in sorted(names)
    )


def _explain(wiring: Wiring) -> str:
    links = ", ".join(sorted(str(link) for link in wiring.cuts.together))
    reason = f"from the same record of {links} on"
    if any(
        link in wiring.situation.desired.inputs or not wiring.situation.outside.sinks.get(link)
        for link in wiring.cuts.together
    ):
        return f"{reason}; at least once where a publisher does not number its messages"
    return reason


def _is_switched(wiring: Wiring, decision: Decision) -> bool:
    """Whether a job gets other links there, or begins to read such a link."""
    new = decision.new
    if new is None or not decision.starts or not is_rewired(decision):
        return False
    if decision.old is None:
        return new.source in wiring.cuts.together
    return decision.job_name in wiring.cuts.switching


def _find_handovers(wiring: Wiring) -> list[HandOver]:
    # the successor of a reader is stored with it last: the others only run beside it
    sessions = sorted(
        wiring.situation.wanted.sessions, key=lambda s: s.client_id not in wiring.followers.beside
    )
    followers = (
        (session, wiring.followers.predecessors.get(session.client_id)) for session in sessions
    )
    handovers = (
        make_handover(session, former, list_others(wiring.situation, session, former))
        for session, former in followers
        if former is not None and former.job_name in wiring.cuts.together.get(session.link, ())
    )
    return [each for each in handovers if each is not None]


def _find_joining(wiring: Wiring) -> list[HandOver]:
    """New readers that do not follow another one: they begin where the others end."""
    joining = []
    for link, names in wiring.cuts.together.items():
        reader = wiring.situation.inventory.jobs[min(names)].job
        former = Session(
            own_session(wiring.situation, wiring.situation.inventory.jobs[min(names)]),
            link,
            reader.source_site,
            reader.job_name,
        )
        joining += [
            make_handover(session, former)
            for session in wiring.situation.wanted.sessions
            if session.client_id not in wiring.followers.predecessors
            and is_new_reader(wiring.situation, session, link)
        ]
    return [each for each in joining if each is not None]
