"""The autopilot: analyses compositions on a schedule and applies good placements.

`speck.placement.autopilot.decide` decides what it does next; this module connects that to the
service. Its memory is stored before it acts, so that a restart neither forgets nor repeats a move.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Annotated

from speck.clock import Clock, rfc3339
from speck.deploy.changes import Running
from speck.deploy.locks import NamedLocks
from speck.errors import NotFoundError, SpeckError
from speck.model.analysis import Analysis, AnalysisState
from speck.model.shown import Shown
from speck.model.values import AUTOPILOT
from speck.periodic import PeriodicTask
from speck.placement.autopilot import (
    AutopilotDecision,
    Settings,
    decide,
)
from speck.placement.record import PlacementRecord
from speck.placement.scaling import count_subtasks
from speck.service.advice import advice_of, wan_of
from speck.service.autopilot_facts import Surroundings
from speck.service.composition_views import CompositionViews
from speck.service.compositions import ApplyRequest
from speck.service.placements import Placements, load_policy
from speck.sites.site_polls import SitePolls
from speck.store.autopilots import AutopilotRecord, LogEntry, LogKind, MoveCheck
from speck.store.records import Records

LOG = logging.getLogger(__name__)

LEAST_S = 60.0
"""An analysis covers at least this many seconds, unless `every_s` is shorter."""
CLOSE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AutopilotView(Settings):
    """An autopilot: its settings, the `analysis` that it waits for, when the next one begins, and
    the log of its decisions, newest last."""

    composition: str
    analysis: Annotated[str | None, Shown("id of the analysis under way")]
    next: Annotated[str | None, Shown("time of the next analysis, unless a change comes first")]
    log: tuple[LogEntry, ...]


class Autopilots:
    """The autopilots of all compositions for which they were switched on."""

    def __init__(
        self,
        records: Records,
        compositions: CompositionViews,
        placements: Placements,
        polls: SitePolls,
        clock: Clock,
        broken: Callable[[str], Iterable[str]],
        under_way: Callable[[], Iterable[Running]],
        tick_s: float = 1.0,
    ):
        """`broken` returns the names of a composition's unmet requirements, `under_way` all
        changes under way."""
        self._records = records
        self._stored = records.autopilots
        self._compositions = compositions
        self._placements = placements
        self._surroundings = Surroundings(records, polls, under_way)
        self._clock = clock
        self._broken = broken
        self._locks = NamedLocks()
        self._task = PeriodicTask(AUTOPILOT, self.run_round, tick_s, clock, waits_first=True)

    def start(self) -> None:
        """Start the rounds."""
        self._task.start()

    def close(self) -> None:
        """Start nothing more. A policy that is still searching is not waited for, and its answer
        is not applied."""
        self._task.stop(CLOSE_S)

    # -- use cases ------------------------------------------------------------------------

    def get(self, composition: str) -> AutopilotView:
        """Settings, the next step and the log, newest last. Raises NotFoundError."""
        self._compositions.revision(composition)
        return self._view(composition, self._stored.get(composition))

    def put(self, composition: str, settings: Settings, by: str | None = None) -> AutopilotView:
        """Switch it on or off, or change its settings. Raises NotFoundError."""
        self._compositions.revision(composition)
        if settings.on:
            load_policy(settings.policy)
        with self._locks[composition]:
            before = self._stored.get(composition)
            was_on = before.settings.on
            pilot = replace(
                before,
                settings=settings,
                analysis=before.analysis if settings.on else None,
                due=before.due if settings.on and was_on else None,
            )
            consequence = f"policy {settings.policy}" if settings.on else "running jobs stay as is"
            state = "on" if settings.on else "off"
            message = f"the autopilot of {composition} is {state}: {consequence}"
            switched = settings.on != was_on
            self._write(composition, pilot, "settings", message, as_event=switched, by=by)
        return self._view(composition, pilot)

    # -- one round -------------------------------------------------------------------------

    def run_round(self) -> None:
        """Take the step that is due for each composition; none while the store is `restored`."""
        if self._records.restored is not None:
            return
        for composition in self._stored.compositions():
            if not self._task.stopping.is_set():
                self._advance(composition)

    def _advance(self, composition: str) -> None:
        try:
            self._compositions.revision(composition)
        except NotFoundError:
            with self._locks[composition]:
                self._records.write(self._stored.drop(composition))
            return
        before = self._stored.get(composition)
        if not before.settings.on:
            return
        proposal, trouble = None, None
        try:  # outside the lock: whoever switches it off does not wait for a solver
            proposal = self._propose(composition, before)
        except Exception as error:
            trouble = _describe(error)
        if self._task.stopping.is_set():
            return
        with self._locks[composition]:
            pilot = self._stored.get(composition)
            same = (pilot.settings, pilot.analysis) == (before.settings, before.analysis)
            if not pilot.settings.on or not same:
                return
            try:
                if trouble is not None:
                    self._write(composition, replace(pilot, analysis=None), "trouble", trouble)
                elif proposal is not None:
                    self._consider(composition, replace(pilot, analysis=None), *proposal)
                elif pilot.analysis is None:
                    self._begin(composition, pilot)
            except Exception as error:
                after = replace(self._stored.get(composition), analysis=None)
                self._write(composition, after, "trouble", _describe(error))

    def _begin(self, composition: str, pilot: AutopilotRecord) -> None:
        """Start an analysis when one is due and the last change ended long enough ago: older
        measurements say little about the present wiring."""
        now, settings = self._now(), pilot.settings
        if pilot.due is not None and now < pilot.due <= now + settings.every_s:
            return
        busy, changed_at = self._surroundings.last_change(composition)
        if busy is not None and changed_at is None:
            return
        quiet_s = settings.every_s if changed_at is None else now - changed_at
        if quiet_s < min(settings.every_s, LEAST_S):
            return
        window_s = min(quiet_s, max(settings.every_s, LEAST_S))
        pilot = replace(pilot, due=now + settings.every_s)
        self._records.write(self._stored.put(composition, pilot))
        analysis = self._placements.analyses.begin(window_s, settings.ahead_s)
        self._records.write(self._stored.put(composition, replace(pilot, analysis=analysis)))

    def _propose(
        self, composition: str, pilot: AutopilotRecord
    ) -> tuple[Analysis, PlacementRecord | None] | None:
        """The analysis that it waits for, and the placement made from it (None when it failed);
        None while no analysis has ended."""
        if pilot.analysis is None:
            return None
        analysis = self._placements.analyses.get(pilot.analysis)
        if not analysis.state.over:
            return None
        if analysis.state is not AnalysisState.DONE:
            return analysis, None
        policy, scale = pilot.settings.policy, pilot.settings.scale
        return analysis, self._placements.make(composition, policy, analysis.id, scale=scale)

    def _consider(
        self,
        composition: str,
        pilot: AutopilotRecord,
        analysis: Analysis,
        placement: PlacementRecord | None,
    ) -> None:
        if placement is None:
            why = analysis.error or "it was cancelled"
            message = f"analysis {analysis.id} is {analysis.state}: {why}"
            self._write(composition, pilot, "trouble", message, analysis=analysis.id)
            return
        pilot = self._check(composition, pilot, analysis)
        advice = advice_of(placement, analysis, self._broken(composition))
        facts = self._surroundings.find_facts(composition, advice)
        decision = decide(self._now(), pilot.settings, pilot.memory, facts)
        pilot = replace(pilot, memory=decision.memory)
        if decision.act:
            self._act(composition, pilot, placement, analysis, decision)
        else:
            self._write(
                composition,
                pilot,
                "wait",
                decision.reason,
                analysis=analysis.id,
                placement=placement.id,
            )

    def _act(
        self,
        composition: str,
        pilot: AutopilotRecord,
        placement: PlacementRecord,
        analysis: Analysis,
        decision: AutopilotDecision,
    ) -> None:
        """Store that it acts, then act: a stop of the service in between costs a delay only."""
        proposed = placement.comparison.proposed
        moves = ", ".join(f"{move.job_name} to {move.target}" for move in proposed.moves)
        scaled = ", ".join(
            f"{each.job_name} to {count_subtasks(each.target)}" for each in placement.scaled
        )
        verbs = [f"moves {moves}"] if moves else []
        verbs += [f"scales {scaled}"] if scaled else []
        check = MoveCheck(
            placement=placement.id,
            revision=placement.revision,
            before=wan_of(analysis, composition),
            predicted=proposed.wan_bytes_per_s,
            at=self._now(),
        )
        self._records.write(self._stored.put(composition, replace(pilot, check=check)))
        try:
            accepted = self._placements.apply(placement.id, ApplyRequest(by=AUTOPILOT))
        except SpeckError:
            self._records.write(self._stored.put(composition, replace(pilot, check=None)))
            raise
        what = " and ".join(verbs) or "moves links"
        message = f"the autopilot {what} of {composition}: {decision.reason}"
        self._write(
            composition,
            replace(pilot, check=check),
            "act",
            message,
            as_event=True,
            analysis=analysis.id,
            placement=placement.id,
            change=accepted.change,
        )

    def _check(
        self, composition: str, pilot: AutopilotRecord, analysis: Analysis
    ) -> AutopilotRecord:
        """Report the outcome of the last move, from the first analysis of a window that lies
        wholly after it; returns the autopilot without what has been reported."""
        check = pilot.check
        if check is None:
            return pilot
        begun = analysis.result.window.since if analysis.result is not None else None
        if begun is None or datetime.fromisoformat(begun).timestamp() < check.at:
            return pilot
        pilot = replace(pilot, check=None)
        busy, _ = self._surroundings.last_change(composition)
        if busy is not None or self._compositions.revision(composition) != check.revision + 1:
            return pilot  # the move never began, failed, or was followed by another change
        measured = wan_of(analysis, composition)
        message = (
            f"between sites {composition} sent {_rate(check.before)} before it was moved;"
            f" {_rate(check.predicted)} was predicted, {_rate(measured)} was measured"
        )
        self._write(
            composition,
            pilot,
            "outcome",
            message,
            as_event=True,
            analysis=analysis.id,
            placement=check.placement,
        )
        return pilot

    # -- the record -----------------------------------------------------------------------

    def _write(
        self,
        composition: str,
        pilot: AutopilotRecord,
        kind: LogKind,
        message: str,
        *,
        as_event: bool = False,
        analysis: str | None = None,
        placement: str | None = None,
        change: str | None = None,
        by: str | None = None,
    ) -> None:
        """Store the record with one more log entry; `as_event`: as an event, too."""
        now = rfc3339(self._clock.now())
        entry = LogEntry(now, kind, message, analysis, placement, change, by)
        batches = [
            self._stored.put(composition, pilot),
            self._stored.add_to_log(composition, entry),
        ]
        if as_event:
            make = self._records.events.make
            batches.append(make(AUTOPILOT, message, composition=composition, change=change))
        self._records.write(*batches)

    def _view(self, composition: str, pilot: AutopilotRecord) -> AutopilotView:
        settings = pilot.settings
        return AutopilotView(
            **{each.name: getattr(settings, each.name) for each in fields(settings)},
            composition=composition,
            analysis=pilot.analysis,
            next=_moment(pilot.due) if pilot.due is not None and settings.on else None,
            log=self._stored.log(composition),
        )

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _describe(error: Exception) -> str:
    """The message of an error, one of speck's own included: it would recur every second."""
    if isinstance(error, SpeckError):
        return str(error)
    LOG.error("a round of the autopilot failed", exc_info=error)
    return f"cannot analyse it: {type(error).__name__}: {error}; the service's log has more"


def _rate(bytes_per_s: float | None) -> str:
    return "an unknown amount" if bytes_per_s is None else f"{bytes_per_s:.0f} B/s"


def _moment(at: float) -> str:
    return rfc3339(datetime.fromtimestamp(at, UTC))
