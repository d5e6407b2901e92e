"""The graph of jobs between links, for tracing where data enters (`speck.placement.origins`). Pure.

A link that no job writes is fed from outside, and so is one that is declared as an input. If jobs
write to it as well, outsiders send what its readers take beyond that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from speck.analyzer.links import Link, sink_of, source_of
from speck.model.analysis_result import AnalysedLink
from speck.model.values import JsonObject
from speck.placement.evidence import NOISE, SUFFICIENT, judge_rates
from speck.placement.origins import Mix, Origin, Tracer

PLAN_AGE = timedelta(minutes=65)
"""The plan of a job that runs is written once an hour."""

_Wired = tuple[str | None, str, Link | None, Link | None]
"""(composition, job, source, sink)"""


class DataOrigins:
    """Where the data that jobs process enters the system."""

    def __init__(
        self,
        jobs: Sequence[JsonObject],
        links: Sequence[AnalysedLink],
        plans: Sequence[JsonObject] = (),
    ) -> None:
        """Rows of JOBS, links, and rows of PLANS_WIRED: those of all compositions, since jobs of
        one may feed another."""
        self._tracer: Tracer[Link] = Tracer()
        self._read: set[Link] = set()
        self._declared = {
            link for job in jobs if job["source_is_input"] and (link := source_of(job)) is not None
        }
        self._written: dict[Link, list[float | None]] = {}
        for job in jobs:
            self._add_job(job["job_name"], source_of(job), sink_of(job), job)
        for _, name, source, sink in _list_unseen_jobs(jobs, links, plans):
            self._add_job(name, source, sink, None)
        self._add_inputs(links)

    def of(self, job: JsonObject) -> Mix:
        """The origins of what a row of JOBS processes; the job itself if it has no input. Nothing
        is known of a job whose links are not."""
        source = source_of(job)
        if source is None and sink_of(job) is None:
            return Mix({}, False)
        if source is None or _takes_nothing(job):
            return Mix({Origin("job", job["job_name"]): 1.0}, True)
        return self._tracer.trace(source)

    def _add_job(
        self, name: str, source: Link | None, sink: Link | None, job: JsonObject | None
    ) -> None:
        """`job`: its row; None: it has none, so what it writes is not known."""
        if source is not None:
            self._read.add(source)
        if sink is None:
            return
        sent = None if job is None else _sent_bytes_of(job)
        self._written.setdefault(sink, []).append(sent)
        if source is None or (job is not None and _takes_nothing(job)):
            self._tracer.enter(sink, Origin("job", name), sent)
        else:
            self._tracer.flow(source, sink, sent)

    def _add_inputs(self, links: Iterable[AnalysedLink]) -> None:
        """Add what outsiders send."""
        for link in self._read - self._written.keys():
            self._enter(link, None)
        rates = {Link(each.broker_site, each.topic): each for each in links}
        for link in self._find_fed(rates.values()) & self._written.keys():
            rated = rates.get(link)
            is_known = rated is not None and rated.evidence == SUFFICIENT
            total = rated.bytes_per_s if rated is not None and is_known else None
            written = [sent for sent in self._written[link] if sent is not None]
            if total is None or len(written) < len(self._written[link]):
                self._enter(link, None)
            elif total - sum(written) > NOISE * sum(written):
                self._enter(link, total - sum(written))

    def _find_fed(self, links: Iterable[AnalysedLink]) -> set[Link]:
        """Links at which outsiders were seen to send, and those that are declared as inputs."""
        seen = {
            Link(each.broker_site, each.topic)
            for each in links
            if any(producer.job_name is None for producer in each.producers)
        }
        return seen | self._declared

    def _enter(self, link: Link, bytes_per_s: float | None) -> None:
        if link.site is not None:
            self._tracer.enter(link, Origin("site", link.site), bytes_per_s)


def _sent_bytes_of(job: JsonObject) -> float | None:
    """Bytes per second that a job writes; None without evidence."""
    if judge_rates((job["rate_evidence"], job["evidence"]), ()) is not None:
        return None
    sent: float | None = job["bytes_out_rate"]
    return 0.0 if sent is None and job["out_rate"] == 0 else sent


def _takes_nothing(job: JsonObject) -> bool:
    """Whether a job was seen to write without reading anything."""
    return job["in_rate"] == 0 and (job["out_rate"] or 0.0) > 0


def _list_unseen_jobs(
    jobs: Iterable[JsonObject], links: Iterable[AnalysedLink], plans: Sequence[JsonObject]
) -> Iterator[_Wired]:
    """Jobs that run without a sample in the window. Their links are known by the ends that brokers
    report, else by their plans; otherwise what they write would seem to come from outside."""
    seen = {(job["composition"], job["job_name"]) for job in jobs}
    unseen: dict[tuple[str | None, str], list[Link | None]] = {}
    newest = max((plan["at"] for plan in plans), default=datetime.min)
    for plan in sorted(plans, key=lambda plan: plan["at"]):
        key = plan["composition"], plan["job_name"]
        if key not in seen and plan["at"] >= newest - PLAN_AGE:
            unseen[key] = [source_of(plan), sink_of(plan)]
    for each in links:
        link = Link(each.broker_site, each.topic)
        for place, ends in enumerate((each.readers, each.producers)):
            for end in ends:
                if end.job_name is not None and (each.composition, end.job_name) not in seen:
                    key = each.composition, end.job_name
                    unseen.setdefault(key, [None, None])[place] = link
    for (composition, name), (source, sink) in unseen.items():
        yield composition, name, source, sink
