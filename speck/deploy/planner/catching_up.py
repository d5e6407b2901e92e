"""Readers of a link that is fed from outside stop at the same record.

Their producers cannot be stopped. So the readers stop anywhere, and then each of them reads on to
what any of them has taken, by the numbers of the messages. What they write to from there on is
stored for all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from speck.deploy.planner.draft import Decision, Draft, ids
from speck.deploy.planner.handovers import list_others, make_handover
from speck.deploy.planner.sessions import is_new_reader
from speck.deploy.planner.sinks import list_former_sinks
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.starts import is_rewired, make_start
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation, Session
from speck.model.plan import CatchUp, HandOver, Switch


def stop_together(draft: Draft, by_name: Mapping[str, Decision], names: Iterable[str]) -> None:
    """Let the readers that stop together catch up with each other, once the last of them stops.
    What comes after their stops comes after that.

    Those that an earlier change has stopped do so, too.
    """
    readers = [by_name[name] for name in sorted(names)]
    if not readers or any(reader.stops and reader.stop_id is None for reader in readers):
        return
    ends = ids(reader.stop_id for reader in readers)
    for reader in readers if len(readers) > 1 else ():
        _catch_up(draft, reader, readers, ends)


def _catch_up(
    draft: Draft, reader: Decision, readers: list[Decision], stops: tuple[int, ...]
) -> None:
    assert reader.old is not None
    job = reader.old.job
    attempt = draft.situation.inventory.attempts.get(reader.job_name, 0) + 1
    operation = CatchUp(
        job,
        attempt,
        draft.situation.engine_job_id(reader.job_name, attempt),
        _find_session(draft.situation, reader.old),
        tuple(_find_session(draft.situation, each.old) for each in readers if each.old is not None),
        job.sink in draft.situation.present.reserved_links
        or job.sink in draft.situation.outside.readers,
        list_former_sinks(draft.situation, reader.old, job),
    )
    others = ", ".join(each.job_name for each in readers if each is not reader)
    stop = reader.stop_id
    reader.stop_id = draft.add(operation, stops, f"ends at the same record as {others}")
    _replace_stops(draft, {stop: reader.stop_id})


def _replace_stops(draft: Draft, replacements: Mapping[int | None, int]) -> None:
    for link, leaving in draft.leaving_readers.items():
        draft.leaving_readers[link] = [
            (client_id, replacements.get(step, step)) for client_id, step in leaving
        ]


def _find_session(situation: Situation, incarnation: Incarnation) -> str:
    job = incarnation.job
    return source_client_id(situation.installation, job.job_name, job.source)


def switch(draft: Draft, decisions: Sequence[Decision]) -> None:
    """Add the step from which the jobs that change at a record of such links have their new links:
    after they have all stopped, and before any of them starts."""
    if not draft.together:
        return
    readers = frozenset[str]().union(*draft.together.values())
    changing = [d for d in decisions if d.job_name in draft.switching | readers]
    starts = [make_start(draft, d) for d in decisions if d.starts and _changes(draft, d)]
    handovers, joining = _find_handovers(draft), _find_joining(draft)
    if not starts and not handovers and not joining:
        return
    given_a_place = [each.client_id for each in (*handovers, *joining)]
    reserved = ids(draft.reserve_of.get(client_id) for client_id in given_a_place)
    stops = ids(d.stop_id for d in changing)
    sites = sorted({d.old.job.source_site for d in changing if d.old is not None})
    operation = Switch(sites[0], tuple(starts), tuple(handovers), tuple(joining))
    step = draft.add(operation, (*stops, *reserved), _explain(draft))
    draft.handover_of |= dict.fromkeys(given_a_place, step)
    _replace_stops(draft, dict.fromkeys(stops, step))
    for decision in changing:
        decision.stop_id = step


def _explain(draft: Draft) -> str:
    links = ", ".join(sorted(str(link) for link in draft.together))
    reason = f"from the same record of {links} on"
    if any(
        link in draft.situation.desired.inputs or not draft.situation.outside.sinks.get(link)
        for link in draft.together
    ):
        return f"{reason}; at least once where a publisher does not number its messages"
    return reason


def _changes(draft: Draft, decision: Decision) -> bool:
    """Whether a job gets other links there, or begins to read such a link."""
    new = decision.new
    if new is None or not is_rewired(decision):
        return False
    if decision.old is None:
        return new.source in draft.together
    return decision.job_name in draft.switching


def _find_handovers(draft: Draft) -> list[HandOver]:
    # the successor of a reader is stored with it last: the others only run beside it
    sessions = sorted(
        draft.situation.wanted.sessions, key=lambda s: s.client_id not in draft.readers_beside
    )
    followers = ((session, draft.predecessors.get(session.client_id)) for session in sessions)
    handovers = (
        make_handover(session, former, list_others(draft.situation, session, former))
        for session, former in followers
        if former is not None and former.job_name in draft.together.get(session.link, ())
    )
    return [each for each in handovers if each is not None]


def _find_joining(draft: Draft) -> list[HandOver]:
    """New readers that do not follow another one: they begin where the others end."""
    joining = []
    for link, names in draft.together.items():
        reader = draft.situation.inventory.jobs[min(names)].job
        former = Session(
            _find_session(draft.situation, draft.situation.inventory.jobs[min(names)]),
            link,
            reader.source_site,
            reader.job_name,
        )
        joining += [
            make_handover(session, former)
            for session in draft.situation.wanted.sessions
            if session.client_id not in draft.predecessors
            and is_new_reader(draft.situation, session, link)
        ]
    return [each for each in joining if each is not None]
