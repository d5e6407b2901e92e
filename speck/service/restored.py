"""What runs when a service has been restored from a backup, and how it takes that over.

What happened after the backup is unknown to the store. The ids of engine jobs tell it: they name
the installation, the job, and which of its incarnations it is (`speck.model.ids`). So nothing of
ours is mistaken for foreign, and of two incarnations the later one is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated

from speck.clock import Clock
from speck.deploy.changes import Changes
from speck.errors import ConflictError
from speck.model.composition import visible_name
from speck.model.ids import EngineJobId, engine_job_id, sink_client_id, source_client_id
from speck.model.incarnation import Incarnation, Session, StartState
from speck.model.job import Job
from speck.model.link import Link
from speck.model.shown import Shown
from speck.service.survey import Key, Sighting, Survey, Surveyor
from speck.sites.connections import Connections
from speck.sites.site_polls import SitePolls
from speck.store.records import Records
from speck.store.sessions import KeptSession
from speck.store.tables import Batch

_CANCEL_S = 30.0
_POLL_S = 0.2
_NO_TOPIC = "unknown"
"""Given to a broker for a session whose topic is not known; a release does not use it then."""


@dataclass(frozen=True, slots=True)
class SeenJob:
    """An engine job of this installation, as an engine lists it."""

    site: str
    engine_job_id: str
    job_name: Annotated[str, Shown("as the engine names it if the store does not know the job")]
    composition: str | None
    generation: Annotated[int, Shown("of the store that started it")]
    attempt: int
    state: Annotated[str, Shown("as the engine reports it")]

    @classmethod
    def of(cls, sighting: Sighting, key: Key | None) -> SeenJob:
        """`key`: the job as the store knows it."""
        return cls(
            site=sighting.site,
            engine_job_id=sighting.job.engine_job_id,
            job_name=key[1] if key else sighting.job.name,
            composition=visible_name(key[0]) if key else None,
            generation=sighting.identity.generation,
            attempt=sighting.identity.attempt,
            state=str(sighting.job.state),
        )


@dataclass(frozen=True, slots=True)
class MissingJob:
    """A job that runs as far as the store knows, and that no engine lists."""

    job_name: str
    composition: str | None
    site: str
    engine_job_id: str


@dataclass(frozen=True, slots=True)
class UncertainJob:
    """A job that may have left newer state than the store knows of."""

    job_name: str
    composition: str | None
    site: str


@dataclass(frozen=True, slots=True)
class UnknownSession:
    """A reader's session that the store does not know."""

    site: Annotated[str, Shown("of the broker")]
    client_id: str
    job_name: str
    topic: Annotated[str | None, Shown("null: no known topic fits the client id")]
    messages: Annotated[
        int | None,
        Shown("how many wait in it at least, by the numbers of sinks; null: no sink reports any"),
    ]

    @classmethod
    def of(cls, session: KeptSession) -> UnknownSession:
        topic = session.link.topic if session.link else None
        return cls(session.site, session.client_id, session.job_name, topic, session.messages)


@dataclass(frozen=True, slots=True)
class RestoredReport:
    """What runs but is not in the store, what the store believes but does not run, and sessions
    that it does not know. `at` is RFC 3339."""

    state: str
    at: Annotated[str | None, Shown("since when")]
    reason: Annotated[
        str | None, Shown("why: the store was restored from a backup, or its folder was copied")
    ]
    generation: Annotated[int, Shown("of the store: raised by each restore")]
    unknown_jobs: tuple[SeenJob, ...]
    missing_jobs: tuple[MissingJob, ...]
    unknown_sessions: tuple[UnknownSession, ...]
    silent_sites: Annotated[
        tuple[str, ...], Shown("the sites whose engine or broker does not answer")
    ]


@dataclass(frozen=True, slots=True)
class Adopted:
    """What an adoption has done."""

    adopted: tuple[SeenJob, ...]
    cancelled: tuple[SeenJob, ...]
    uncertain: tuple[UncertainJob, ...]
    kept_sessions: tuple[UnknownSession, ...]
    released_sessions: tuple[UnknownSession, ...]


@dataclass(slots=True)
class _Adoption:
    """What is to be done: incarnations to store, engine jobs to cancel, and what to report."""

    batch: Batch = field(default_factory=dict)
    to_cancel: list[Sighting] = field(default_factory=list)
    readers: set[tuple[str, str]] = field(default_factory=set)
    """(client id, site of the broker) of the readers that go on."""
    adopted: list[SeenJob] = field(default_factory=list)
    uncertain: list[UncertainJob] = field(default_factory=list)

    def find_unread(self, survey: Survey) -> list[KeptSession]:
        """The sessions that no job reads once this is done."""
        return [
            session
            for session in survey.sessions
            if (session.client_id, session.site) not in self.readers
        ]


