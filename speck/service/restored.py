"""What runs when a service has been restored from a backup, and how it takes that over.

What happened after the backup is unknown to the store. The ids of engine jobs tell it: they name
the installation, the job, and which of its incarnations it is (`speck.model.ids`). So nothing of
ours is mistaken for foreign, and of two incarnations the later one is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from speck.clock import Clock
from speck.deploy.changes import Changes
from speck.errors import ConflictError
from speck.model.composition import visible_name
from speck.model.ids import EngineJobId, engine_job_id, sink_client_id, source_client_id
from speck.model.incarnation import Incarnation, Session, StartState
from speck.model.job import Job
from speck.model.link import Link
from speck.model.values import JsonObject
from speck.service.survey import Key, Sighting, Survey, Surveyor, UnknownSession
from speck.sites.connections import Connections
from speck.sites.site_polls import SitePolls
from speck.store.records import Records
from speck.store.tables import Batch

_CANCEL_S = 30.0
_POLL_S = 0.2
_NO_TOPIC = "unknown"
"""Given to a broker for a session whose topic is not known; a release does not use it then."""


@dataclass(slots=True)
class _Adoption:
    """What is to be done: incarnations to store, engine jobs to cancel, and what to report."""

    batch: Batch = field(default_factory=dict)
    to_cancel: list[Sighting] = field(default_factory=list)
    readers: set[tuple[str, str]] = field(default_factory=set)
    """(client id, site of the broker) of the readers that go on."""
    adopted: list[JsonObject] = field(default_factory=list)
    uncertain: list[JsonObject] = field(default_factory=list)

    def find_unread(self, survey: Survey) -> list[UnknownSession]:
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

    def report(self) -> JsonObject:
        """What runs but is not in the store, what the store believes but does not run, and
        sessions that it does not know. Sites that do not answer are named."""
        survey = self._surveyor.survey()
        unknown = [
            self._describe(sighting, key)
            for key, sightings in survey.by_job.items()
            for sighting in sightings
            if sighting.live and not self._is_stored(key, sighting)
        ]
        unknown += [self._describe(each, None) for each in survey.strangers if each.live]
        return {
            "state": "restored" if self._records.restored else "normal",
            "at": (self._records.restored or {}).get("at"),
            "reason": (self._records.restored or {}).get("reason"),
            "generation": self._records.generation,
            "unknown_jobs": unknown,
            "missing_jobs": list(self._list_missing(survey)),
            "unknown_sessions": [session.describe() for session in survey.sessions],
            "silent_sites": survey.silent,
        }

    def adopt(
        self,
        *,
        cancel: bool = False,
        older_state: bool = False,
        discard_messages: bool = False,
        by: str | None = None,
    ) -> JsonObject:
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
            adoption.batch |= self._put_kept([] if discard_messages else unread)
            message = (
                f"the restored state was adopted: {len(adoption.adopted)} jobs taken over,"
                f" {len(adoption.to_cancel)} cancelled, {len(adoption.uncertain)} whose newest"
                f" state is unknown, {len(unread)} sessions without a job"
                f" {'released' if discard_messages else 'kept'}"
            )
            for scope, sink in self._records.all_ended_sinks():  # of long ago
                adoption.batch |= self._records.drop_ended_sink(scope, sink)
            event = self._records.event("service", message, by=by)
            self._records.end_restored(adoption.batch, event)
        self._changes.touch()
        return {
            "adopted": adoption.adopted,
            "cancelled": [self._describe(each, None) for each in adoption.to_cancel],
            "uncertain": adoption.uncertain,
            "kept_sessions": [] if discard_messages else [each.describe() for each in unread],
            "released_sessions": [each.describe() for each in unread] if discard_messages else [],
        }

    # -- what there is ------------------------------------------------------------------------

    def _is_stored(self, key: Key, sighting: Sighting) -> bool:
        incarnation = self._records.all_incarnations().get(key)
        return (
            incarnation is not None
            and incarnation.engine_job_id == sighting.job.engine_job_id
            and incarnation.job.site == sighting.site
        )

    def _list_missing(self, survey: Survey) -> list[JsonObject]:
        return [
            {
                "job_name": key[1],
                "composition": visible_name(key[0]),
                "site": incarnation.job.site,
                "engine_job_id": incarnation.engine_job_id,
            }
            for key, incarnation in self._records.all_incarnations().items()
            if not incarnation.ended
            and not incarnation.void
            and not any(
                each.live and self._is_stored(key, each) for each in survey.by_job.get(key, ())
            )
        ]

    def _describe(self, sighting: Sighting, key: Key | None) -> JsonObject:
        return {
            "site": sighting.site,
            "engine_job_id": sighting.job.engine_job_id,
            "job_name": key[1] if key else sighting.job.name,
            "composition": visible_name(key[0]) if key else None,
            "generation": sighting.identity.generation,
            "attempt": sighting.identity.attempt,
            "state": str(sighting.job.state),
        }

    # -- what becomes of it -------------------------------------------------------------------

    def _decide(self, survey: Survey, older_state: bool) -> _Adoption:
        adoption = _Adoption(to_cancel=[each for each in survey.strangers if each.live])
        for key, incarnation in self._records.all_incarnations().items():
            self._decide_job(adoption, key, incarnation, survey, older_state)
        for key, sightings in survey.by_job.items():
            if key not in self._records.all_incarnations():  # removed before the backup
                adoption.to_cancel += [each for each in sightings if each.live]
            highest = max(each.identity.attempt for each in sightings)
            attempts = max(highest, self._records.attempts(*key))
            adoption.batch |= self._records.put_attempts(*key, attempts)
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
                adoption.batch |= self._records.put_incarnation(key[0], taken_over)
                adoption.batch |= self._put_session(key[0], job)
                adoption.readers.add(self._reader_of(job))
                adoption.adopted.append(self._describe(newest, key))
                return
            live = [newest]
        adoption.to_cancel += live
        own = EngineJobId.parse(incarnation.engine_job_id, self._records.installation)
        is_newest = not any(own is None or each.identity.order > own.order for each in sightings)
        if older_state or incarnation.void or (incarnation.ended and is_newest):
            return
        replaced = self._make_unknown(key, incarnation, sightings)
        adoption.batch |= self._records.put_incarnation(key[0], replaced)
        adoption.uncertain.append(
            {"job_name": key[1], "composition": visible_name(key[0]), "site": incarnation.job.site}
        )

    def _find_wiring(self, job: Job, site: str, survey: Survey) -> Job | None:
        """The job as it runs at `site`. Its source is that of the store unless a broker knows a
        reader of its name that the store does not know; its sink is where it last reported what it
        has sent. None if its source cannot be found."""
        sites = self._records.sites()
        here = replace(job, site=site)
        readers = [each for each in survey.sessions if each.job_name == job.job_name]
        if len(readers) > 1:
            return None
        for reader in readers:
            if reader.link is None:
                return None
            here = replace(here, source=reader.link)
            if job.sink_site == job.source_site:  # unless it has reported another one
                here = replace(here, sink=Link(reader.site, job.sink.topic))
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
        """The session of a job that was taken over, if the store does not know it."""
        client_id = source_client_id(self._records.installation, job.job_name, job.source)
        if self._records.session(scope, client_id, job.source_site) is not None:
            return {}
        session = Session(client_id, job.source, job.source_site, job.job_name, job=job, begun=True)
        return self._records.put_session(scope, session)

    def _make_unknown(
        self, key: Key, incarnation: Incarnation, sightings: Collection[Sighting]
    ) -> Incarnation:
        """An incarnation that no engine has ever seen, as if its engine had forgotten it: the next
        start is refused if messages were taken, since its newest state cannot be established."""
        attempts = [incarnation.attempt, self._records.attempts(*key)]
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
            for scope, session in self._records.all_sessions()
            if session.job_name is not None
        ]
        idle = [each for each in sessions if _key_of(each[1]) not in adoption.readers]
        lost = [
            (scope, session)
            for scope, session in idle
            if not self._connections.broker(session.site).reserve(
                session.client_id, session.link.topic
            )
        ]
        gone = {_key_of(session) for _, session in lost}
        read = {s.link for _, s in self._records.all_sessions() if _key_of(s) not in gone}
        for scope, session in lost:
            self._connections.broker(session.site).release(
                session.client_id, session.link.topic, last_reader=session.link not in read
            )
            adoption.batch |= self._records.drop_session(scope, session.client_id, session.site)

    def _put_kept(self, sessions: Iterable[UnknownSession]) -> Batch:
        """Note which sessions are kept, instead of those that the store has noted so far."""
        table = self._records.kept_sessions
        batch: Batch = {}
        for identity, _ in table.items():
            batch |= table.drop(*identity.split("/"))
        for each in sessions:
            batch |= table.put(each.describe(), each.client_id, each.site)
        return batch

    def _release(self, sessions: Iterable[UnknownSession]) -> None:
        """Release sessions with what waits in them. Raises SpeckError of a broker."""
        read = {session.link for _, session in self._records.all_sessions()}
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
    """The incarnation that runs. Arguments and jar are those of the store, which may be older: no
    engine tells them."""
    return Incarnation(
        job=job,
        attempt=sighting.identity.attempt,
        engine_job_id=sighting.job.engine_job_id,
        start=StartState.CONFIRMED,
        former_sinks=incarnation.former_sinks,
    )


def _key_of(session: Session) -> tuple[str, str]:
    return session.client_id, session.site


def _describe_obstacles(sightings: Collection[Sighting]) -> str:
    named = [f"{each.job.name} at {each.site} ({each.job.engine_job_id})" for each in sightings]
    more = f" and {len(named) - 5} more" if len(named) > 5 else ""
    return (
        f"cannot adopt: {len(named)} engine jobs of this installation cannot be taken over:"
        f" {', '.join(named[:5])}{more}; end them with `speck adopt --cancel`"
    )
