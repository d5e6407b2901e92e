"""What all sites report under the names of this installation, beside what the store knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from speck.deploy.changes import Changes
from speck.model.ids import EngineJobId, job_digits, source_client_id
from speck.model.link import Link
from speck.model.observation import BrokerView, EngineJob, EngineView
from speck.sites.site_polls import SitePolls
from speck.store.records import Records
from speck.store.sessions import KeptSession

_SURVEY_S = 15.0
_START_S = 3.0
"""How long a start of the service waits for engines at most."""

Key = tuple[str, str]
"""(scope, job name)"""


class Sighting(NamedTuple):
    """An engine job of this installation, as the engine of a site lists it."""

    site: str
    job: EngineJob
    identity: EngineJobId

    @property
    def live(self) -> bool:
        return not self.job.state.terminal


@dataclass(slots=True)
class Survey:
    """What all sites report. `by_job` holds all incarnations of known jobs, `strangers` engine
    jobs of ours whose job the store does not know, `numbers` the books of the brokers, and `silent`
    the sites that have not answered."""

    by_job: dict[Key, list[Sighting]] = field(default_factory=dict)
    strangers: list[Sighting] = field(default_factory=list)
    sessions: list[KeptSession] = field(default_factory=list)
    numbers: dict[str, BrokerView] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)


class Surveyor:
    """Asks all sites."""

    def __init__(self, records: Records, polls: SitePolls, changes: Changes):
        self._records = records
        self._polls = polls
        self._changes = changes

    def survey(self) -> Survey:
        """What the sites report now."""
        self._changes.touch()  # earlier polls do not count
        names = self._records.sites.all()
        engines = self._polls.engines.poll(names, within_s=_SURVEY_S)
        brokers = self._polls.broker_numbers.poll(names, fresh_s=0.0, within_s=_SURVEY_S)
        keys = self._map_jobs()
        survey = Survey()
        for site in sorted(names):
            engine, broker = engines.get(site), brokers.get(site)
            view = engine.answer if engine else None
            numbers = broker.answer if broker else None
            if view is None or view.silent or numbers is None:
                survey.silent.append(site)
                continue
            self._add_engine(survey, site, view, keys)
            survey.numbers[site] = numbers
        survey.sessions = list(self._list_sessions(survey))
        return survey

    def find_newer(self) -> str | None:
        """Why the store is older than what its jobs do: an engine knows a later incarnation of one,
        since the store was rolled back, or a copy of it has been adopted elsewhere. None if no
        engine that answers soon does."""
        keys, attempts = self._map_jobs(), self._records.incarnations.all_attempts()
        engines = self._polls.engines.poll(self._records.sites.all(), within_s=_START_S)
        for site, poll in sorted(engines.items()):
            for job in poll.answer.jobs.values() if poll.answer else ():
                identity = EngineJobId.parse(job.engine_job_id, self._records.installation)
                key = keys.get(identity.job) if identity else None
                if identity is None or key is None:
                    continue
                if identity.order > (self._records.generation, attempts.get(key, 0)):
                    return f"{site} knows an incarnation of {key[1]} that was started after it"
        return None

    def _map_jobs(self) -> dict[str, Key]:
        """All jobs that the store has ever known, by their part of engine job ids."""
        keys = set(self._records.incarnations.all())
        keys |= {(owner, name) for name, owner in self._records.compositions.owners()}
        keys |= set(self._records.incarnations.all_attempts())
        return {job_digits(self._records.installation, *key): key for key in sorted(keys)}

    def _add_engine(
        self, survey: Survey, site: str, view: EngineView, keys: Mapping[str, Key]
    ) -> None:
        for job in view.jobs.values():
            identity = EngineJobId.parse(job.engine_job_id, self._records.installation)
            if identity is None:
                continue
            key = keys.get(identity.job)
            if key is None:
                survey.strangers.append(Sighting(site, job, identity))
            else:
                survey.by_job.setdefault(key, []).append(Sighting(site, job, identity))

    def _list_sessions(self, survey: Survey) -> Iterator[KeptSession]:
        """The sessions of readers that the store does not know, by site and client id. The id of a
        reader holds a hash of its link."""
        known = {session.client_id for _, session in self._records.sessions.all()}
        prefix = f"speck-{self._records.installation[:8]}-"
        pattern = re.compile(re.escape(prefix) + "(.+)-[0-9a-f]{8}")
        topics = self._list_topics(survey)
        for site, view in survey.numbers.items():
            for client_id in sorted(view.taken):
                name = pattern.fullmatch(client_id)
                if name is None or client_id in known:
                    continue
                link = self._find_link(client_id, name[1], site, topics)
                messages = _count_waiting(view, client_id, link) if link else None
                yield KeptSession(site, client_id, name[1], link, messages)

    def _find_link(self, client_id: str, job_name: str, site: str, topics: set[str]) -> Link | None:
        for topic in sorted(topics):
            link = Link(site, topic)
            if source_client_id(self._records.installation, job_name, link) == client_id:
                return link
        return None

    def _list_topics(self, survey: Survey) -> set[str]:
        """The topics of all links that the store or a broker's books know."""
        links = (
            link
            for incarnation in self._records.incarnations.all().values()
            for link in (incarnation.job.source, *incarnation.job.port)
        )
        topics = {link.topic for link in links}
        for view in survey.numbers.values():
            topics |= {*view.readers, *view.ends, *(s.topic for s in view.sent.values() if s.topic)}
        return topics


def _count_waiting(view: BrokerView, client_id: str, link: Link) -> int | None:
    """How many messages of speck's sinks a reader has not taken; None if there are no sinks."""
    sent = {
        (each.producer, each.epoch): each.number
        for each in view.sent.values()
        if each.topic == link.topic
    }
    return view.untaken(client_id, sent) if sent else None
