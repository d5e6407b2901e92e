"""Watches the requirements of compositions; events report when one is missed, and when it is kept
again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from speck.clock import Clock
from speck.model.composition import Head
from speck.model.incarnation import Incarnation
from speck.model.job_rates import JobRates
from speck.model.site import Site
from speck.monitor.requirements import JobMeasurement, Stage, Verdict, judge_requirements
from speck.periodic import PeriodicTask
from speck.placement.places import LATENCY as LABEL
from speck.store.records import Records
from speck.store.tables import Batch

EVERY_S = 5.0
STANDS_S = 60.0
"""Messages that wait at every poll for this long really wait, and not only for a checkpoint."""
AGREEING_POLLS = 3
"""This many consecutive polls must agree before an event is written."""


class Requirements:
    """Judges every composition with requirements by the collector's latest measurements."""

    def __init__(self, records: Records, clock: Clock, measured: Callable[[Incarnation], JobRates]):
        """`measured`: see `speck.metrics.sampler.Sampler.rate_job`."""
        self._records = records
        self._clock = clock
        self._measure = measured
        self._lags: dict[str, deque[tuple[float, int]]] = {}
        self._verdicts: dict[str, list[Verdict]] = {}
        self._read: dict[str, tuple[int, Mapping[str, float]]] = {}
        """The requirements of the newest revision of each composition, which is read once."""
        self._polls: dict[tuple[str, str], int] = {}
        self._task = PeriodicTask("requirements", self.poll, EVERY_S, clock, waits_first=True)

    def start(self) -> None:
        """Begin to poll."""
        self._task.start()

    def close(self) -> None:
        """Stop polling."""
        self._task.stop()

    def of(self, composition: str, requirements: Mapping[str, float]) -> list[Verdict]:
        """What is known of each requirement, by the last poll."""
        verdicts = {verdict.name: verdict for verdict in self._verdicts.get(composition, ())}
        current = []
        for name, bound in sorted(requirements.items()):
            verdict = verdicts.get(name)
            if verdict is None or verdict.wanted != bound:
                verdict = Verdict(name, bound, None, None, "not judged yet")
            current.append(verdict)
        return current

    def broken(self, composition: str) -> list[str]:
        """The names of the requirements that have been missed for a while."""
        return list(self._records.compositions.broken_requirements(composition))

    # -- one poll -------------------------------------------------------------------------

    def poll(self) -> None:
        """Judge all compositions once."""
        sites, all_incarnations = self._records.sites.all(), self._records.incarnations.all()
        running: dict[str, list[Incarnation]] = {}
        for (scope, _), incarnation in all_incarnations.items():
            if not incarnation.ended:
                running.setdefault(scope, []).append(incarnation)
        alive = {each.engine_job_id for some in running.values() for each in some}
        self._lags = {key: lags for key, lags in self._lags.items() if key in alive}
        verdicts = {}
        for head in self._records.compositions.last_heads():
            name, requirements = head.name, self._read_requirements(head)
            if requirements:
                verdicts[name] = self._judge(requirements, running.get(name, []), sites)
            self._report(name, verdicts.get(name, []))
        self._verdicts = verdicts

    def _read_requirements(self, head: Head) -> Mapping[str, float]:
        if head.deleted:
            return {}
        name, revision = head.name, head.revision
        known = self._read.get(name)
        if known is None or known[0] != revision:
            stored = self._records.compositions.revision(name, revision)
            requirements = stored.description.requirements if stored is not None else {}
            known = self._read[name] = revision, requirements
        return known[1]

    def _judge(
        self,
        requirements: Mapping[str, float],
        running: list[Incarnation],
        sites: Mapping[str, Site],
    ) -> list[Verdict]:
        latency = {name: float(site.labels.get(LABEL, 0.0)) for name, site in sites.items()}
        stages, measurements = [], {}
        for incarnation in running:
            job = incarnation.job
            here = latency.get(job.site, 0.0)
            ways = {end: here + latency.get(end, 0.0) for end in job.link_sites if end != job.site}
            taking = ways.get(job.source_site, 0.0)
            sending = max((ways.get(link.site, 0.0) for link in job.port), default=0.0)
            port = tuple(map(str, job.port))
            stages.append(Stage(job.job_name, str(job.source), port, taking + sending))
            measurements[job.job_name] = self._measure_job(incarnation)
        return judge_requirements(requirements, stages, measurements)

    def _measure_job(self, incarnation: Incarnation) -> JobMeasurement:
        measured = self._measure(incarnation)
        now = self._clock.monotonic()
        lags = self._lags.setdefault(incarnation.engine_job_id, deque())
        if measured.lag is None:
            lags.clear()
        else:
            lags.append((now, measured.lag))
        while len(lags) > 1 and lags[1][0] <= now - STANDS_S:
            lags.popleft()
        whole = bool(lags) and lags[0][0] <= now - STANDS_S
        waiting = min(lag for _, lag in lags) if whole else 0 if _is_ever_empty(lags) else None
        shares = [task.busy for task in measured.tasks if task.busy is not None]
        work = sum(shares) if len(shares) == len(measured.tasks) else None
        return JobMeasurement(
            measured.in_rate, measured.busy, measured.back_pressured, waiting, work or None
        )

    def _report(self, composition: str, verdicts: list[Verdict]) -> None:
        """Write an event for each requirement that is missed, once, and one when it is kept
        again."""
        before = set(self.broken(composition))
        after, batches = set(before), list[Batch]()
        verdict_of = {each.name: each for each in verdicts}
        for name in sorted(before | verdict_of.keys()):
            each = verdict_of.get(name)
            is_broken = each is not None and each.ok is False
            if is_broken == (name in before) or (each is not None and each.unknown):
                self._polls.pop((composition, name), None)
                continue
            polls = self._polls.get((composition, name), 0) + 1
            self._polls[composition, name] = polls
            if each is not None and polls < AGREEING_POLLS:
                continue
            del self._polls[composition, name]
            after ^= {name}
            message = _describe(composition, name, each)
            batches.append(
                self._records.events.make("requirement", message, composition=composition)
            )
        if batches:
            broken = self._records.compositions.put_broken_requirements(composition, after)
            self._records.write(broken, *batches)


def _is_ever_empty(lags: deque[tuple[float, int]]) -> bool:
    """Whether no message waited at some poll: then there is no lasting queue."""
    return any(lag == 0 for _, lag in lags)


def _describe(composition: str, name: str, verdict: Verdict | None) -> str:
    if verdict is None:
        return f"{composition} does not require {name} any more"
    measured = "unknown" if verdict.measured is None else f"{verdict.measured:.4g}"
    if verdict.ok is False:
        return (
            f"{composition} does not keep {name} {verdict.wanted:g}:"
            f" {measured} was measured; {verdict.why}"
        )
    if verdict.ok is None:
        return (
            f"{composition} is not seen to miss {name} {verdict.wanted:g} any more:"
            f" {measured} was measured; {verdict.why}"
        )
    return f"{composition} keeps {name} {verdict.wanted:g} again: {measured} was measured"
