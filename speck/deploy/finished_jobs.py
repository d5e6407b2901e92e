"""Finds jobs whose sources have ended. A job that somebody stopped at its engine looks the same in
a list of jobs, so the engine is asked, once for each.

Without I/O of its own except for that question; the caller stores the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from speck.errors import EngineRefusedError
from speck.model.incarnation import EndState, Incarnation, StartState
from speck.model.observation import EngineView, RunState
from speck.sites.connections import Connections


def finish(incarnation: Incarnation) -> Incarnation:
    """The incarnation once its sources have ended."""
    finished = replace(incarnation, start=StartState.CONFIRMED, base=None, commits=())
    return replace(finished, end=EndState.FINISHED)


def find_finished(
    connections: Connections, view: EngineView, incarnations: Iterable[Incarnation]
) -> list[Incarnation]:
    """Those of the incarnations at the site of `view` that have finished by themselves, unless that
    is stored. Raises TransientError if the engine does not answer."""
    finished = []
    for incarnation in incarnations:
        job = view.jobs.get(incarnation.engine_job_id)
        if job is None or job.state is not RunState.FINISHED or incarnation.ended:
            continue
        with suppress(EngineRefusedError):  # it has forgotten the job by now
            if connections.engine_of(incarnation.job.engine).has_finished(
                incarnation.engine_job_id
            ):
                finished.append(incarnation)
    return finished
