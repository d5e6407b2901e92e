"""How long jobs were silent when they moved, from the operations of past changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice

from speck.model.change import OperationState
from speck.model.values import JsonObject
from speck.placement.move_costs import Silences, summarise_silences
from speck.store.records import Records

CHANGES = 100
"""How many of the newest changes are looked at."""


def measure_silences(records: Records, analysis: JsonObject) -> Silences:
    """The expected silence of jobs that move, from the newest changes of all compositions. The
    analysis tells which jobs keep state."""
    stateful = {(job["composition"], job["job_name"]): job["stateful"] for job in analysis["jobs"]}
    newest = islice(reversed(list(records.changes())), CHANGES)
    return summarise_silences(
        (stateful.get((head["composition"], name)), seconds)
        for head in newest
        for name, seconds in _list_silences(records.operations(head["id"]))
    )


def _list_silences(operations: list[JsonObject]) -> Iterator[tuple[str, float]]:
    """The jobs that a change moved, and the seconds from the beginning of their stop to the end of
    their start at another site."""
    stops: dict[str, JsonObject] = {}
    for operation in operations:
        if operation["state"] != OperationState.DONE or operation["job_name"] is None:
            continue
        if operation["kind"] in ("stop", "cancel"):
            stops.setdefault(operation["job_name"], operation)
        elif operation["kind"] == "start":
            stop = stops.pop(operation["job_name"], None)
            if stop is not None and stop["site"] != operation["site"]:
                yield operation["job_name"], _seconds_between(stop, operation)


def _seconds_between(stop: Mapping[str, str], start: Mapping[str, str]) -> float:
    begun, ended = datetime.fromisoformat(stop["started"]), datetime.fromisoformat(start["ended"])
    return max(0.0, (ended - begun).total_seconds())
