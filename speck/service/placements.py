"""Placements: what a policy proposes for a composition, compared with the present one.

Nothing moves by itself: a placement is carried out by an ordinary apply of its revision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from speck.clock import Clock, rfc3339
from speck.errors import ConflictError, InvalidError, NotFoundError
from speck.model.accepted import Accepted
from speck.model.analysis import Analysis, AnalysisState
from speck.model.analysis_result import NOTHING_MEASURED, AnalysisResult
from speck.model.composition import CompositionDescription
from speck.model.site import Site
from speck.placement.comparison import compare
from speck.placement.consistency import Earlier
from speck.placement.model import Limits, Policy
from speck.placement.names import DEFAULT_POLICY
from speck.placement.places import Condition
from speck.placement.problem import Question, pose_question
from speck.placement.proposal import Wish, propose
from speck.placement.record import Manner, PlacementHead, PlacementRecord, ScaleOutline
from speck.placement.rendering import render, render_yaml
from speck.placement.scaling import apply_scales, propose_scales
from speck.placement.wiring import At, wire
from speck.service.composition_views import CompositionViews
from speck.service.compositions import ApplyRequest, Compositions
from speck.service.hosting import find_hosting
from speck.service.silences import measure_silences
from speck.sites.site_polls import SitePolls
from speck.store.records import Records

OLD_H = 1.0
"""From this age on (hours) a placement notes how old its analysis is."""


class AnalysisSource(Protocol):
    """Where measurements come from."""

    def get(self, analysis_id: str) -> Analysis:
        """An analysis. Raises NotFoundError."""

    def newest(self, composition: str) -> Analysis | None:
        """The newest analysis that is done and covers the composition."""

    def newest_fault(self, composition: str) -> str | None:
        """Why a newer one cannot be read; None without such a one."""

    def begin(self, window_s: float, ahead_s: float | None = None) -> str:
        """Start an analysis of the last seconds of all jobs (jobs that share a site with a
        composition count, too), with a forecast for `ahead_s`; returns its id. Raises
        SpeckError."""


WITHOUT_EVIDENCE = ("all-cloud",)
"""Policies that may place jobs that were not measured."""


class Placements:
    """Makes, keeps and applies placements."""

    def __init__(
        self,
        records: Records,
        compositions: Compositions,
        views: CompositionViews,
        polls: SitePolls,
        clock: Clock,
        analyses: AnalysisSource,
        horizon_s: float,
    ):
        """`horizon_s`: seconds within which a move has to pay for itself."""
        self._horizon_s = horizon_s
        self._records = records
        self._compositions = compositions
        self._views = views
        self._polls = polls
        self._clock = clock
        self.analyses = analyses

    # -- reading --------------------------------------------------------------------------

    def all(self, composition: str | None = None) -> list[PlacementHead]:
        """Heads of all placements, newest first."""
        return [
            each.head
            for each in self._records.placements.newest_first()
            if composition is None or each.composition == composition
        ]

    def get(self, placement_id: str) -> PlacementRecord:
        """A placement. Raises NotFoundError."""
        placement = self._records.placements.get(placement_id)
        if placement is None:
            raise NotFoundError(f"cannot find placement {placement_id!r}")
        return placement

    # -- making ---------------------------------------------------------------------------

    def make(
        self,
        composition: str,
        policy: str = DEFAULT_POLICY,
        analysis_id: str | None = None,
        limits: Mapping[str, float] | None = None,
        *,
        scale: bool = False,
        all_moves: bool = False,
        move_unmeasured: bool = False,
    ) -> PlacementRecord:
        """Have a policy place the newest revision of a composition, and store its answer; with
        `scale`, after each job has got as many subtasks as its rates need. `all_moves`: moves that
        do not pay for themselves are proposed, too. `move_unmeasured`: so are those of jobs that
        were not measured, and nothing need have been measured.

        Raises NotFoundError, InvalidError; ConflictError without an analysis.
        """
        if move_unmeasured and policy not in WITHOUT_EVIDENCE:
            raise InvalidError(
                f"cannot move unmeasured jobs by policy {policy}: it goes by measurements;"
                f" use {' or '.join(WITHOUT_EVIDENCE)}"
            )
        chosen = load_policy(policy)
        revision = self._views.revision(composition)
        description = self._views.description(composition, revision)
        analysis = self._analysis(composition, analysis_id, needed=not move_unmeasured)
        question_today, scales = None, []
        if scale:
            question_today = self.question(description, analysis, limits)
            scales = propose_scales(question_today, composition, _result(analysis))
            description = apply_scales(description, {s.job_name: s.proposed for s in scales})
        manner = Manner(composition, policy, scale, all_moves or move_unmeasured, move_unmeasured)
        proposal = propose(
            lambda staying: self.question(
                description, analysis, limits, staying, move_unmeasured=move_unmeasured
            ),
            Wish(chosen, all_moves or move_unmeasured),
            self._foreign(composition),
            self._list_earlier(manner),
        )
        now = self._clock.now()
        comparison = compare(
            question_today or proposal.question,
            proposal,
            composition,
            _result(analysis),
            _describe_age(analysis, now),
        )
        proposed = render(
            description, proposal.question.wiring, proposal.layout, self._records.sites.all()
        )
        placement = PlacementRecord(
            id=f"{int(now.timestamp() * 1000):012x}{self._clock.new_id()[:8]}",
            at=rfc3339(now),
            revision=revision,
            analysis=analysis.id if analysis is not None else None,
            manner=manner,
            comparison=comparison,
            scales=tuple(map(ScaleOutline.of, scales)),
            description=proposed,
            yaml=render_yaml(proposed),
        )
        self._records.write(self._records.placements.add(placement))
        return placement

    def question(
        self,
        description: CompositionDescription,
        analysis: Analysis | None,
        limits: Mapping[str, float] | None = None,
        staying: Collection[At] = (),
        *,
        move_unmeasured: bool = False,
    ) -> Question:
        """The placement problem as things are now; links in `staying` are not to move."""
        sites = self._records.sites.all()
        wiring = wire(description, sites, {*self._foreign(description.name), *staying})
        requirements = {**description.requirements, **(limits or {})}
        conditions = self._conditions(description.name, sites)
        bounds = replace(Limits(horizon_s=self._horizon_s), **requirements)
        return pose_question(
            wiring,
            description.name,
            _result(analysis),
            sites,
            conditions,
            bounds,
            self._others(description.name),
            measure_silences(self._records, analysis),
            moves_unmeasured=move_unmeasured,
            hosting=find_hosting(self._records, description.name),
        )

    def apply(self, placement_id: str, request: ApplyRequest) -> Accepted:
        """Apply it, if the composition is still at the revision that it was made for.

        Raises NotFoundError, StaleRevisionError, and what an apply raises.
        """
        placement = self.get(placement_id)
        return self._compositions.apply_placed(placement.description, placement.revision, request)

    def _list_earlier(self, manner: Manner) -> Iterator[Earlier]:
        """The placements that were made in this manner, newest first."""
        for placement in self._records.placements.newest_first():
            if placement.manner == manner:
                yield placement.as_earlier

    # -- parts ----------------------------------------------------------------------------

    def _analysis(
        self, composition: str, analysis_id: str | None, *, needed: bool
    ) -> Analysis | None:
        """The analysis to go by; None if there is none, and none is `needed`."""
        if analysis_id is None:
            newest = self.analyses.newest(composition)
            if newest is None and needed:
                fault = self.analyses.newest_fault(composition) or "nothing was measured of it yet"
                raise ConflictError(
                    f"cannot place composition {composition!r}: {fault};"
                    f" run `speck analyze {composition}` (POST /analyses)"
                )
            return newest
        analysis = self.analyses.get(analysis_id)
        is_done = analysis.state is AnalysisState.DONE
        if not is_done:
            raise ConflictError(
                f"cannot place by analysis {analysis_id!r}: it is {analysis.state};"
                f" run `speck analyze {composition}` (POST /analyses)"
            )
        if analysis.result is None:
            why = analysis.error or "its result is gone"
            raise ConflictError(
                f"cannot place by analysis {analysis_id!r}: {why}; run"
                f" `speck analyze {composition}` (POST /analyses)"
            )
        if analysis.composition not in (None, composition):
            raise ConflictError(
                f"cannot place composition {composition!r} by analysis {analysis_id!r}: it is of"
                f" composition {analysis.composition!r}"
            )
        return analysis

    def _foreign(self, composition: str) -> set[At]:
        """Links that jobs and readers outside the composition use."""
        links = set()
        for (scope, _), incarnation in self._records.incarnations.all().items():
            if scope != composition and not incarnation.ended:
                job = incarnation.job
                links |= {At(link.site, link.topic) for link in (job.source, *job.port)}
        for scope, session in self._records.sessions.all():
            if scope != composition:
                links.add(At(session.site, session.link.topic))
        return links

    def _others(self, composition: str) -> dict[str, str]:
        """The site of every job that runs and is not of the composition."""
        return {
            name: incarnation.job.site
            for (scope, name), incarnation in self._records.incarnations.all().items()
            if scope != composition and not incarnation.ended
        }

    def _conditions(self, composition: str, sites: Mapping[str, Site]) -> dict[str, Condition]:
        polls = self._polls.engines.poll(sites)
        held: dict[str, int] = {}
        for incarnation in self._records.inventory(composition).jobs.values():
            if not incarnation.ended:
                job = incarnation.job
                held[job.site] = held.get(job.site, 0) + job.parallelism
        conditions = {}
        for name in sites:
            poll = polls.get(name)
            view = poll.answer if poll else None
            calibration = self._records.sites.calibration(name)
            if view and view.slots:  # a lost or starting job holds none yet
                held[name] = min(held.get(name, 0), view.slots.total - view.slots.free)
            conditions[name] = Condition(
                answers=view is not None and not view.silent,
                free=view.slots.free if view and view.slots else None,
                held=held.get(name, 0),
                cores=calibration.cores if calibration else None,
                core_speed=calibration.core_speed if calibration else None,
            )
        return conditions


def load_policy(name: str) -> Policy:
    """The policy of that name, imported on first use: solvers are large."""
    from speck.placement.policies import find_policy

    return find_policy(name)


def _result(analysis: Analysis | None) -> AnalysisResult:
    """The result of an analysis, where something was measured."""
    return (analysis.result if analysis is not None else None) or NOTHING_MEASURED


def _describe_age(analysis: Analysis | None, now: datetime) -> tuple[str, ...]:
    """A note on the age of an analysis that is not fresh."""
    if analysis is None:
        return ()
    until = _result(analysis).window.until or analysis.ended
    if until is None:
        return ()
    hours = (now - datetime.fromisoformat(until)).total_seconds() / 3600
    if hours < OLD_H:
        return ()
    return (f"measured {hours:.0f} h ago: `speck advise` analyses anew",)
