"""Which sessions of a link hold the same messages, and whose reader is to take them.

Where one reader follows another, both sessions hold the same messages from some moment on, and one
of them owns the link: that of the reader which takes its messages, or took them last. A change may
end before that reader has begun. If the next one wants none of these readers, one of them has to
take what waits, before another reader follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from speck.deploy.planner.decisions import has_silent_start, is_live, may_arrive
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.ways import group
from speck.model.incarnation import Session
from speck.model.job import DesiredState, Job
from speck.model.link import Link
from speck.model.observation import RunState


@dataclass(frozen=True, slots=True)
class Lineage:
    """Sessions of one link whose readers follow one another.

    If none of these runs or is wanted, one of `readers` takes the messages, the best first: jobs
    whose records reach an end; of those, jobs that do not run elsewhere; of those, one that goes on
    where the change ended; the last one that has begun, which did run with everything behind it,
    and whose session still has all messages since its end; any other.
    """

    owner: Session
    members: tuple[Session, ...]
    readers: tuple[Session, ...]

    def find_reader(
        self, waiting: Mapping[str, Job], *, also_drained: bool = False
    ) -> Session | None:
        """The session to read the messages from while the jobs in `waiting` run as given; None if
        all of its jobs are to read other links. From a session that was drained (`also_drained`)
        only messages that are still to come may be read."""
        for session in self.members:
            if session.job_name in waiting and _is_free(session, waiting):
                return session
        for session in self.readers:
            if _is_free(session, waiting) and (also_drained or not session.drained):
                return session
        return None

    def find_last_begun(self) -> Session | None:
        """The session of the last reader that has begun, which took the messages until its end."""
        begun = [s for s in self.members if s.begun and s.follows is None]
        return begun[0] if begun else None


def find_owner(session: Session, there: Mapping[str, Session]) -> Session | None:
    """The session whose reader takes, or last took, the messages for `session`: itself if it
    neither waits to follow another nor was followed; None if it was left behind."""
    visited = {session.client_id}
    before = session.follows
    while (other := before or session.followed_by) is not None and other not in visited:
        if other not in there:
            return None
        visited.add(other)
        session, before = there[other], None
    return session


def was_followed(former: Session, session: Session, there: Mapping[str, Session]) -> bool:
    """Whether the link was handed over from one reader to the other, be it through others."""
    # readers that take each other's place again and again may form a circle
    visited, at = {former.client_id}, former.followed_by
    while at is not None and at in there and at not in visited:
        if at == session.client_id:
            return True
        visited.add(at)
        at = there[at].followed_by
    return False


def is_left_behind(situation: Situation, session: Session) -> bool:
    """Whether the session that it follows, or that followed it, has been released: what is queued
    was for that one's reader, which has taken it or left the link."""
    return session.job_name is not None and find_owner(session, situation.present.by_id) is None


def is_held_at_another_link(situation: Situation, session: Session) -> bool:
    """Whether its records are taken from a session at another link."""
    return session.instead_of in situation.present.usable


def list_waiting_instead(situation: Situation, session: Session) -> list[Session]:
    """The wanted sessions whose readers have taken nothing yet and take the place of this one's,
    which has stopped for them at a cut and comes back no more: what came since then is for them."""
    instead = situation.present.instead.get(session.client_id, ())
    if not instead or session in situation.wanted:
        return []
    old = situation.inventory.jobs.get(session.job_name or "")
    if old is not None and old.job.source == session.link and not old.ended:
        return []
    return [
        each
        for each in instead
        if each in situation.wanted and (not each.begun or awaits_cut(situation, each))
    ]


def awaits_cut(situation: Situation, session: Session) -> bool:
    """Whether the session's reader runs already, though the records for it are still taken from a
    session at another link."""
    return is_held_at_another_link(situation, session) and is_running(situation, session)


def is_outdated(situation: Situation, session: Session) -> bool:
    """Whether a session is made anew before it is read, since its records were taken at another
    link. Those behind a cut that is not committed were not, as long as no reader of a link that is
    fed from outside has gone on."""
    if not is_held_at_another_link(situation, session) or awaits_cut(situation, session):
        return False
    if session.begun or not situation.has_foreign_producers(session.link):
        return True
    readers = situation.jobs.readers.get(session.link, ())
    return any(is_live(situation, each) for each in readers)


