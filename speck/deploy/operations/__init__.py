"""Carries out each kind of operation: store the intent, make one binder call, return the outcome.

No decision is made here; the plan made them. A handler returns a `Done` with what to store, or a
`Waiting` with the condition on the engine's jobs that ends the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from types import MappingProxyType

from speck.binding import Artifact, StateKeeper
from speck.clock import Clock
from speck.deploy.capabilities import forget_sinks
from speck.deploy.locks import SessionLocks
from speck.deploy.operations import ending, links, starting
from speck.deploy.operations.beginnings import record_forms
from speck.deploy.operations.catching_up import catch_up, switch
from speck.deploy.operations.comparing import compare_trial
from speck.deploy.operations.context import Context, hiding
from speck.deploy.operations.draining import Draining
from speck.deploy.operations.fencing import fence
from speck.deploy.operations.gathering import Gathering
from speck.deploy.operations.outcome import Done, Outcome, Patience, Waiting
from speck.deploy.operations.own_brokers import OwnBrokers
from speck.deploy.operations.refilling import (
    Refills,
    find_neighbours,
    publishes_at_checkpoints,
)
from speck.deploy.operations.resend_run import ResendRun
from speck.deploy.operations.resending import Resends
from speck.deploy.operations.returning import come_back
from speck.deploy.operations.shared_views import SharedViews
from speck.deploy.operations.state_transfer import carry
from speck.deploy.operations.stopping import Stopping
from speck.deploy.scheduler import THREADS, Scheduler
from speck.errors import TransientError
from speck.model.change import OperationKey
from speck.model.engines import EngineAt
from speck.model.job_operations import (
    Cancel,
    Carry,
    CatchUp,
    Fence,
    Forget,
    Return,
    Start,
    Stop,
    Switch,
    TryMain,
    Upload,
)
from speck.model.link_operations import Clear, Drain, HandOver, Release, Reserve
from speck.model.plan import Limited, Operation
from speck.sites.connections import Connections
from speck.sites.identities import Identities
from speck.store.records import Records

__all__ = [
    "Done",
    "Operations",
    "Outcome",
    "Patience",
    "Refills",
    "ResendRun",
    "Resends",
    "Waiting",
]


class Operations:
    """Carries out operations of one scope's plan."""

    def __init__(
        self,
        connections: Connections,
        records: Records,
        clock: Clock,
        scope: str,
        artifact: Callable[[str], Artifact],
        patience: Patience,
        keeper: StateKeeper,
        refills: Refills,
        resends: Resends,
        identities: Identities,
        begun_before: Mapping[OperationKey, str] = MappingProxyType({}),
        scheduler: Scheduler = THREADS,
        session_locks: SessionLocks | None = None,
    ):
        """`begun_before`: when (RFC 3339) operations that earlier plans of the same change have not
        ended were begun first. What has a limit has it from then on."""
        self._own_brokers = OwnBrokers(connections, identities, clock, scheduler)
        self._context = Context(
            connections,
            records,
            clock,
            scope,
            artifact,
            patience,
            keeper,
            refills,
            resends,
            SharedViews(self._own_brokers.view, scheduler),
            Gathering(lambda site, sinks: forget_sinks(connections, site, sinks), scheduler),
            session_locks or SessionLocks(scheduler),
        )
        self._first_tried: dict[Operation, float] = {}
        self._begun_before = begun_before

    def begin(self, operations: Iterable[Operation]) -> None:
        """Prepare for the operations of a plan: what waits for readers that have not begun is for
        them as they are to run now; jobs that publish at checkpoints do so in quick succession
        before they restart, and so do their neighbours."""
        plan, context = list(operations), self._context
        stopping = {each.job_name for each in plan if isinstance(each, Stop)}
        starts = [each for each in plan if isinstance(each, Start)]
        record_forms(context, starts)
        restarts = {each.job_name for each in starts if publishes_at_checkpoints(each.job)}
        if restarts & stopping:
            running = context.records.inventory(context.scope).jobs.values()
            for incarnation in find_neighbours(restarts & stopping, running):
                context.refills.begin(incarnation)

    def carry_out(self, operation: Operation) -> Outcome:
        """Carry out an operation. Raises TransientError if it may be retried, PermanentError if
        not. One with a limit is given up after that: it is not kept from ending by a site that does
        not answer."""
        if not isinstance(operation, Limited) or operation.limit_s is None:
            return self._carry_out(operation)
        now = self._context.clock.monotonic
        began = self._first_tried.setdefault(operation, now() - self._find_elapsed(operation))
        try:
            return self._carry_out(operation)
        except TransientError as error:
            if now() - began < operation.limit_s:
                raise
            return self._give_up(operation, str(error))

    def storing(self, outcomes: Iterable[Done]) -> AbstractContextManager[None]:
        """Held while these are stored: who has read the record of a session that one of them
        writes, and is about to write it, does so before."""
        return self._context.writing.all_of(name for each in outcomes for name in each.sessions)

    def _find_elapsed(self, operation: Limited) -> float:
        """Seconds since an earlier plan of the change began this operation, and did not end it."""
        key = (operation.kind, operation.job_name, operation.site)
        began = self._begun_before.get(key)
        if began is None:
            return 0.0
        elapsed = self._context.clock.now() - datetime.fromisoformat(began)
        return max(0.0, elapsed.total_seconds())

    def _give_up(self, operation: Limited, why: str) -> Outcome:
        context = self._context
        match operation:
            case Drain():
                return self._drain(operation).give_up(why)
            case Release():
                return links.give_up_release(context, operation, why)
            case Forget():
                return links.give_up_forgetting(context, operation)
            case Clear():
                return Done()

    def _drain(self, operation: Drain) -> Draining:
        began = self._first_tried.get(operation, self._context.clock.monotonic())
        return Draining(operation, self._context, began)

    def _carry_out(self, operation: Operation) -> Outcome:
        self._own_brokers.check(operation)
        context = self._context
        match operation:
            case Upload():
                return self._upload(operation)
            case TryMain():
                return self._try(operation)
            case Reserve():
                return links.reserve(context, operation)
            case HandOver():
                return links.hand_over(context, operation)
            case Drain():
                return self._drain(operation).poll()
            case Stop():
                return Stopping(context, operation).begin()
            case Cancel():
                return ending.cancel(context, operation)
            case Fence():
                return fence(context, operation)
            case Carry():
                return carry(context, operation)
            case CatchUp():
                return catch_up(context, operation)
            case Switch():
                return switch(context, operation)
            case Start():
                return starting.start(context, operation)
            case Return():
                return come_back(context, operation)
            case Release():
                return links.release(context, operation)
            case Forget():
                return links.forget(context, operation)
            case Clear():
                return links.clear(context, operation)

    def _upload(self, operation: Upload) -> Outcome:
        artifact = self._context.artifact(operation.artifact)
        engine = self._context.connections.engine_of(EngineAt(operation.site, artifact.kind))
        engine.upload(artifact)
        return Done()

    def _try(self, operation: TryMain) -> Outcome:
        secrets = self._context.read_secrets(operation.job)
        submission = self._context.submission(operation, True, None, secrets)
        with hiding(secrets):
            trial = self._context.connections.engine_of(operation.job.engine).try_main(submission)
        return Done(compare_trial(self._context, operation.job, trial))
