"""How long jobs were silent when they moved, from the operations of past changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from speck.model.analysis import Analysis
from speck.model.plan_outline import OperationOutcome, OperationState
from speck.placement.move_costs import Silences, summarise_silences
from speck.store.records import Records

CHANGES = 100
"""How many of the newest changes are looked at."""


def measure_silences(records: Records, analysis: Analysis | None) -> Silences:
    """The expected silence of jobs that move, from the newest changes of all compositions. The
    analysis tells which jobs keep state."""
    jobs = analysis.result.jobs if analysis is not None and analysis.result is not None else ()
    stateful = {(job.composition, job.job_name): job.stateful for job in jobs}
    newest = islice(reversed(list(records.changes.heads())), CHANGES)
    return summarise_silences(
        (stateful.get((head.composition, name)), seconds)
        for head in newest
        for name, seconds in _list_silences(records.changes.operations(head.id))
    )


def _list_silences(operations: list[OperationOutcome]) -> Iterator[tuple[str, float]]:
    """The jobs that a change moved, and the seconds from the beginning of their stop to the end of
    their start at another site."""
    stops: dict[str, OperationOutcome] = {}
    for operation in operations:
        name = operation.job_name
        if operation.state is not OperationState.DONE or name is None:
            continue
        if operation.kind in ("stop", "cancel"):
            stops.setdefault(name, operation)
        elif operation.kind == "start":
            stop = stops.pop(name, None)
            if stop is not None and stop.site != operation.site:
                yield name, _seconds_between(stop.started, operation.ended)


def _seconds_between(started: str | None, ended: str | None) -> float:
    if started is None or ended is None:
        return 0.0
    seconds = datetime.fromisoformat(ended) - datetime.fromisoformat(started)
    return max(0.0, seconds.total_seconds())