class Restored:
    """Shows the difference between a restored store and the sites, and ends it."""

    def __init__(
        self,
        records: Records,
        connections: Connections,
        polls: SitePolls,
        changes: Changes,
        clock: Clock,
    ):
        self._records = records
        self._connections = connections
        self._surveyor = Surveyor(records, polls, changes)
        self._changes = changes
        self._clock = clock

    def notice_rollback(self) -> None:
        """Make a store that is older than what runs `restored`; before any change is taken up."""
        if self._records.restored is None:
            reason = self._surveyor.find_newer()
            if reason is not None:
                self._records.begin_generation(reason)

    def report(self) -> RestoredReport:
        """What runs but is not in the store, what the store believes but does not run, and
        sessions that it does not know. Sites that do not answer are named."""
        survey = self._surveyor.survey()
        unknown = [
            SeenJob.of(sighting, key)
            for key, sightings in survey.by_job.items()
            for sighting in sightings
            if sighting.live and not self._is_stored(key, sighting)
        ]
        unknown += [SeenJob.of(each, None) for each in survey.strangers if each.live]
        restored = self._records.restored
        return RestoredReport(
            state="restored" if restored else "normal",
            at=restored.at if restored else None,
            reason=restored.reason if restored else None,
            generation=self._records.generation,
            unknown_jobs=tuple(unknown),
            missing_jobs=tuple(self._list_missing(survey)),
            unknown_sessions=tuple(map(UnknownSession.of, survey.sessions)),
            silent_sites=tuple(survey.silent),
        )

    def adopt(
        self,
        *,
        cancel: bool = False,
        older_state: bool = False,
        discard_messages: bool = False,
        by: str | None = None,
    ) -> Adopted:
        """Take over what runs, and let the service go on.

        Of each job the latest incarnation that runs becomes that of the store. What cannot be taken
        over (jobs that the store does not know, a second incarnation of a job, jobs whose links
        have changed) is cancelled with `cancel`; otherwise nothing is done and ConflictError
        raised. A job that does not run may have left newer state than the store knows of: its next
        start is refused until `upgrade: stateless` is set, unless an `older_state` will do.

        Sessions that no job reads then are kept with their messages, for the next job of the same
        name that reads the same link; with `discard_messages` they are released.
        ConflictError, too, if a site does not answer or the store is not restored.
        """
        if self._records.restored is None:
            raise ConflictError(
                "cannot adopt: the store was neither restored nor copied, or it was adopted before"
            )
        with self._changes.placing:
            survey = self._surveyor.survey()
            if survey.silent:
                raise ConflictError(
                    f"cannot adopt: what runs at {', '.join(survey.silent)} is unknown, since it"
                    " does not answer; try again when it does, or `speck forget site` it"
                )
            adoption = self._decide(survey, older_state)
            if adoption.to_cancel and not cancel:
                raise ConflictError(_describe_obstacles(adoption.to_cancel))
            self._cancel(adoption.to_cancel)
            self._drop_lost_sessions(adoption)
            unread = adoption.find_unread(survey)
            if discard_messages:
                self._release(unread)
            kept, released = ([], unread) if discard_messages else (unread, [])
            adopted = Adopted(
                adopted=tuple(adoption.adopted),
                cancelled=tuple(SeenJob.of(each, None) for each in adoption.to_cancel),
                uncertain=tuple(adoption.uncertain),
                kept_sessions=tuple(map(UnknownSession.of, kept)),
                released_sessions=tuple(map(UnknownSession.of, released)),
            )
            adoption.batch |= self._records.sessions.put_kept(kept)
            for scope, sink in self._records.ended_sinks.all():  # of long ago
                adoption.batch |= self._records.ended_sinks.drop(scope, sink)
            event = self._records.events.make("service", _describe(adopted), by=by)
            self._records.end_restored(adoption.batch, event)
        self._changes.touch()
        return adopted

    # -- what there is ------------------------------------------------------------------------

    def _is_stored(self, key: Key, sighting: Sighting) -> bool:
        incarnation = self._records.incarnations.all().get(key)
        return (
            incarnation is not None
            and incarnation.engine_job_id == sighting.job.engine_job_id
            and incarnation.job.site == sighting.site
        )

    def _list_missing(self, survey: Survey) -> list[MissingJob]:
        return [
            MissingJob(
                key[1], visible_name(key[0]), incarnation.job.site, incarnation.engine_job_id
            )
            for key, incarnation in self._records.incarnations.all().items()
            if not incarnation.ended
            and not incarnation.void
            and not any(
                each.live and self._is_stored(key, each) for each in survey.by_job.get(key, ())
            )
        ]

    # -- what becomes of it -------------------------------------------------------------------

    def _decide(self, survey: Survey, older_state: bool) -> _Adoption:
        adoption = _Adoption(to_cancel=[each for each in survey.strangers if each.live])
        for key, incarnation in self._records.incarnations.all().items():
            self._decide_job(adoption, key, incarnation, survey, older_state)
        for key, sightings in survey.by_job.items():
            if key not in self._records.incarnations.all():  # removed before the backup
                adoption.to_cancel += [each for each in sightings if each.live]
            highest = max(each.identity.attempt for each in sightings)
            attempts = max(highest, self._records.incarnations.attempts(*key))
            adoption.batch |= self._records.incarnations.put_attempts(*key, attempts)
        return adoption

    def _decide_job(
        self,
        adoption: _Adoption,
        key: Key,
        incarnation: Incarnation,
        survey: Survey,
        older_state: bool,
    ) -> None:
        """Find the latest incarnation of a job that the store has, and decide about all."""
        sightings = survey.by_job.get(key, [])
        live = sorted(
            (each for each in sightings if each.live), key=lambda each: each.identity.order
        )
        if live:
            newest = live.pop()
            adoption.to_cancel += live
            if self._is_stored(key, newest):
                adoption.readers.add(self._reader_of(incarnation.job))
                return
            job = self._find_wiring(incarnation.job, newest.site, survey)
            if job is not None:
                taken_over = _take_over(incarnation, job, newest)
                adoption.batch |= self._records.incarnations.put(key[0], taken_over)
                adoption.batch |= self._put_session(key[0], job)
                adoption.readers.add(self._reader_of(job))
                adoption.adopted.append(SeenJob.of(newest, key))
                return
            live = [newest]
        adoption.to_cancel += live
        own = EngineJobId.parse(incarnation.engine_job_id, self._records.installation)
        is_newest = not any(own is None or each.identity.order > own.order for each in sightings)
        if older_state or incarnation.void or (incarnation.ended and is_newest):
            return
        replaced = self._make_unknown(key, incarnation, sightings)
        adoption.batch |= self._records.incarnations.put(key[0], replaced)
        adoption.uncertain.append(UncertainJob(key[1], visible_name(key[0]), incarnation.job.site))

    def _find_wiring(self, job: Job, site: str, survey: Survey) -> Job | None:
        """The job as it runs at `site`. Its source is that of the store unless a broker knows a
        reader of its name that the store does not know; its sink is where it last reported what it
        has sent. None if its source cannot be found."""
        sites = self._records.sites.all()
        here = replace(job, site=site)
        readers = [each for each in survey.sessions if each.job_name == job.job_name]
        if len(readers) > 1:
            return None
        for reader in readers:
            if reader.link is None:
                return None
            here = replace(here, source=reader.link)
            if job.sink_site == job.source_site:  # unless it has reported another one
                here = here.with_port(tuple(Link(reader.site, link.topic) for link in job.port))
        reports = list(self._find_reports(here, survey))
        if reports:
            here = replace(here, sink=max(reports)[1])
        return here.at_addresses_of(sites)

    def _find_reports(self, job: Job, survey: Survey) -> Iterator[tuple[tuple[int, int], Link]]:
        """The links to which a job with this source has reported what it has sent, with when."""
        for site, view in survey.numbers.items():
            for client_id, sent in view.sent.items():
                if sent.topic is None:
                    continue
                link = Link(site, sent.topic)
                own = sink_client_id(self._records.installation, job.job_name, job.source, link)
                if client_id == own:
                    yield (sent.epoch, sent.at_ms), link

    def _put_session(self, scope: str, job: Job) -> Batch:
        """The session of a job that was taken over, if the store does not know that it is read."""
        client_id = source_client_id(self._records.installation, job.job_name, job.source)
        known = self._records.sessions.get(scope, client_id, job.source_site)
        if known is not None and known.begun:
            return {}
        session = known or Session(client_id, job.source, job.source_site, job.job_name)
        return self._records.sessions.put(scope, replace(session, job=job, begun=True))

    def _make_unknown(
        self, key: Key, incarnation: Incarnation, sightings: Collection[Sighting]
    ) -> Incarnation:
        """An incarnation that no engine has ever seen, as if its engine had forgotten it: the next
        start is refused if messages were taken, since its newest state cannot be established."""
        attempts = [incarnation.attempt, self._records.incarnations.attempts(*key)]
        attempt = max((*attempts, *(each.identity.attempt for each in sightings))) + 1
        records = self._records
        identity = engine_job_id(records.installation, *key, records.generation, attempt)
        return Incarnation(incarnation.job, attempt, identity, start=StartState.CONFIRMED)

    def _drop_lost_sessions(self, adoption: _Adoption) -> None:
        """Forget the sessions that were released after the backup: a plan would rely on them. A
        broker tells whether it has one when it is asked to reserve it; those of readers that go on
        are not asked for, since that would disconnect them. Raises SpeckError of a broker."""
        sessions = [
            (scope, session)
            for scope, session in self._records.sessions.all()
            if session.job_name is not None
        ]
        idle = [each for each in sessions if _key_of(each[1]) not in adoption.readers]
        lost = [
            (scope, session)
            for scope, session in idle
            if not self._connections.broker(session.site)
            .reserve(session.client_id, session.link.topic)
            .existed
        ]
        gone = {_key_of(session) for _, session in lost}
        read = {s.link for _, s in self._records.sessions.all() if _key_of(s) not in gone}
        for scope, session in lost:
            self._connections.broker(session.site).release(
                session.client_id, session.link.topic, last_reader=session.link not in read
            )
            adoption.batch |= self._records.sessions.drop(scope, session.client_id, session.site)

    def _release(self, sessions: Iterable[KeptSession]) -> None:
        """Release sessions with what waits in them. Raises SpeckError of a broker."""
        read = {session.link for _, session in self._records.sessions.all()}
        for each in sessions:
            topic = each.link.topic if each.link else _NO_TOPIC
            is_last = each.link is not None and each.link not in read
            broker = self._connections.broker(each.site)
            broker.release(each.client_id, topic, last_reader=is_last)

    def _reader_of(self, job: Job) -> tuple[str, str]:
        client_id = source_client_id(self._records.installation, job.job_name, job.source)
        return client_id, job.source_site

    def _cancel(self, sightings: Collection[Sighting]) -> None:
        """Cancel engine jobs and wait until they have ended. Raises ConflictError if one has not,
        and SpeckError of its site."""
        for each in sightings:
            self._connections.engine(each.site).cancel(each.job.engine_job_id)
        until = self._clock.monotonic() + _CANCEL_S
        for each in sightings:
            while self._runs(each):
                if self._clock.monotonic() > until:
                    raise ConflictError(
                        f"cannot adopt: {each.job.name} ({each.job.engine_job_id}) at {each.site}"
                        f" has not ended {_CANCEL_S:.0f} s after it was cancelled; try again"
                    )
                self._clock.wait(_POLL_S)

    def _runs(self, sighting: Sighting) -> bool:
        state = self._connections.engine(sighting.site).status(sighting.job.engine_job_id)
        return state is not None and not state.terminal


