"""Renders jobs and sites as the API shows them, from the store and the board."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from speck.model.composition import visible_name
from speck.model.job import JobDescription
from speck.model.job_state import JobState
from speck.model.observation import EngineView
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.monitor.board import Board
from speck.monitor.job_states import JobStates, JudgedJob
from speck.sites.poll_cache import Poll
from speck.sites.site_polls import SitePolls
from speck.spec.schema import dump_job
from speck.spec.site_schema import dump_site
from speck.store.records import Records


def is_in_state(job: JsonObject, state: str | None) -> bool:
    """Whether a rendered job is to be listed for a state (None: any): a job that keeps failing is
    among the failed ones."""
    states = ("failed", "restarting") if state == "failed" else (state,)
    return state is None or job["state"] in states


class StatusViews:
    """Asks no site."""

    def __init__(self, records: Records, states: JobStates, polls: SitePolls, board: Board):
        self._records = records
        self._states = states
        self._polls = polls
        self._board = board

    def jobs(
        self,
        descriptions: Mapping[str, JobDescription],
        composition: str,
        revision: int,
        *,
        last_change: str | None = None,
        only: Collection[str] | None = None,
    ) -> list[JsonObject]:
        """The Job shape of each job of a composition, and of what is still being removed; `only`
        of some names."""
        judged = self._states.of(descriptions, composition, last_change, only)
        return [self._job(each, composition, revision) for each in judged]

    def _job(self, job: JudgedJob, composition: str, revision: int) -> JsonObject:
        incarnation, status = job.incarnation, job.status
        return {
            **dump_job(job.description),
            "composition": visible_name(composition),
            "revision": revision,
            "site": job.site,
            "state": status.state,
            "engine_job_id": incarnation.engine_job_id if incarnation else None,
            "attempt": incarnation.attempt if incarnation else None,
            "error": status.reason,
            "failures": status.failures,
            **asdict(self._board.losses(job.description.job_name)),
        }

    def count_states(
        self,
        descriptions: Mapping[str, JobDescription],
        composition: str,
        last_change: str | None,
    ) -> Counter[JobState]:
        """How many of the jobs that `jobs` would list are in each state."""
        judged = self._states.of(descriptions, composition, last_change)
        return Counter(job.status.state for job in judged)

    def site(self, site: Site) -> JsonObject:
        """The Site shape."""
        engine = self._polls.engines.last(site.name)
        return self._site(site, engine, self._polls.last_of_broker(site.name))

    def unpolled_site(self, site: Site) -> JsonObject:
        """The Site shape of a site in state unknown."""
        return self._site(site, None, None)

    def _site(
        self, site: Site, engine: Poll[EngineView] | None, broker: Poll[Any] | None
    ) -> JsonObject:
        view = engine.answer if engine else None
        report = self._records.sites.report(site.name)
        slots = view.slots if view else None
        return {
            **dump_site(site),
            "state": _site_state(engine, broker),
            "error": _site_error(engine, broker),
            "slots": {
                "total": slots.total if slots else None,
                "free": slots.free if slots else None,
            },
            "engine_version": view.version if view else None,
            "last_seen": report.at if report else None,
            "messages_lost": self._board.messages_lost(site.name),
        }


def _site_state(engine: Poll[EngineView] | None, broker: Poll[Any] | None) -> str:
    if engine is None or broker is None:
        return "unknown"
    answers = [poll.answer is not None for poll in (engine, broker)]
    return "up" if all(answers) else "degraded" if any(answers) else "unreachable"


def _site_error(engine: Poll[EngineView] | None, broker: Poll[Any] | None) -> str | None:
    """The errors of the parts that do not answer."""
    polls = {"engine": engine, "broker": broker}
    errors = [f"{part}: {poll.error}" for part, poll in polls.items() if poll and poll.error]
    return "; ".join(errors) or None
