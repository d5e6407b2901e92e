"""Placements: what a policy proposes for a composition, compared with the present one.

Nothing moves by itself: a placement is carried out by an ordinary apply of its revision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from speck.clock import Clock, rfc3339
from speck.errors import ConflictError, InvalidError, NotFoundError
from speck.model.composition import CompositionDescription
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.placement.model import Limits, Policy
from speck.placement.names import DEFAULT_POLICY
from speck.placement.places import Condition
from speck.placement.problem import Question, pose_question
from speck.placement.proposal import Wish, propose
from speck.placement.rendering import render, render_yaml
from speck.placement.scaling import apply_scales, propose_scales
from speck.placement.wiring import At, wire
from speck.service.answer import Answer
from speck.service.comparison import compare, render_scale
from speck.service.compositions import ApplyRequest, Compositions
from speck.service.silences import measure_silences
from speck.sites.site_polls import SitePolls
from speck.spec.schema import composition_as_stored, dump_composition
from speck.store.records import Records
from speck.store.tables import Batch

KEPT = 100
"""How many placements are kept."""
OLD_H = 1.0
"""From this age on (hours) a placement notes how old its analysis is."""

_HEAD = ("id", "at", "composition", "revision", "policy", "analysis", "gain", "violations")


class Analyses(Protocol):
    """Where measurements come from."""

    def get(self, analysis_id: str) -> JsonObject:
        """An analysis. Raises NotFoundError."""

    def newest(self, composition: str) -> JsonObject | None:
        """The newest analysis that is done and covers the composition."""

    def begin(self, window_s: float, ahead_s: float | None = None) -> str:
        """Start an analysis of the last seconds of all jobs (jobs that share a site with a
        composition count, too), with a forecast for `ahead_s`; returns its id. Raises
        SpeckError."""


WITHOUT_EVIDENCE = ("all-cloud",)
"""Policies that may place jobs that were not measured."""
_NOTHING_MEASURED: JsonObject = {
    "id": None,
    "window": {"to": None, "seconds": 0.0},
    "ended": None,
    **{name: [] for name in ("jobs", "links", "sites", "ranking")},
}


class Placements:
    """Makes, keeps and applies placements."""

    def __init__(
        self,
        records: Records,
        compositions: Compositions,
        polls: SitePolls,
        clock: Clock,
        analyses: Analyses,
        horizon_s: float,
    ):
        """`horizon_s`: seconds within which a move has to pay for itself."""
        self._horizon_s = horizon_s
        self._records = records
        self._compositions = compositions
        self._polls = polls
        self._clock = clock
        self.analyses = analyses

    # -- reading --------------------------------------------------------------------------

    def all(self, composition: str | None = None) -> list[JsonObject]:
        """Heads of all placements, newest first."""
        records = list(self._records.placements.values())
        return [
            {name: record[name] for name in _HEAD}
            for record in reversed(records)
            if composition is None or record["composition"] == composition
        ]

    def get(self, placement_id: str) -> JsonObject:
        """A placement. Raises NotFoundError."""
        record = self._records.placements.get(placement_id)
        if record is None:
            raise NotFoundError(f"cannot find placement {placement_id!r}")
        placement: JsonObject = record
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
    ) -> Answer:
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
        revision = self._compositions.revision(composition)
        stored = self._compositions.description(composition, revision)
        description = composition_as_stored(stored)
        analysis = self._analysis(composition, analysis_id, needed=not move_unmeasured)
        question_today, scales = None, []
        if scale:
            question_today = self.question(description, analysis, limits)
            scales = propose_scales(question_today, composition, analysis)
            description = apply_scales(description, {s.job_name: s.proposed for s in scales})
        manner = {
            "composition": composition,
            "policy": policy,
            "scale": scale,
            "all_moves": all_moves or move_unmeasured,
            "move_unmeasured": move_unmeasured,
        }
        proposal = propose(
            lambda staying: self.question(
                description, analysis, limits, staying, move_unmeasured=move_unmeasured
            ),
            Wish(chosen, all_moves or move_unmeasured),
            self._foreign(composition),
            self._list_earlier(manner),
        )
        wiring, layout = proposal.question.wiring, proposal.layout
        new_description = render(description, wiring, layout, self._records.sites())
        now = self._clock.now()
        notes = _describe_age(analysis, now)
        placement = {
            "id": f"{int(now.timestamp() * 1000):012x}{self._clock.new_id()[:8]}",
            "at": rfc3339(now),
            "revision": revision,
            "analysis": analysis["id"],
            **manner,
            **compare(
                question_today or proposal.question,
                proposal,
                _index_reports(composition, analysis),
                notes,
            ),
            "scales": [render_scale(each) for each in scales],
            "description": dump_composition(new_description),
            "yaml": render_yaml(new_description),
        }
        self._records.write(
            {self._records.placements.key(placement["id"]): placement, **self._drop_oldest()}
        )
        return Answer(201, placement, f"/placements/{placement['id']}")

    def question(
        self,
        description: CompositionDescription,
        analysis: JsonObject,
        limits: Mapping[str, float] | None = None,
        staying: Collection[At] = (),
        *,
        move_unmeasured: bool = False,
    ) -> Question:
        """The placement problem as things are now; links in `staying` are not to move."""
        sites = self._records.sites()
        wiring = wire(description, sites, {*self._foreign(description.name), *staying})
        requirements: dict[str, Any] = {**description.requirements, **(limits or {})}
        conditions = self._conditions(description.name, sites)
        bounds = replace(Limits(horizon_s=self._horizon_s), **requirements)
        return pose_question(
            wiring,
            description.name,
            analysis,
            sites,
            conditions,
            bounds,
            self._others(description.name),
            measure_silences(self._records, analysis),
            moves_unmeasured=move_unmeasured,
        )

    def apply(self, placement_id: str, request: ApplyRequest) -> Answer:
        """Apply it, if the composition is still at the revision that it was made for.

        Raises NotFoundError, StaleRevisionError, and what an apply raises.
        """
        placement = self.get(placement_id)
        description = composition_as_stored(placement["description"])
        jars = self._compositions.jars(placement["composition"], placement["revision"])
        conditional = replace(request, if_match=placement["revision"])
        return self._compositions.apply(description, conditional, jars)

    def _list_earlier(self, manner: JsonObject) -> Iterator[JsonObject]:
        """The placements that were made in this manner, newest first."""
        for record in reversed(list(self._records.placements.values())):
            if all(record[name] == value for name, value in manner.items()):
                yield record

    # -- parts ----------------------------------------------------------------------------

    def _analysis(self, composition: str, analysis_id: str | None, *, needed: bool) -> JsonObject:
        if analysis_id is None:
            newest = self.analyses.newest(composition)
            if newest is None and not needed:
                return _NOTHING_MEASURED
            if newest is None:
                raise ConflictError(
                    f"cannot place composition {composition!r}: nothing was measured of it yet;"
                    f" run `speck analyze {composition}` (POST /analyses)"
                )
            return newest
        analysis = self.analyses.get(analysis_id)
        if analysis["state"] != "done":
            raise ConflictError(
                f"cannot place by analysis {analysis_id!r}: it is {analysis['state']};"
                f" run `speck analyze {composition}` (POST /analyses)"
            )
        if "jobs" not in analysis:
            raise ConflictError(
                f"cannot place by analysis {analysis_id!r}: its result is gone; run"
                f" `speck analyze {composition}` (POST /analyses)"
            )
        if analysis["composition"] not in (None, composition):
            raise ConflictError(
                f"cannot place composition {composition!r} by analysis {analysis_id!r}: it is of"
                f" composition {analysis['composition']!r}"
            )
        return analysis

    def _foreign(self, composition: str) -> set[At]:
        """Links that jobs and readers outside the composition use."""
        links = set()
        for (scope, _), incarnation in self._records.all_incarnations().items():
            if scope != composition and not incarnation.ended:
                job = incarnation.job
                links.add(At(job.source_site, job.source.topic))
                links.add(At(job.sink_site, job.sink.topic))
        for scope, session in self._records.all_sessions():
            if scope != composition:
                links.add(At(session.site, session.link.topic))
        return links

    def _others(self, composition: str) -> dict[str, str]:
        """The site of every job that runs and is not of the composition."""
        return {
            name: incarnation.job.site
            for (scope, name), incarnation in self._records.all_incarnations().items()
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
            calibration = self._records.calibrations.get(name) or {}
            if view and view.slots:  # a lost or starting job holds none yet
                held[name] = min(held.get(name, 0), view.slots.total - view.slots.free)
            conditions[name] = Condition(
                answers=view is not None,
                free=view.slots.free if view and view.slots else None,
                held=held.get(name, 0),
                cores=calibration.get("cores"),
                core_speed=calibration.get("core_speed"),
            )
        return conditions

    def _drop_oldest(self) -> Batch:
        placements = self._records.placements
        ids = [placement_id for placement_id, _ in placements.items()]
        return {placements.key(each): None for each in ids[: max(0, len(ids) - KEPT + 1)]}


def load_policy(name: str) -> Policy:
    """The policy of that name, imported on first use: solvers are large."""
    from speck.placement.policies import find_policy

    return find_policy(name)


def _index_reports(composition: str, analysis: JsonObject) -> dict[str, JsonObject]:
    """What the analysis says of each job of the composition, with its row in the ranking."""
    core_speeds = {site["name"]: site["core_speed"] for site in analysis["sites"]}
    ranking = {
        row["job_name"]: {**row, "uncalibrated": core_speeds.get(row["edge"]) is None}
        for row in analysis["ranking"]
        if row["composition"] == composition
    }
    return {
        job["job_name"]: {**job, "ranking": ranking.get(job["job_name"])}
        for job in analysis["jobs"]
        if job["composition"] == composition
    }


def _describe_age(analysis: JsonObject, now: datetime) -> tuple[str, ...]:
    """A note on the age of an analysis that is not fresh."""
    until = analysis["window"]["to"] or analysis["ended"]
    if until is None:
        return ()
    hours = (now - datetime.fromisoformat(until)).total_seconds() / 3600
    if hours < OLD_H:
        return ()
    return (f"measured {hours:.0f} h ago: `speck advise` analyses anew",)
