"""What sinks told of their links: under which ids it stands, and when it is dropped."""

from __future__ import annotations

from speck.inventory import Deployed
from speck.model import Job, Link, sink_client_id
from speck.plan import Clear, Forget
from speck.planner.draft import Decision, Draft, ids


def sink_of(draft: Draft, deployed: Deployed) -> str:
    job = deployed.job
    return sink_client_id(draft.installation, job.job_name, job.source)


def sinks_of(draft: Draft, deployed: Deployed) -> tuple[str, ...]:
    """Every id under which a last number may stand that went over the job's sink link."""
    return (*deployed.former_sinks, sink_of(draft, deployed))


def former_sinks(draft: Draft, old: Deployed | None, new: Job) -> tuple[str, ...]:
    """The ids to remember when `new` follows `old`: none when the sink link is another."""
    if old is None or old.job.sink != new.sink:
        return ()
    own = sink_client_id(draft.installation, new.job_name, new.source)
    return tuple(sink for sink in sinks_of(draft, old) if sink != own)[-_FORMER_SINKS:]


def forget(draft: Draft, decision: Decision, releases: dict[str, list[int]]) -> None:
    old = decision.old
    assert old is not None
    sinks = sinks_of(draft, old)
    after = (
        *ids([decision.stop_id]),
        *releases.get(decision.job_name, []),
        *(step for sink in sinks for step in draft.drains_of[sink]),
    )
    readers = readers_that_stay(draft, old.job.sink)
    operation = Forget(old.job.site, decision.job_name, old.job.sink_site, sinks, readers)
    decision.forget_id = draft.add(operation, after, "removed")


def clear(draft: Draft, decision: Decision) -> None:
    """Drop what the sink said of the link that it leaves, once nobody drains by it.

    It stands at the sink's broker under the ids of the source links that the job had. While
    the sink's link stays it is kept, since a later drain goes by it. Where the next
    incarnation speaks at the same place it starts after that, or the two would be mixed up;
    but a reader that cannot be drained does not keep it down: what is owed to that reader
    is noted with its session.
    """
    old, new = decision.old, decision.new
    if old is None or new is None:
        return
    own = sink_client_id(draft.installation, new.job_name, new.source)
    kept = {own, *former_sinks(draft, old, new)} if old.job.sink == new.sink else set()
    gone = tuple(sink for sink in sinks_of(draft, old) if sink not in kept)
    if not gone:
        return
    after = [*ids([decision.stop_id]), *(s for sink in gone for s in draft.drains_of[sink])]
    readers = readers_that_stay(draft, old.job.sink)
    operation = Clear(old.job.sink_site, decision.job_name, gone, readers)
    step = draft.add(operation, after, "its links changed")
    if own in gone and old.job.sink.broker == new.sink.broker:
        decision.clear_id = step


def readers_that_stay(draft: Draft, link: Link) -> tuple[str, ...]:
    """Jobs' sessions on a link that are there and go on being wanted, by client id."""
    wanted = {(session.client_id, session.link) for session in draft.sessions}
    return tuple(
        sorted(
            session.client_id
            for session in draft.inventory.sessions
            if session.link == link
            and session.job_name is not None
            and (session.client_id, link) in wanted
        )
    )


_FORMER_SINKS = 8
"""Of so many earlier sources of a job the last numbers are kept. An older one would matter only
if none of eight incarnations since had sent anything: by the order of a session, whoever has
taken what came later has taken it too."""