def find_lineages(
    situation: Situation, meanwhile: Mapping[str, Job] = MappingProxyType({})
) -> list[Lineage]:
    """The lineages of all sessions of jobs, by the client ids of their owners. Other jobs read what
    is given for them `meanwhile`."""
    there = index_job_sessions(s for s in situation.inventory.sessions if s.reserved)
    followers = group((s.follows, s) for s in there.values() if not s.beside)
    lineages = []
    for client_id in sorted(there):
        session = there[client_id]
        if find_owner(session, there) == session:
            following = followers.get(client_id, [])
            lineages.append(_make_lineage(situation, session, following, there, meanwhile))
    return lineages


def index_job_sessions(sessions: Iterable[Session]) -> dict[str, Session]:
    return {s.client_id: s for s in sessions if s.job_name is not None}


def _make_lineage(
    situation: Situation,
    owner: Session,
    followers: Sequence[Session],
    there: Mapping[str, Session],
    meanwhile: Mapping[str, Job],
) -> Lineage:
    formers = list[Session]()
    former = owner
    while (before := there.get(former.former or "")) is not None:
        if before.followed_by is None or before in (owner, *formers):
            break
        formers.append(before)
        former = before
    completing = _find_completing_reader(situation, owner, followers)
    begun = [s for s in (owner, *formers) if s.begun or s.beside]
    first = [completing] if completing else []
    readers = dict.fromkeys([*first, *begun, owner, *followers, *formers])
    ordered = sorted(
        readers,
        key=lambda s: (_rank_way_out(situation, s, meanwhile), _runs_elsewhere(situation, s)),
    )
    return Lineage(owner, (owner, *followers, *formers), tuple(ordered))


def _is_free(session: Session, waiting: Mapping[str, Job]) -> bool:
    job = waiting.get(session.job_name or "")
    return job is None or job.source == session.link


def _find_completing_reader(
    situation: Situation, owner: Session, followers: Sequence[Session]
) -> Session | None:
    """A reader that has not begun, but whose start may still arrive, or whose output has its
    readers already: what lies behind has changed, so it goes on there."""
    coming = [] if owner.begun else [owner]
    if was_interrupted(situation, owner) and not has_ended_unseen(situation, owner):
        coming += followers
    for session in coming:
        if is_arriving(situation, session):
            return session
        if session.job is not None and _has_running_reader(situation, session.job):
            return session
    return None


def is_outrun(situation: Situation, session: Session) -> bool:
    """Whether several readers changed at one record, or took the place of one, and the session's
    reader has not begun though another one has, which does not go on as it was to: what that one
    has taken is still to reach this one's sink link."""
    if _is_behind_a_cut(session):
        return not _goes_on(situation, session) or any(
            other.committed and other.begun and not _goes_on(situation, other)
            for other in situation.present.on_link.get(session.link, ())
        )
    has_place = session.former is not None and session.followed_by is None
    if not has_place or session.begun or session.drained:
        return False
    return any(
        other.begun and not _goes_on(situation, other) for other in find_beside(situation, session)
    )


def _is_behind_a_cut(session: Session) -> bool:
    """Whether records behind a cut wait for the session's reader, which has not begun there."""
    if session.job is None or session.job.state is not DesiredState.RUNNING:
        return False
    return session.committed and session.usable and not session.begun


def find_beside(situation: Situation, session: Session) -> list[Session]:
    """The sessions of the other readers that took the place of the same one."""
    return [
        other
        for other in situation.present.on_link.get(session.link, ())
        if other.job_name not in (None, session.job_name)
        and other.former == session.former is not None
    ]


def _goes_on(situation: Situation, session: Session) -> bool:
    """Whether the session's reader is wanted as it was to run with it."""
    job = situation.jobs.wanted.get(session.job_name or "")
    if job is None or session.job is None or job.state is not DesiredState.RUNNING:
        return False
    return job.ends == (session.link, session.job.port)


def is_arriving(situation: Situation, session: Session) -> bool:
    """Whether the start of the session's reader was sent, and may still arrive."""
    incarnation = situation.inventory.jobs.get(session.job_name or "")
    if incarnation is None or incarnation.job.source != session.link:
        return False
    return may_arrive(situation, incarnation) or has_silent_start(situation, incarnation)


