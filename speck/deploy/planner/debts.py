"""What links still owe to the readers that leave them: how these are drained."""

from __future__ import annotations

from collections.abc import Sequence

from speck.deploy.planner.decisions import Decision
from speck.deploy.planner.leaving import drains, find_leaving_producers, is_still_fed
from speck.deploy.planner.sinks import sinks_of
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.wiring import Cuts, Debts, FirstStage, Followers, Leaving
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation
from speck.model.job import Delivery
from speck.model.link import Link
from speck.model.link_operations import Drain
from speck.spec.job_contract import reports_numbers


def find_debts(
    situation: Situation,
    decisions: Sequence[Decision],
    followers: Followers,
    cuts: Cuts,
    leaving: Leaving,
    first: FirstStage | None,
) -> Debts:
    """How each reader that stops empties the link that it leaves, if it has to."""
    by_name, emptied = dict[str, Drain](), set[str]()
    for reader in decisions:
        if not reader.stops or reader.old is None:
            continue
        drain = _find_drain(situation, followers, cuts, leaving, first, reader)
        if drain is None:
            continue
        by_name[reader.job_name] = drain
        # only a reader that reports what it has taken can show that a link is empty
        is_counted = reports_numbers(reader.old.job) and not drain.silent
        if is_counted and not is_still_fed(situation, leaving, drain.link):
            emptied.add(drain.client_id)
    return Debts(by_name, frozenset(emptied))


def _find_drain(
    situation: Situation,
    followers: Followers,
    cuts: Cuts,
    leaving: Leaving,
    first: FirstStage | None,
    reader: Decision,
) -> Drain | None:
    """How a reader empties the link that it leaves; None if it need not, or cannot."""
    old = reader.old
    assert old is not None
    if not drains(situation, cuts, leaving, reader):
        return None
    source = old.job.source
    client_id = source_client_id(situation.installation, reader.job_name, source)
    producers = find_leaving_producers(situation, cuts, leaving, reader)
    going_on = _find_staying_producers(situation, leaving, source)
    is_joined = bool(cuts.find_together(old.job)) and source in cuts.joined_links
    handed_over = is_joined or is_followed(situation, followers, first, client_id)
    # a link that is still fed has no last number: its reader is drained up to a mark
    has_follower = handed_over and is_still_fed(situation, leaving, source)
    if not (producers or going_on or client_id in situation.present.owed or has_follower):
        return None
    leavers = [each.old for each in producers if each.old]
    others = situation.outside.sinks.get(source, ()) if has_follower else ()
    return Drain(
        old.job.source_site,
        source,
        client_id,
        reader.job_name,
        _name_sinks(situation, leavers, source),
        old.job.site,
        old.engine_job_id,
        _name_sinks(situation, [each for each in leavers if not reports_numbers(each.job)], source),
        tuple(sorted({*others, *_name_sinks(situation, going_on, source)})),
        has_follower,
        has_follower and is_fed_uncounted(situation, source),
        _is_lossy(situation, source),
        situation.conditions.limit_s,
        handed_over,
    )


def _name_sinks(
    situation: Situation, producers: Sequence[Incarnation], link: Link
) -> tuple[str, ...]:
    return tuple(sorted(sink for each in producers for sink in sinks_of(situation, each, link)))


def _find_staying_producers(
    situation: Situation, leaving: Leaving, link: Link
) -> list[Incarnation]:
    """Producers of the scope that stay on a link and report numbers."""
    left = {each.job_name for each in leaving.producers.get(link, ())}
    producers = situation.jobs.producers.get(link, ())
    staying = [each for each in producers if each.job.job_name not in left]
    return [each for each in staying if reports_numbers(each.job)]


def is_followed(
    situation: Situation, followers: Followers, first: FirstStage | None, client_id: str
) -> bool:
    """Whether another reader continues where the reader with that session ends, now or in the plan
    after this one."""
    if followers.follows_reader(client_id):
        return True
    sessions = situation.inventory.sessions if first is not None else ()
    return any(session.follows == client_id and session.reserved for session in sessions)


def is_fed_uncounted(situation: Situation, link: Link) -> bool:
    """Whether a publisher without reported numbers feeds the link, and its broker does not know
    them either."""
    view = situation.observation.brokers.get(link.site)
    if view is not None and link.topic in view.ends:
        return False
    producers = situation.jobs.producers.get(link, ())
    if not producers and link not in situation.outside.sinks:
        return True
    if link in situation.desired.inputs:
        return True
    return not all(reports_numbers(each.job) for each in producers)


def _is_lossy(situation: Situation, link: Link) -> bool:
    """Whether no producer sends again what a reader of the link has missed."""
    producers = [incarnation.job for incarnation in situation.jobs.producers.get(link, ())]
    lossy = all(job.delivery is Delivery.AT_MOST_ONCE for job in producers)
    return bool(producers) and lossy and not situation.is_fed_outside(link)
