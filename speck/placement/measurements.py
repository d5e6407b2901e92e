"""The measurements of a composition's jobs as loads and flows, from an analysis. Pure.

Rates are propagated through the composition by topic: a job's input rate is what its producers send
(their own input rate times their selectivity), not what it consumes; so a job that lags shows its
real load. Figures without evidence (`speck.placement.evidence`) are not used, nor guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from speck.model.analysis_result import AnalysisResult
from speck.placement.evidence import (
    INSUFFICIENT,
    NOISE,
    QUEUE_FIT,
    doubt_cost,
    doubt_rates,
    measure_use,
)
from speck.placement.heaps import Heaps
from speck.placement.model import Flow, Kind, Load
from speck.placement.wiring import At, WiredJob, Wiring


def feeder_name_of(link: At) -> str:
    """The name of the load that represents the outside producers of a link."""
    return f"outside:{link.site}/{link.topic}"


def load_name_of(link: At) -> str:
    """The name of a link's load; no job's name contains a colon."""
    return f"topic:{link.site}/{link.topic}"


def locate(site: str | None, topic: str) -> At:
    """A link of an analysis; one whose site is not known is no link of a composition."""
    return At(site or "", topic)


class Measurements:
    """The analysis of the composition's jobs, and the link rates that follow from it."""

    def __init__(self, wiring: Wiring, composition: str, analysis: AnalysisResult, heaps: Heaps):
        self._wiring = wiring
        self._composition = composition
        self._heaps = heaps
        self._jobs = {job.job_name: job for job in analysis.jobs if job.composition == composition}
        self._outside_rates = _sum_outside_rates(composition, analysis)
        self._queues = _list_growing_queues(analysis)
        self._doubtful_links = {
            locate(link.broker_site, link.topic)
            for link in analysis.links
            if link.evidence == INSUFFICIENT
        }
        self._forecasts = _list_forecasts(analysis)
        self.rates: dict[At, float] = {}
        self._fed_rates: dict[At, float] = {}
        self._outputs: dict[str, float | None] = {}
        for job in wiring.order:
            rate = self._compute_rate(job.source)
            self._outputs[job.name] = self._compute_output(job, rate)
        for link in wiring.links:
            self._compute_rate(link)

    def doubts(self) -> dict[str, str]:
        """By job: why its figures are no evidence, so that it stays."""
        doubts = {}
        for job in self._wiring.jobs:
            doubt = None if job.stopped else doubt_cost(self._jobs.get(job.name))
            if doubt is not None:
                doubts[job.name] = doubt
        return doubts

    def uses_without_cost(self) -> Iterator[tuple[WiredJob, float | None]]:
        """Running jobs whose cost for a record is not known, with the reference core-seconds per
        second that each uses; None: not known either."""
        for job in self._wiring.jobs:
            report = self._jobs.get(job.name)
            if not job.stopped and self.load(job).work is None:
                yield job, measure_use(report)

    def load(self, job: WiredJob) -> Load:
        """The job as a load; without figures if it is stopped or its evidence is insufficient."""
        cost = self._figure_of(job, "reference_core_s_per_record")
        rate = self.rates.get(job.source)
        is_sufficient = not job.stopped and doubt_cost(self._jobs.get(job.name)) is None
        is_known = is_sufficient and cost is not None and rate is not None
        report = self._jobs.get(job.name)
        state = report.state_bytes if report else None
        return Load(
            name=job.name,
            core_s_per_record=cost if is_known else None,
            rate=rate if is_known else None,
            slots=job.slots,
            site=job.site,
            pinned=job.site if job.pinned else None,
            stateful=report.stateful if report else None,
            state_bytes=None if state is None else int(state),
            true_output_rate=report.trueOutputProcessingRate if report else None,
            memory_bytes=self._heaps.foresee(self._composition, job.name, job.slots),
        )

    def link_load(self, link: At) -> Load:
        """The link as a load, pinned if something outside the composition uses it."""
        is_movable = self._wiring.is_movable(link)
        return Load(
            name=load_name_of(link),
            kind=Kind.TOPIC,
            core_s_per_record=0.0,
            rate=self.rates.get(link, 0.0),
            slots=0,
            site=link.site,
            pinned=None if is_movable else link.site,
            stateful=False,
        )

    def feeders(self) -> list[Load]:
        """The outside producers of links, as loads."""
        return [
            Load(
                name=feeder_name_of(link),
                kind=Kind.END,
                core_s_per_record=0.0,
                rate=rate,
                slots=0,
                site=link.site,
                pinned=link.site,
                stateful=False,
            )
            for link, rate in sorted(self._fed_rates.items())
        ]

    def flows(self) -> tuple[list[Flow], list[tuple[str, str]]]:
        """Flows between jobs and links, and (start, end) of the unmeasured ones."""
        flows = [
            Flow(feeder_name_of(link), load_name_of(link), rate, 0.0)
            for link, rate in sorted(self._fed_rates.items())
        ]
        unmeasured: list[tuple[str, str]] = []
        for start, end, rate, size in self._list_ends():
            if rate is None or (size is None and rate > 0):
                unmeasured.append((start, end))
            else:
                flows.append(Flow(start, end, rate, rate * (size or 0.0)))
        return flows, unmeasured

    def _list_ends(self) -> Iterable[tuple[str, str, float | None, float | None]]:
        """(start, end, records per second, bytes per record) for each job's two ends."""
        for job in self._wiring.jobs:
            if job.stopped:
                continue
            source, sink = job.source, job.sink
            writers = self._wiring.writers.get(source, ())
            size = pick_known(
                self._mean_sent_bytes(source),
                self._figure_of(job, "bytes_in_per_record"),
                self._mean_bytes_of(writers, "out"),
            )
            yield load_name_of(source), job.name, self.rates.get(source), size
            readers = self._wiring.readers.get(sink, ())
            size = pick_known(
                self._figure_of(job, "bytes_out_per_record"), self._mean_bytes_of(readers, "in")
            )
            sent = None if sink in self._doubtful_links else self._outputs[job.name]
            yield job.name, load_name_of(sink), sent, size

    def _mean_sent_bytes(self, link: At) -> float | None:
        """The mean bytes per record of what a link's writers send together: each reader takes as
        many bytes as they send. None if one was not measured, or if outsiders send as well."""
        writers = [each for each in self._wiring.writers.get(link, ()) if not each.stopped]
        rates = [self._outputs[each.name] for each in writers]
        sizes = [self._figure_of(each, "bytes_out_per_record") for each in writers]
        if link in self._fed_rates or None in rates or None in sizes or not any(rates):
            return None
        sent = sum((rate or 0.0) * (size or 0.0) for rate, size in zip(rates, sizes, strict=True))
        return sent / sum(rate or 0.0 for rate in rates)

    def _mean_bytes_of(self, jobs: Iterable[WiredJob], side: str) -> float | None:
        """The mean bytes per record that these jobs measured at their end of a link."""
        sizes = [self._figure_of(job, f"bytes_{side}_per_record") for job in jobs]
        known_sizes = [size for size in sizes if size is not None]
        return sum(known_sizes) / len(known_sizes) if known_sizes else None

    def _compute_rate(self, link: At) -> float | None:
        """Compute a link's records per second, from those of its writers where they are known. None
        of a link without evidence: it was not measured, or its ends disagree."""
        if link in self._doubtful_links:
            return None
        writers = [w for w in self._wiring.writers.get(link, ()) if not w.stopped]
        sent_rates = [rate for w in writers if (rate := self._outputs.get(w.name)) is not None]
        taken_rates = [
            rate + self._queues.get((link, reader.name), 0.0)
            for reader in self._wiring.readers.get(link, ())
            if (rate := self._figure_of(reader, "in_rate")) is not None
        ]
        if len(sent_rates) < len(writers):  # the readers' rates are the best estimate
            if not taken_rates:
                return None
            self.rates[link] = max(sum(sent_rates), *taken_rates)
            return self.rates[link]
        outside = self._estimate_outside_rate(link, writers, taken_rates)
        if outside is None and not writers:
            return None
        if outside:
            self._fed_rates[link] = outside
        self.rates[link] = sum(sent_rates) + (outside or 0.0)
        return self.rates[link]

    def _estimate_outside_rate(
        self, link: At, writers: list[WiredJob], taken_rates: list[float]
    ) -> float | None:
        """Records per second that producers outside the composition send; None: unknown."""
        reported = self._outside_rates.get(link)
        if not writers:
            known_rates = [rate for rate in (reported, *taken_rates) if rate is not None]
            expected = self._forecasts.get(link)
            # rates are not planned to fall: what is there now has to be carried, too
            return max((*known_rates, expected or 0.0)) if known_rates else None
        if reported is not None or link not in self._wiring.fixed_links:
            return reported
        own_rate = sum(self._figure_of(writer, "out_rate") or 0.0 for writer in writers)
        excess = max(taken_rates, default=0.0) - own_rate
        return excess if excess > NOISE * own_rate else None

    def _compute_output(self, job: WiredJob, rate: float | None) -> float | None:
        selectivity = self._figure_of(job, "selectivity")
        if job.stopped:
            return 0.0
        if rate is None or selectivity is None:
            return self._figure_of(job, "out_rate")
        return rate * selectivity

    def _figure_of(self, job: WiredJob, name: str) -> float | None:
        """A figure of the job's rates or sizes; None without evidence."""
        report = self._jobs.get(job.name)
        figure: float | None = getattr(report, name, None)
        return None if doubt_rates(report) is not None else figure


