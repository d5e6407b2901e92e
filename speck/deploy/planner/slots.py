"""Which stops free the slots that starts wait for."""

from __future__ import annotations

from collections import defaultdict, deque

from speck.deploy.planner.decisions import Decision
from speck.deploy.planner.steps import Stopped
from speck.deploy.planner.wiring import Wiring
from speck.model.engines import EngineAt


def find_slot_waits(wiring: Wiring, stopped: Stopped) -> dict[str, list[int]]:
    """The stops at a site that must come before a start there because no slot is free for it, by
    job.

    Starts take free slots in order of name; a start whose own stop frees slots at the same site
    needs no others. Those on an engine beside the site's own take none.
    """
    beside = _list_beside(wiring)
    freeing: dict[str, deque[tuple[int, int]]] = defaultdict(deque)
    for decision in wiring.decisions:
        stop = stopped.of.get(decision.job_name)
        if stop is not None and decision.old and not _in_place(decision):
            old = decision.old.job
            if old.engine in beside:
                continue
            freeing[old.site].append((stop, old.parallelism))
    engines = wiring.situation.observation.engines
    budgets = {site: view.slots.free for site, view in engines.items() if view.slots}
    waits: dict[str, list[int]] = defaultdict(list)
    for decision in wiring.decisions:
        if not decision.starts or decision.new is None or decision.new.site not in budgets:
            continue
        if decision.new.engine in beside:
            continue
        site = decision.new.site
        budgets[site] -= decision.new.parallelism - _count_slots_freed_in_place(decision)
        while budgets[site] < 0 and freeing[site]:
            stop, slots = freeing[site].popleft()
            budgets[site] += slots
            waits[decision.job_name].append(stop)
    return dict(waits)


def _list_beside(wiring: Wiring) -> set[EngineAt]:
    engines = wiring.situation.observation.engines
    return {EngineAt(site, kind) for site, view in engines.items() for kind in view.beside}


def _in_place(decision: Decision) -> bool:
    return bool(
        decision.starts
        and decision.old
        and decision.new
        and decision.old.job.site == decision.new.site
    )


def _count_slots_freed_in_place(decision: Decision) -> int:
    if not decision.stops or not _in_place(decision) or decision.old is None:
        return 0
    return decision.old.job.parallelism
