"""How a reader empties the link that it leaves."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace

from speck.errors import PermanentError, SpeckError, UnreachableError
from speck.inventory import Session
from speck.observed import BrokerView, RunState, Sent
from speck.operations.connecting import source_connected
from speck.operations.context import Context
from speck.operations.outcome import Done, Outcome, Waiting
from speck.plan import Drain
from speck.records import Batch


@dataclass(slots=True)
class Draining:
    """Waits until a reader has taken what was sent to the link that it leaves.

    It has when the numbers say so. They cannot where the reader came after messages were sent,
    has lost its memory, or a producer tells none. Then it has when it completes checkpoints and
    takes nothing for `drain_quiet_s`: it acknowledges at checkpoints, and the broker sends what
    waits. With the last numbers taken it need not last: a session delivers in order.

    One that is followed has to take all that was published before its follower's session was
    there. The producers' numbers are a little older than that: it has when each of them has
    reported once more and that was taken, too, or when all is taken that had come at the second
    checkpoint that it reports from then on (the first may have begun before). The latter is
    enough, too, for what was sent at most once: what it has missed never comes.
    """

    operation: Drain
    context: Context
    owed: dict[tuple[str, int], int] | None = None
    stale: dict[str, Sent | None] = field(default_factory=dict)
    reports: list[int] = field(default_factory=list)
    least: int | None = None
    since: float = 0.0
    looked: float = 0.0
    asked: float = 0.0
    triggered: float = float("-inf")
    messages: int = 0
    checkpoint: int | None = None
    quiet: int = 0
    quietest: int = 0
    quiet_since: float = 0.0

    def look(self) -> Outcome:
        """Look once. Raises PermanentError when for `drain_idle_s` nothing has come nearer."""
        operation = self.operation
        # Asked before the numbers, which so are not older than the checkpoint.
        checkpoint = None if self.least is None else self._checkpoint()
        view = self.context.connections.broker(operation.site).view()
        self.looked = self.context.clock.monotonic()
        lag = view.untaken(operation.client_id, self._owed(view))
        # Without a number a sink of ours never sent anything; of another's nothing is known.
        known = all(view.sent_to(operation.link.topic, sink) for sink in operation.silent)
        has_taken = lag == 0 and known and not (self.stale or operation.fed_outside)
        if has_taken or self._has_caught_up(view) or self._is_quiet(checkpoint, view):
            return Done(self._note({}))
        if self.least is None or lag < self.least:
            self.least, self.since = lag, self.looked
        self._see_it_run()
        self._ask_for_checkpoint()
        if self.looked - self.since > self.context.patience.drain_idle_s:
            what = f"{lag} messages and takes no more" if known else "what nobody counts"
            raise PermanentError(
                f"cannot drain {operation.site}/{operation.link.topic}: {operation.job_name}"
                f" has not taken {what}; see `speck job {operation.job_name}`"
            )
        return Waiting(
            None,
            lambda _: (
                self.context.clock.monotonic() - self.looked >= self.context.patience.drain_poll_s
            ),
            self.look,
            float("inf"),
            lambda: "",
            may_be_left=True,
        )

    def _ask_for_checkpoint(self) -> None:
        """Its report comes with the next checkpoint: whoever waits for it need not wait so long."""
        operation = self.operation
        if self.looked - self.triggered >= _CHECKPOINT_S:
            self.triggered = self.looked
            with suppress(SpeckError):  # they come by themselves, too
                self.context.connections.engine(operation.reader_site).checkpoint(
                    operation.engine_job_id
                )

    def _see_it_run(self) -> None:
        """Raise PermanentError when the reader, which comes no nearer, does not run any more, and
        UnreachableError when its engine does not say."""
        operation, patience = self.operation, self.context.patience
        if self.looked - max(self.since, self.asked) <= patience.drain_ask_s:
            return
        self.asked = self.looked
        state = self.context.connections.engine(operation.reader_site).status(
            operation.engine_job_id
        )
        if state is None or state.terminal:
            what = state or f"not known to {operation.reader_site} any more"
            raise PermanentError(
                f"cannot drain {operation.site}/{operation.link.topic}: {operation.job_name} is"
                f" {what}; apply again"
            )

    def _owed(self, view: BrokerView) -> dict[tuple[str, int], int]:
        """The last numbers to wait for; written down, since they may be told no more later."""
        first = self.owed is None
        if self.owed is None:
            session = self._session()
            self.owed = {(p, e): n for p, e, n in session.owed} if session else {}
        operation = self.operation
        for sink in operation.sinks:
            self._owe(view.sent_to(operation.link.topic, sink))
        for sink in operation.going_on if first else tuple(self.stale):
            sent = view.sent_to(operation.link.topic, sink)
            if first and operation.followed:
                self.stale[sink] = sent
            elif not first and sent == self.stale[sink]:
                continue
            else:
                self.stale.pop(sink, None)
            self._owe(sent)
        if first and view.untaken(self.operation.client_id, self.owed):
            self.context.records.write(self._note(self.owed))
        return self.owed

    def _owe(self, sent: Sent | None) -> None:
        if self.owed is not None and sent is not None:
            key = (sent.producer, sent.epoch)
            self.owed[key] = max(sent.number, self.owed.get(key, 0))

    def _has_caught_up(self, view: BrokerView) -> bool:
        """Whether it has taken all that had come at the second checkpoint that it reported."""
        seen = view.taken.get(self.operation.client_id)
        if seen is None or not (self.operation.followed or self.operation.lossy):
            return False
        if seen.checkpoint not in self.reports:
            self.reports.append(seen.checkpoint)
        return len(self.reports) > _REPORTS and (seen.caught_up or 0) >= self.reports[_REPORTS]

    def _note(self, owed: dict[tuple[str, int], int]) -> Batch:
        session = self._session()
        told = tuple((p, e, n) for (p, e), n in sorted(owed.items()))
        if session is None or session.owed == told:
            return {}
        return self.context.records.put_session(self.context.scope, replace(session, owed=told))

    def _session(self) -> Session | None:
        return self.context.records.session(
            self.context.scope, self.operation.client_id, self.operation.site
        )

    def _is_quiet(self, checkpoint: int | None, view: BrokerView) -> bool:
        """Whether the reader has completed enough checkpoints one after the other since it
        told to have taken anything. Ids are not counted: they number failed ones too."""
        seen = view.taken.get(self.operation.client_id)
        messages = seen.messages if seen else 0
        if checkpoint is None or self.checkpoint is None or messages != self.messages:
            self.quiet, self.checkpoint, self.messages = 0, checkpoint, messages
            self.quiet_since = self.looked
            return False
        if checkpoint != self.checkpoint:
            self.quiet, self.checkpoint = self.quiet + 1, checkpoint
            if self.quiet > self.quietest:
                self.quietest, self.since = self.quiet, self.looked
        if self.quiet < _QUIET_CHECKPOINTS:
            return False
        if self.owed and view.has_last(self.operation.client_id, self.owed):
            return True  # a hole below is none of the link, or was lost before
        return self.looked - self.quiet_since >= self.context.patience.drain_quiet_s

    def _checkpoint(self) -> int | None:
        """The reader's newest checkpoint; None unless it runs and is connected."""
        job_id = self.operation.engine_job_id
        try:
            engine = self.context.connections.engine(self.operation.reader_site)
            if engine.status(job_id) is not RunState.RUNNING:
                return None
            found = engine.newest_state(job_id)
            if found is None:
                return None
            is_new = found.checkpoint_id != self.checkpoint
            if is_new and not source_connected(engine.metrics(job_id)):
                return None
            return found.checkpoint_id
        except UnreachableError:
            if self.operation.followed:  # it cannot be stopped either: this waits for its site
                raise
            return None
        except SpeckError:
            return None


_REPORTS = 2

_CHECKPOINT_S = 0.15

_QUIET_CHECKPOINTS = 3
"""The first may have begun before the producers had stopped; the second has not; at the third,
what the second took has been told."""
