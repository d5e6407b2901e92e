"""Resumes interrupted changes: each is planned again from the current observation.

A change is planned again after a restart of the service, when a blocked one has to do more, and
when its plan was not the last stage of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from speck.clock import Clock
from speck.deploy.changes.ledger import ChangeLedger
from speck.deploy.changes.registry import Changes, Running
from speck.deploy.scheduler import THREADS, Scheduler
from speck.model.change import Change, ChangeState
from speck.model.plan import Plan
from speck.model.site import Site

PLANS_AT_ONCE = 4
"""How many interrupted changes are planned again at the same time."""


class Planner(Protocol):
    """Makes another plan for a change that was accepted before."""

    def plan_anew(self, change: Change) -> tuple[Plan, Mapping[str, Site]]:
        """The new plan, and the sites registered when it was made. Raises SpeckError."""


class ChangeRecovery:
    """Finds the changes that a stop of the service interrupted, and plans changes again."""

    def __init__(
        self,
        changes: Changes,
        ledger: ChangeLedger,
        planner: Planner,
        clock: Clock,
        scheduler: Scheduler = THREADS,
    ):
        self._changes = changes
        self._ledger = ledger
        self._planner = planner
        self._clock = clock
        self._scheduler = scheduler
        self._room = scheduler.semaphore(PLANS_AT_ONCE)

    def take_up(self) -> list[Running]:
        """Register the interrupted changes as under way and return them, to be continued. Each
        keeps its id; one with a stored request to end is ended instead."""
        wishes = self._ledger.find_wishes_to_end()
        resumed_changes = []
        for change in self._ledger.find_cut_short():
            scope = change.composition
            if change.id in wishes or self._changes.under_way(scope) is not None:
                change.state = ChangeState.CANCELLED
                self._ledger.end(change)
                continue
            self._ledger.record_cut_short(change)
            running = Running(change, scope, self._clock, scheduler=self._scheduler)
            self._changes.add_cut_short(running)
            resumed_changes.append(running)
        self._ledger.drop_wishes(wishes)
        return resumed_changes

    def check(self, change: Change) -> None:
        """Raises SpeckError when no plan can be made for a change now."""
        self._planner.plan_anew(change)

    def plan_anew(self, change: Change) -> Mapping[str, Site]:
        """Plan a change again. Returns the sites registered when the plan was made. Raises
        SpeckError."""
        with self._room:
            plan, sites = self._planner.plan_anew(change)
        change.go_on(plan)
        change.state = ChangeState.RUNNING
        return sites
