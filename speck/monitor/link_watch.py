"""Reads what the connectors of jobs report of their links, at brokers and engines, and writes the
events."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from speck.model.composition import visible_name
from speck.model.ids import sink_client_id, source_client_id
from speck.model.incarnation import Incarnation
from speck.model.measurement import LinkMeasure
from speck.model.observation import BrokerView
from speck.monitor.health import Key
from speck.monitor.link_reports import (
    STALLED_S,
    JobLinks,
    LinkNews,
    LinkReport,
    ReportMemory,
    judge_reports,
    make_report,
)
from speck.sites.poll_cache import Poll
from speck.store.records import Records
from speck.store.tables import Batch

Measured = Callable[[Incarnation], LinkMeasure | None]
"""What the engine of an incarnation reported last of its connector."""


class LinkWatch:
    """Compares the reports at each poll."""

    def __init__(self, records: Records, measured: Measured):
        self._records = records
        self._measured = measured
        self._views: dict[str, BrokerView | None] = {}
        self._client_ids: dict[Key, tuple[Incarnation, tuple[str, ...], str]] = {}
        self.memory = ReportMemory()

    def poll(self, now: float, polls: Mapping[str, Poll[BrokerView]]) -> None:
        """Compare, and write an event for each finding."""
        sites = self._records.sites.all()
        self._views = {site: view for site, view in self._views.items() if site in sites}
        self._views |= {site: poll.answer for site, poll in polls.items()}
        incarnations = self._records.incarnations.all()
        reports = {
            key: (
                incarnation.engine_job_id,
                None if incarnation.ended else self._read(key, incarnation),
            )
            for key, incarnation in incarnations.items()
        }
        known = self._client_ids
        self._client_ids = {key: known[key] for key in reports if key in known}
        self.memory = judge_reports(now, reports, self.memory)
        events: Batch = {}
        for item in self.memory.news:
            site = incarnations[item.scope, item.job_name].job.site
            events |= self._records.events.make(
                "job",
                describe(item),
                site=site,
                job_name=item.job_name,
                composition=visible_name(item.scope),
            )
        if events:
            self._records.write(events)

    def links_of(self, key: Key) -> JobLinks | None:
        """What is known of a job's links."""
        return (self.memory.jobs or {}).get(key)

    def stalls(self, now: float, key: Key) -> bool:
        """Whether a job has not been able to use a broker for long, though it answers speck."""
        links, known = self.links_of(key), self._client_ids.get(key)
        if links is None or known is None or links.problem is None:
            return False
        job = known[0].job
        answer = all(self._views.get(site) for site in job.link_sites)
        return answer and now - links.since >= STALLED_S

    def _read(self, key: Key, incarnation: Incarnation) -> LinkReport:
        known = self._client_ids.get(key)
        if known is None or known[0] is not incarnation:
            known = self._client_ids[key] = (incarnation, *self._name_clients(incarnation))
        job, (_, sinks, source) = incarnation.job, known
        views = {site: self._views.get(site) for site in job.link_sites}
        reports = (
            view.find_sent(link.topic, sink)
            for link, sink in zip(job.port, sinks, strict=True)
            if (view := views[link.site]) is not None
        )
        sent = [each for each in reports if each is not None]
        source_view = views[job.source_site]
        taken = source_view.taken.get(source) if source_view else None
        measured = self._measured(incarnation)
        return make_report(measured, sent, taken, is_complete=None not in views.values())

    def _name_clients(self, incarnation: Incarnation) -> tuple[tuple[str, ...], str]:
        job, installation = incarnation.job, self._records.installation
        return (
            tuple(
                sink_client_id(installation, job.job_name, job.source, link) for link in job.port
            ),
            source_client_id(installation, job.job_name, job.source),
        )


def describe(news: LinkNews) -> str:
    """The text of an event."""
    records = f"{news.count} record{'s' if news.count != 1 else ''}"
    match news.kind:
        case "left_out":
            return (
                f"{news.job_name} left out {records}: larger than its broker or --max-record-bytes"
                " allows"
            )
        case "lost":
            return f"{news.job_name} lost {records}, as its delivery or its rewiring allows"
        case "dropped":
            return (
                f"{news.job_name} dropped {records}, as its delivery allows: more came than it"
                " takes"
            )
        case "problem":
            return f"{news.job_name}: {news.problem}"
        case _:
            return f"{news.job_name} reads and writes its links again"
