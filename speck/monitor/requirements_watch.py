"""Watches what compositions require; an event says when one is not kept, and when it is again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from speck.clock import Clock
from speck.model.incarnation import Incarnation
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.monitor.requirements import Judged, Seen, Stage, judge
from speck.periodic import PeriodicTask
from speck.placement.problem import LATENCY as LABEL
from speck.store.records import Records
from speck.store.tables import Batch

EVERY_S = 5.0
STANDS_S = 60.0
"""What waited at every look of so long waits in truth, and not only for a checkpoint."""
LOOKS = 3
"""So many looks in a row must say the same before it is told."""


class Requirements:
    """Judges every composition that requires something, by what the collector saw last."""

    def __init__(
        self, records: Records, clock: Clock, measured: Callable[[Incarnation], JsonObject]
    ):
        """`measured`: see `speck.metrics.sampler.Sampler.rate_job`."""
        self._records = records
        self._clock = clock
        self._measured = measured
        self._lags: dict[str, deque[tuple[float, int]]] = {}
        self._judged: dict[str, list[Judged]] = {}
        self._polls: dict[tuple[str, str], int] = {}
        self._task = PeriodicTask("requirements", self.poll, EVERY_S, clock, waits_first=True)

    def start(self) -> None:
        """Begin to look."""
        self._task.start()

    def close(self) -> None:
        """Look no more."""
        self._task.stop()

    def of(self, composition: str, required: Mapping[str, float]) -> list[JsonObject]:
        """`{name, wanted, measured, ok, why}` of each, by the last look."""
        known = {judged.name: judged for judged in self._judged.get(composition, ())}
        shown = []
        for name, wanted in sorted(required.items()):
            judged = known.get(name)
            if judged is None or judged.wanted != wanted:
                judged = Judged(name, wanted, None, None, "not looked at yet")
            shown.append(judged.to_json())
        return shown

    def broken(self, composition: str) -> list[str]:
        """The names of those that have not been kept for a while."""
        record = self._records.requirements.get(composition)
        return sorted(record["broken"]) if record else []

    # -- one look -------------------------------------------------------------------------

    def poll(self) -> None:
        """Judge all compositions once."""
        sites, all_incarnations = self._records.sites(), self._records.all_incarnations()
        running: dict[str, list[Incarnation]] = {}
        for (scope, _), deployed in all_incarnations.items():
            if not deployed.ended:
                running.setdefault(scope, []).append(deployed)
        alive = {each.engine_job_id for some in running.values() for each in some}
        self._lags = {key: lags for key, lags in self._lags.items() if key in alive}
        judged = {}
        for head in self._records.heads.values():
            name, required = head["name"], self._required(head)
            if required:
                judged[name] = self._judge(required, running.get(name, []), sites)
            self._tell(name, judged.get(name, []))
        self._judged = judged

    def _required(self, head: JsonObject) -> Mapping[str, float]:
        if head.get("deleted"):
            return {}
        record = self._records.revisions.get(head["name"], head["revision"])
        found: Mapping[str, float] = record["description"].get("requirements", {}) if record else {}
        return found

    def _judge(
        self, required: Mapping[str, float], running: list[Incarnation], sites: Mapping[str, Site]
    ) -> list[Judged]:
        latency = {name: float(site.labels.get(LABEL, 0.0)) for name, site in sites.items()}
        stages, seen = [], {}
        for deployed in running:
            job = deployed.job
            ends = [end for end in (job.source_site, job.sink_site) if end != job.site]
            network = sum(latency.get(job.site, 0.0) + latency.get(end, 0.0) for end in ends)
            stages.append(Stage(job.job_name, str(job.source), str(job.sink), network))
            seen[job.job_name] = self._seen(deployed)
        return judge(required, stages, seen)

    def _seen(self, deployed: Incarnation) -> Seen:
        told = self._measured(deployed)
        now = self._clock.monotonic()
        lags = self._lags.setdefault(deployed.engine_job_id, deque())
        if told["lag"] is None:
            lags.clear()
        else:
            lags.append((now, told["lag"]))
        while len(lags) > 1 and lags[1][0] <= now - STANDS_S:
            lags.popleft()
        whole = bool(lags) and lags[0][0] <= now - STANDS_S
        waiting = min(lag for _, lag in lags) if whole else 0 if _none(lags) else None
        shares = [task["busy"] for task in told["tasks"]]
        work = None if None in shares else sum(shares)
        return Seen(told["in_rate"], told["busy"], told["back_pressured"], waiting, work or None)

    def _tell(self, composition: str, judged: list[Judged]) -> None:
        """An event for what is not kept, once, and one when it is kept again."""
        before = set(self.broken(composition))
        after, batches = set(before), list[Batch]()
        named = {each.name: each for each in judged}
        for name in sorted(before | named.keys()):
            each = named.get(name)
            amiss = each is not None and each.ok is False
            if amiss == (name in before) or (each is not None and each.unknown):
                self._polls.pop((composition, name), None)
                continue
            polls = self._polls.get((composition, name), 0) + 1
            self._polls[composition, name] = polls
            if each is not None and polls < LOOKS:
                continue
            del self._polls[composition, name]
            after ^= {name}
            message = _words(composition, name, each)
            batches.append(self._records.event("requirement", message, composition=composition))
        if batches:
            record: JsonObject | None = {"broken": sorted(after)} if after else None
            self._records.write({self._records.requirements.key(composition): record}, *batches)


def _none(lags: deque[tuple[float, int]]) -> bool:
    """Whether nothing waited at some look: then nothing stands."""
    return any(lag == 0 for _, lag in lags)


def _words(composition: str, name: str, judged: Judged | None) -> str:
    if judged is None:
        return f"{composition} does not require {name} any more"
    found = "unknown" if judged.measured is None else f"{judged.measured:.4g}"
    if judged.ok is False:
        return (
            f"{composition} does not keep {name} {judged.wanted:g}:"
            f" {found} was measured; {judged.why}"
        )
    if judged.ok is None:
        return (
            f"{composition} is not seen to miss {name} {judged.wanted:g} any more:"
            f" {found} was measured; {judged.why}"
        )
    return f"{composition} keeps {name} {judged.wanted:g} again: {found} was measured"