def _runs_elsewhere(situation: Situation, session: Session) -> bool:
    incarnation = situation.inventory.jobs.get(session.job_name or "")
    if incarnation is None or incarnation.job.source == session.link:
        return False
    return is_live(situation, incarnation)


def _has_running_reader(situation: Situation, producer: Job) -> bool:
    """Whether another job reads what `producer` will write; it would leave that link itself."""
    return any(
        each.job.job_name != producer.job_name
        and (is_live(situation, each) or may_arrive(situation, each))
        for link in producer.port
        for each in situation.jobs.readers.get(link, ())
    )


def _rank_way_out(situation: Situation, session: Session, meanwhile: Mapping[str, Job]) -> int:
    """0 if what the session's reader writes comes to a reader outside speck, 1 if jobs that run
    would have to leave their links for that, 2 if it does not."""
    if _has_way_out(situation, session, meanwhile, disturbing=False):
        return 0
    return 1 if _has_way_out(situation, session, meanwhile, disturbing=True) else 2


def _has_way_out(
    situation: Situation, session: Session, meanwhile: Mapping[str, Job], *, disturbing: bool
) -> bool:
    """Whether what the session's reader writes comes to a reader outside speck, through jobs that
    have a session on each link between; if they run elsewhere, only when `disturbing`. The reader
    itself leaves the link that it reads now, and those that read another link `meanwhile` are not
    there."""
    visited, ahead = {session.link}, list(session.job.port) if session.job is not None else []
    while ahead:
        link = ahead.pop()
        if link in situation.outside.readers:
            return True
        if link in visited:
            continue
        visited.add(link)
        for other in situation.present.on_link.get(link, ()):
            if not other.reserved or other.job_name == session.job_name:
                continue
            if other.job_name is None:
                return True
            if (job := meanwhile.get(other.job_name)) is not None:
                ahead += job.port if job.source == link else ()
            elif disturbing or not _runs_elsewhere(situation, other):
                ahead += _list_sinks(situation, other)
    return False


def _list_sinks(situation: Situation, session: Session) -> list[Link]:
    """Where the session's reader writes, as it runs with the session or is to run."""
    incarnation = situation.inventory.jobs.get(session.job_name or "")
    if incarnation is not None and incarnation.job.source == session.link:
        return list(incarnation.job.port)
    return list(session.job.port) if session.job is not None else []


def is_running(
    situation: Situation, session: Session, waiting: Mapping[str, Job] = MappingProxyType({})
) -> bool:
    """Whether the session's reader runs on its link, and goes on while those in `waiting` run as
    given. It may if its site does not answer, unless it was never observed to run."""
    incarnation = situation.inventory.jobs.get(session.job_name or "")
    if incarnation is None or incarnation.job.source != session.link:
        return False
    if not _is_free(session, waiting):
        return False
    return is_live(situation, incarnation) and not has_silent_start(situation, incarnation)


def has_ended_unseen(situation: Situation, session: Session) -> bool:
    """Whether the session's reader was asked to stop, or cancelled, and has ended before the answer
    was heard. A session that was reserved since then may lack what came in between."""
    incarnation = situation.inventory.jobs.get(session.job_name or "")
    if incarnation is None or incarnation.job.source != session.link or incarnation.ended:
        return False
    engine_job = situation.observation.job(incarnation.job.site, incarnation.engine_job_id)
    is_cancelled = engine_job is not None and engine_job.state is RunState.CANCELED
    return is_cancelled or (incarnation.stopping and not is_live(situation, incarnation))


def was_interrupted(situation: Situation, session: Session) -> bool:
    """Whether the session's reader does not run since a change ended early: the change has stopped
    it, or reserved its session, and not gone on. False if its start was refused: it would be
    again."""
    if session.job is not None and session.job.state is DesiredState.STOPPED:
        return False
    incarnation = situation.inventory.jobs.get(session.job_name or "")
    if incarnation is None or incarnation.job.source != session.link:
        return True  # it has never begun, or reads another link by now
    if incarnation.ended:
        return incarnation.job.state is DesiredState.RUNNING
    return has_ended_unseen(situation, session) or is_arriving(situation, session)