def _take_over(incarnation: Incarnation, job: Job, sighting: Sighting) -> Incarnation:
    """The incarnation that runs. Arguments and artifact are those of the store, which may be older:
    no engine reports them."""
    return Incarnation(
        job=job,
        attempt=sighting.identity.attempt,
        engine_job_id=sighting.job.engine_job_id,
        start=StartState.CONFIRMED,
        former_sinks=incarnation.former_sinks,
    )


def _key_of(session: Session) -> tuple[str, str]:
    return session.client_id, session.site


def _describe(adopted: Adopted) -> str:
    without_job = len(adopted.kept_sessions) or len(adopted.released_sessions)
    return (
        f"the restored state was adopted: {len(adopted.adopted)} jobs taken over,"
        f" {len(adopted.cancelled)} cancelled, {len(adopted.uncertain)} whose newest state is"
        f" unknown, {without_job} sessions without a job"
        f" {'released' if adopted.released_sessions else 'kept'}"
    )


def _describe_obstacles(sightings: Collection[Sighting]) -> str:
    named = [f"{each.job.name} at {each.site} ({each.job.engine_job_id})" for each in sightings]
    more = f" and {len(named) - 5} more" if len(named) > 5 else ""
    return (
        f"cannot adopt: {len(named)} engine jobs of this installation cannot be taken over:"
        f" {', '.join(named[:5])}{more}; end them with `speck adopt --cancel`"
    )
