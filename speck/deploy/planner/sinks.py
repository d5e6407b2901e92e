"""The numbers that sinks reported: the ids under which they are stored, and when they are
dropped."""

from __future__ import annotations

from speck.deploy.planner.decisions import Decision
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.steps import Numbers, Released, StepList, Stopped, ids
from speck.deploy.planner.ways import group
from speck.deploy.planner.wiring import Wiring
from speck.model.ids import sink_client_id
from speck.model.incarnation import FormerSink, Incarnation, Session, StaleSink
from speck.model.job import Job
from speck.model.job_change import Action
from speck.model.job_operations import Forget
from speck.model.link import Link
from speck.model.link_operations import Clear, LeftLink
from speck.model.plan import Step


def sink_of(situation: Situation, incarnation: Incarnation, link: Link) -> str:
    """The id under which the job reports what it sends to a link of its port."""
    job = incarnation.job
    return sink_client_id(situation.installation, job.job_name, job.source, link)


def sinks_of(situation: Situation, incarnation: Incarnation, link: Link) -> tuple[str, ...]:
    """Every id under which a last number for a link of the job's port may be stored."""
    return (*incarnation.former_sinks_of(link), sink_of(situation, incarnation, link))


def list_sinks(situation: Situation, link: Link) -> tuple[str, ...]:
    """The client ids under which jobs report what they have sent to a link."""
    own = {
        sink
        for producer in situation.jobs.producers.get(link, ())
        for sink in sinks_of(situation, producer, link)
    }
    return tuple(sorted(own | set(situation.outside.sinks.get(link, ()))))


def list_former_sinks(
    situation: Situation, old: Incarnation | None, new: Job
) -> tuple[FormerSink, ...]:
    """The ids to keep when `new` follows `old`: those of links that stay in the port."""
    if old is None:
        return ()
    return tuple(
        FormerSink(link, sink)
        for link in new.port
        if link in old.job.port
        for sink in _list_kept(situation, old, new, link)
    )


def _list_kept(situation: Situation, old: Incarnation, new: Job, link: Link) -> tuple[str, ...]:
    own = sink_client_id(situation.installation, new.job_name, new.source, link)
    sinks = sinks_of(situation, old, link)
    return tuple(sink for sink in sinks if sink != own)[-_FORMER_SINKS:]


def forget_jobs(
    wiring: Wiring, stopped: Stopped, released: Released, numbers: Numbers
) -> tuple[Step, ...]:
    """Forget the jobs that are removed, with the numbers that their sinks reported."""
    steps = StepList(numbers)
    for decision in wiring.decisions:
        if decision.action is Action.REMOVE:
            _forget(wiring, stopped, released, steps, decision)
    return steps.listed()


def _forget(
    wiring: Wiring, stopped: Stopped, released: Released, steps: StepList, decision: Decision
) -> None:
    old, situation = decision.old, wiring.situation
    assert old is not None
    left = tuple(
        LeftLink(link, sinks_of(situation, old, link), _list_readers_with_numbers(wiring, link))
        for link in old.job.port
    )
    counted = [step for link in old.job.port for step in released.on.get(link, ())]
    after = (
        *ids([stopped.of.get(decision.job_name)]),
        *clear(wiring, stopped, steps, decision, None),
        *released.of.get(decision.job_name, ()),
        *(step for each in left for sink in each.sinks for step in stopped.drains_of.get(sink, ())),
        *counted,
    )
    limits = [situation.find_limit(each.link.site) for each in left]
    limit_s = next((each for each in limits if each == 0), limits[0])  # one that is away is enough
    operation = Forget(old.job.site, decision.job_name, left, limit_s)
    steps.add(operation, after, "removed", frozenset(counted))


def find_stale_sinks(situation: Situation, decision: Decision) -> tuple[StaleSink, ...]:
    """The reports to clear once the job's next incarnation has started, or once the job is removed:
    those for links that its sink has left, or leaves in this plan.

    The next incarnation reads from them what the old link has received. While the sink's link stays
    they are kept, since a later drain uses them.
    """
    old, new = decision.old, decision.new
    if old is None:
        return ()
    stale = old.stale
    if new is not None and decision.starts:
        stale += _find_sinks_left(situation, old, new)
        own = {
            sink_client_id(situation.installation, new.job_name, new.source, link)
            for link in new.port
        }
        stale = tuple(s for s in stale if s.client_id not in own)
    return tuple(dict.fromkeys(stale))


def clear(
    wiring: Wiring, stopped: Stopped, steps: StepList, decision: Decision, started: int | None
) -> list[int]:
    """Add the steps that clear stale reports, once no drain needs them; returns their ids. One
    after the other: each stores the incarnation without its own reports."""
    situation = wiring.situation
    by_link = group(((s.site, s.link), s.client_id) for s in find_stale_sinks(situation, decision))
    added: list[int] = []
    for (site, link), sinks in by_link.items():
        drains = [step for sink in sinks for step in stopped.drains_of.get(sink, ())]
        before = added[-1:]
        after = [*ids([stopped.of.get(decision.job_name), started]), *drains, *before]
        readers = _list_readers_with_numbers(wiring, link)
        limit_s = situation.find_limit(site)
        operation = Clear(site, decision.job_name, link, tuple(sinks), readers, limit_s)
        added.append(steps.add(operation, after, "its links changed", frozenset(before)))
    return added


def _find_sinks_left(situation: Situation, old: Incarnation, new: Job) -> tuple[StaleSink, ...]:
    """The ids under which the job reported for links, and will not any more."""
    left = []
    for link in old.job.port:
        current = set[str]()
        if link in new.port:
            own = sink_client_id(situation.installation, new.job_name, new.source, link)
            current = {own, *_list_kept(situation, old, new, link)}
        sinks = (sink for sink in sinks_of(situation, old, link) if sink not in current)
        left += [StaleSink(link.site, link, sink) for sink in sinks]
    return tuple(left)


def _list_readers_with_numbers(wiring: Wiring, link: Link) -> tuple[str, ...]:
    """Client ids of the sessions with which the numbers of a link's sinks are stored: of jobs that
    stay its readers, of readers outside speck, and of jobs that leave it without draining it, also
    of those that the plan releases, since a release may be refused."""
    situation = wiring.situation
    others = (
        session.client_id
        for session in situation.present.on_link.get(link, ())
        if session.job_name is None or _is_left_undrained(wiring, session)
    )
    return (*find_staying_readers(situation, link), *sorted(others))


def _is_left_undrained(wiring: Wiring, session: Session) -> bool:
    """Whether a job leaves what waits in its session to nobody, without the consent by which its
    release would not be refused."""
    if wiring.situation.conditions.drops:
        return False
    is_taken = session.drained or wiring.debts.is_drained(session)
    is_kept = session in wiring.situation.wanted
    return not (is_taken or is_kept or wiring.followers.follows(session))


def find_staying_readers(situation: Situation, link: Link) -> tuple[str, ...]:
    """Client ids of jobs' sessions on a link that exist and are still wanted."""
    present = situation.present.on_link.get(link, ())
    staying = (s for s in present if s.job_name is not None and s in situation.wanted)
    return tuple(sorted(session.client_id for session in staying))


def has_outside_reader(situation: Situation, link: Link) -> bool:
    """Whether a reader outside speck has a session on the link."""
    return any(s.job_name is None for s in situation.present.on_link.get(link, ()))


_FORMER_SINKS = 8
"""The last numbers of this many earlier sources of a job are kept. An older one would matter only
if none of eight later incarnations had sent anything: a session delivers in order, so a reader that
has taken newer messages has taken the older ones too."""
