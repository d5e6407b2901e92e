"""Jobs and sites as users see them, by the store and the board."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from speck.model.composition import visible_name
from speck.model.incarnation import Incarnation
from speck.model.job import JobDescription
from speck.model.job_state import JobState
from speck.model.observation import EngineView
from speck.model.shown import Shown
from speck.model.site import AgentReport, Calibration, Site
from speck.monitor.board import Board
from speck.monitor.job_states import JobStates, JudgedJob
from speck.sites.poll_cache import Poll
from speck.sites.site_polls import SitePolls
from speck.store.records import Records


@dataclass(frozen=True, slots=True)
class JobView:
    """A job of a revision of a composition (None: posted alone), with its state."""

    description: Annotated[JobDescription, Shown(hidden=True)]
    composition: Annotated[str | None, Shown("null for a job posted alone")]
    revision: int | None
    site: Annotated[str | None, Shown("where it runs or will run")]
    state: Annotated[JobState, Shown("the observed state")]
    polled_at: Annotated[
        str | None,
        Shown("when the engine that has it was last polled; what a change brought about is newer"),
    ] = field(compare=False)
    engine_job_id: str | None
    attempt: Annotated[int | None, Shown("numbers the incarnations")]
    error: str | None
    failures: Annotated[
        int, Shown("how often it has failed, if it is in a crash loop; otherwise 0")
    ]
    records_left_out: Annotated[
        int,
        Shown(
            "how many records it has left out since the service started: no broker would take them"
        ),
    ]
    records_lost: Annotated[
        int,
        Shown("how many records it has lost since the service started, as its settings allow"),
    ]
    sessions_lost: Annotated[
        int,
        Shown(
            "how many sessions of its source brokers have lost since the service started: messages"
            " of publishers that do not send them again may be lost"
        ),
    ]

    @property
    def job_name(self) -> str:
        return self.description.job_name

    def is_in_state(self, state: str | None) -> bool:
        """Whether it is to be listed for a state (None: any): a job that keeps failing is among
        the failed ones."""
        states = ("failed", "restarting") if state == "failed" else (state,)
        return state is None or self.state in states


class SiteState(StrEnum):
    UP = "up"
    DEGRADED = "degraded"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SlotCounts:
    total: int | None
    free: int | None


@dataclass(frozen=True, slots=True)
class SiteView:
    """A site as it was polled last, and as its agent reported it."""

    site: Annotated[Site, Shown(hidden=True)]
    state: SiteState
    polled_at: Annotated[
        str | None, Shown("when its engine was last polled; null: not since the service started")
    ] = field(compare=False)
    error: Annotated[str | None, Shown("why its engine or broker does not answer")]
    slots: SlotCounts
    engine_version: str | None
    last_seen: Annotated[str | None, Shown("when the site's agent last reported")]
    agent: Annotated[AgentReport | None, Shown("its last report, as far as it knows its machine")]
    calibration: Calibration | None
    messages_lost: Annotated[int, Shown("known losses at its broker since the service started")]

    @property
    def name(self) -> str:
        return self.site.name


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
    ) -> list[JobView]:
        """Each job of a composition, and what is still being removed; `only` some names."""
        judged = self._states.of(descriptions, composition, last_change, only)
        return [self._job(each, composition, revision) for each in judged]

    def _job(self, job: JudgedJob, composition: str, revision: int) -> JobView:
        incarnation, status = job.incarnation, job.status
        losses = self._board.losses(job.description.job_name)
        return JobView(
            description=job.description,
            composition=visible_name(composition),
            revision=revision,
            site=job.site,
            state=status.state,
            polled_at=self._polled_at(incarnation),
            engine_job_id=incarnation.engine_job_id if incarnation else None,
            attempt=incarnation.attempt if incarnation else None,
            error=status.reason,
            failures=status.failures,
            records_left_out=losses.records_left_out,
            records_lost=losses.records_lost,
            sessions_lost=losses.sessions_lost,
        )

    def _polled_at(self, incarnation: Incarnation | None) -> str | None:
        if incarnation is None or incarnation.ended:
            return None
        poll = self._polls.engines.last(incarnation.job.site)
        return poll.at if poll is not None else None

    def count_states(
        self,
        descriptions: Mapping[str, JobDescription],
        composition: str,
        last_change: str | None,
    ) -> Counter[JobState]:
        """How many of the jobs that `jobs` would list are in each state."""
        judged = self._states.of(descriptions, composition, last_change)
        return Counter(job.status.state for job in judged)

    def site(self, site: Site) -> SiteView:
        """A site by its last polls."""
        engine = self._polls.engines.last(site.name)
        return self._site(site, engine, self._polls.last_of_broker(site.name))

    def unpolled_site(self, site: Site) -> SiteView:
        """A site in state unknown."""
        return self._site(site, None, None)

    def _site(
        self, site: Site, engine: Poll[EngineView] | None, broker: Poll[object] | None
    ) -> SiteView:
        view = engine.answer if engine else None
        report = self._records.sites.report(site.name)
        slots = view.slots if view else None
        return SiteView(
            site=site,
            state=_site_state(engine, broker),
            polled_at=engine.at if engine is not None else None,
            error=_site_error(engine, broker),
            slots=SlotCounts(slots.total if slots else None, slots.free if slots else None),
            engine_version=view.version if view else None,
            last_seen=report.at if report else None,
            agent=report.body if report is not None else None,
            calibration=self._records.sites.calibration(site.name),
            messages_lost=self._board.messages_lost(site.name),
        )


def _site_state(engine: Poll[EngineView] | None, broker: Poll[object] | None) -> SiteState:
    if engine is None or broker is None:
        return SiteState.UNKNOWN
    answers = [poll.answer is not None for poll in (engine, broker)]
    if all(answers) and not _find_silence(engine):
        return SiteState.UP
    return SiteState.DEGRADED if any(answers) else SiteState.UNREACHABLE


def _site_error(engine: Poll[EngineView] | None, broker: Poll[object] | None) -> str | None:
    """The errors of the parts that do not answer."""
    polls = {"engine": engine, "broker": broker}
    errors = [f"{part}: {poll.error}" for part, poll in polls.items() if poll and poll.error]
    silence = _find_silence(engine)
    return "; ".join([*errors, *([f"engine: {silence}"] if silence else [])]) or None


def _find_silence(engine: Poll[EngineView] | None) -> str | None:
    """Why one of a site's two engines does not answer, while the other does."""
    return engine.answer.silence if engine is not None and engine.answer is not None else None
