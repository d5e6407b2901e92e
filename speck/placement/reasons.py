"""One row for each job of a placement: its figures, and why it is placed where it is. Pure.

`speck advise`, `place` and `offload`, the autopilot and the API all show these rows. Figures stand
in fields of their own and not in the sentences, so that a sentence which holds for several jobs can
be shown once (`speck.placement.sentences.fold`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from speck.model.analysis_result import AnalysedJob, AnalysisResult, RankedJob
from speck.model.shown import Shown
from speck.placement.differences import explain_difference
from speck.placement.figures import describe_duration
from speck.placement.filling import Filling
from speck.placement.instance import CLOUD, Instance
from speck.placement.model import Candidate, Load
from speck.placement.move_costs import LEAST_STATEFUL
from speck.placement.proposal import Proposal
from speck.placement.sentences import LOW, explain_low_confidence


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """One job: where it is, where it is to be, what that saves compared with the site
    `compared_with`, what its move costs, and why.

    `saved_bytes_per_s` says how many more bytes would cross between sites if this job alone were at
    `compared_with`: where it is today if it moves, else the cloud, else the edge that the ranking
    suggests. None: there is nothing to compare, or no evidence.
    """

    job_name: str
    site: Annotated[str, Shown("where it is today")]
    proposed: Annotated[str, Shown("site")]
    saved_bytes_per_s: Annotated[
        float | None,
        Shown("bytes per second between sites that are saved compared with `compared_with`"),
    ]
    compared_with: Annotated[str | None, Shown("site")]
    cost_bytes: Annotated[
        float | None,
        Shown("what its move costs once: its state, and what arrives while it is silent"),
    ]
    break_even_s: Annotated[
        float | None, Shown("seconds after which the move has saved what it costs")
    ]
    confidence: Annotated[str | None, Shown("high, medium or low; null: there is no evidence")]
    why: Annotated[tuple[str, ...], Shown("the reasons, without the figures above")]


def describe_jobs(
    proposal: Proposal, composition: str, analysis: AnalysisResult
) -> list[PlacedJob]:
    """A row for each job of the question, which are of the composition."""
    question, answer = proposal.question, proposal.answer
    reports = {each.job_name: each for each in analysis.jobs if each.composition == composition}
    ranking = {each.job_name: each for each in analysis.ranking if each.composition == composition}
    calibrated = frozenset(each.name for each in analysis.sites if each.core_speed is not None)
    filling = Filling(Instance(question.problem), {**answer.sites, **proposal.layout.jobs})
    candidates = {each.name: each for each in question.problem.ranking}
    return [
        _Job(
            filling,
            filling.instance.loads[job.name],
            job.site,
            candidates.get(job.name),
            reports.get(job.name),
            ranking.get(job.name),
            calibrated,
            proposal,
        ).describe()
        for job in question.wiring.jobs
    ]


@dataclass(frozen=True, slots=True)
class _Job:
    filling: Filling
    load: Load
    today: str
    candidate: Candidate | None
    report: AnalysedJob | None
    ranked: RankedJob | None
    calibrated: frozenset[str]
    proposal: Proposal

    def describe(self) -> PlacedJob:
        compared = self._choose_comparison()
        saved = None if compared is None else self._count_saved(compared)
        is_moved = self.today != self.site
        cost = self.filling.instance.move_bytes_of(self.load.name) if is_moved else None
        return PlacedJob(
            job_name=self.load.name,
            site=self.today,
            proposed=self.site,
            saved_bytes_per_s=saved,
            compared_with=compared,
            cost_bytes=cost,
            break_even_s=cost / saved if cost is not None and saved and saved > 0 else None,
            confidence=self._confidence(),
            why=tuple(dict.fromkeys(self._explain(saved))),
        )

    @property
    def site(self) -> str:
        return self.filling.sites[self.load.name]

    def _confidence(self) -> str | None:
        """That of the ranking; one without an edge of its own has none there."""
        if self.report is None or self.load.name in self.proposal.question.doubts:
            return None
        is_ranked = self.ranked is not None and self.ranked.score is not None
        return self.ranked.confidence if self.ranked and is_ranked else self.report.confidence

    def _choose_comparison(self) -> str | None:
        instance, here = self.filling.instance, self.site
        if self.load.work is None or self.load.name in self.proposal.question.doubts:
            return None
        if here != self.today:
            return self.today if self.today in instance.places else None
        if instance.places[here].tier != CLOUD:
            return instance.clouds[0].name if instance.clouds else None
        edge = self.candidate.edge if self.candidate else None
        return edge if edge in instance.places else None

    def _count_saved(self, compared: str) -> float:
        cost_of, name = self.filling.cost_of, self.load.name
        return cost_of(name, compared) - cost_of(name, self.site)

    # -- why --------------------------------------------------------------------------------

    def _explain(self, saved: float | None) -> Iterator[str]:
        if self.today != self.site:
            yield self._explain_move(saved)
        else:
            yield from self._explain_stay(saved)
        if self.report is not None and self._confidence() == LOW:
            is_calibrated = self.ranked is None or self.ranked.edge in self.calibrated
            why = explain_low_confidence(
                self.report.contended, self.report.spread, is_calibrated=is_calibrated
            )
            yield f"low confidence: {why}"

    def _explain_move(self, saved: float | None) -> str:
        if saved is not None and saved > 0:
            return f"at {self.site} fewer bytes cross between sites than at {self.today}"
        if self.proposal.question.doubts.get(self.load.name):
            return "it moves though it was not measured, as was asked for"
        return (
            "it saves nothing by itself: it moves with others, or since a limit is exceeded today"
        )

    def _explain_stay(self, saved: float | None) -> Iterator[str]:
        name, question, instance = self.load.name, self.proposal.question, self.filling.instance
        doubt = question.doubts.get(name)
        if self.today in question.silent:
            yield f"it stays: {self.today} does not answer"
        elif doubt is not None:
            yield f"it stays, for lack of evidence: {doubt}"
        elif name in self.proposal.answer.dropped:
            yield self._explain_dropped()
        elif (difference := self._explain_difference()) is not None:
            yield difference
        elif name in instance.fixed_sites:
            yield f"it stays: {instance.why[name]}"
        elif instance.places[self.site].tier != CLOUD and saved is not None and saved > 0:
            yield f"at {self.site} fewer bytes cross between sites than in the cloud"
        elif self.candidate is not None and self.candidate.against:
            yield self.candidate.against[0]

    def _explain_dropped(self) -> str:
        horizon = describe_duration(self.proposal.question.problem.limits.horizon_s)
        sentence = f"a move would not save what it costs within {horizon}"
        if self.load.stateful is False:
            return sentence
        may = "keeps" if self.load.stateful else "may keep"
        return f"{sentence}, or less than {LEAST_STATEFUL:.0f} bytes/s: the job {may} state"

    def _explain_difference(self) -> str | None:
        if self.candidate is None:
            return None
        edge = self.candidate.suggested_site
        if edge in self.proposal.question.silent and edge != self.site:
            return f"the ranking suggests {edge}, but {edge} does not answer"
        return explain_difference(self.filling, self.candidate, self.proposal.answer.policy)