def _sum_outside_rates(composition: str, analysis: AnalysisResult) -> dict[At, float]:
    """Records per second from producers outside speck, by link, where all of them report a rate."""
    rates: dict[At, float] = {}
    for link in analysis.links:
        sent = [each.records_per_s for each in link.producers if each.job_name is None]
        known = [rate for rate in sent if rate is not None]
        if sent and len(known) == len(sent):
            at, rate = locate(link.broker_site, link.topic), sum(known)
            rates[at] = max(rate, rates.get(at, 0.0))
    return rates


def _list_growing_queues(analysis: AnalysisResult) -> dict[tuple[At, str], float]:
    """Growth of growing queues in records per second, by link and reading job.

    The input rate of such a job is its consumption plus this growth.
    """
    growths: dict[tuple[At, str], float] = {}
    for link in analysis.links:
        at = locate(link.broker_site, link.topic)
        for reader in link.readers:
            growth, fit = reader.lag_per_s or 0.0, reader.lag_fit or 0.0
            if reader.job_name is not None and growth > 0 and fit >= QUEUE_FIT:
                growths[at, reader.job_name] = growth
    return growths


def _list_forecasts(analysis: AnalysisResult) -> dict[At, float]:
    """The upper bound of each link's forecast, in records per second; none without a forecast."""
    return {locate(each.site, each.topic): each.high for each in analysis.forecast or ()}


def pick_known(*values: float | None) -> float | None:
    """The first value that is not None."""
    return next((value for value in values if value is not None), None)
