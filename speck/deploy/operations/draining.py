"""How a reader empties the link that it leaves."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass, field, replace

from speck.deploy.operations.connecting import source_connected
from speck.deploy.operations.context import Context
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.errors import PermanentError, SpeckError, UnreachableError
from speck.model.incarnation import Session
from speck.model.observation import BrokerView, RunState, Sent, merge_taken
from speck.model.plan import Drain
from speck.store.tables import Batch


@dataclass(slots=True)
class Draining:
    """Waits until a reader has taken what was sent to the link that it leaves.

    It has when it reports a mark of this drain: that went through its session behind all that
    waited there, and is reported with the checkpoint that covers what came before it. An inbox
    that is empty says nothing: on a slow line the broker may have thousands of messages yet. What
    is missing then was lost, or never sent to that session, and does not come.

    It has, too, when the numbers say so, which may be at once. They cannot where the reader came
    after messages were sent, has lost its memory, or a producer tells none. One that is followed
    has to take all that was published before its follower's session was there. The producers'
    numbers are a little older than that: each of them has to report once more.

    A session that takes no marks is a foreign reader's. That has taken all when it completes
    checkpoints and takes nothing for `drain_quiet_s`: it acknowledges at checkpoints, and the
    broker sends what waits. With the last numbers taken it need not last: a session delivers in
    order.
    """

    operation: Drain
    context: Context
    owed: dict[tuple[str, int], int] | None = None
    stale: dict[str, Sent | None] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    marked: float = float("-inf")
    refused: bool = False  # the last mark
    least: int | None = None
    seen: int = 0
    since: float = 0.0
    looked: float = 0.0
    asked: float = 0.0
    triggered: float = float("-inf")
    messages: int = 0
    checkpoint: int | None = None
    quiet: int = 0
    quietest: int = 0
    quiet_since: float = 0.0

    def poll(self) -> Outcome:
        """Look once. Raises PermanentError when for `drain_idle_s` nothing has come nearer."""
        operation = self.operation
        # Asked before the numbers, which so are not older than the checkpoint.
        checkpoint = None if self.least is None else self._checkpoint()
        view = self.context.connections.broker(operation.site).view()
        self.looked = self.context.clock.monotonic()
        lag = view.untaken(operation.client_id, self._owed(view))
        # Without a number a sink of ours never sent anything; of another's nothing is known.
        known = all(view.find_sent(operation.link.topic, sink) for sink in operation.silent)
        has_taken = lag == 0 and known and not (self.stale or operation.fed_outside)
        is_quiet = self.refused and self._is_quiet(checkpoint, view)
        if has_taken or self._has_mark(view) or is_quiet:
            return Done(self._note({}, view))
        self._send_mark()
        if self._comes_nearer(lag, view):
            self.least, self.since = lag, self.looked
        self._see_it_run()
        self._ask_for_checkpoint()
        if self.looked - self.since > self.context.patience.drain_idle_s:
            what = f"{lag} messages and takes no more" if known else "what nobody counts"
            raise PermanentError(
                f"cannot drain {operation.site}/{operation.link.topic}: {operation.job_name}"
                f" has not taken {what}; see `speck job {operation.job_name}`, or apply with"
                " --no-drain to abandon them"
            )
        return Waiting(
            None,
            lambda _: (
                self.context.clock.monotonic() - self.looked >= self.context.patience.drain_poll_s
            ),
            self.poll,
            float("inf"),
            lambda: "",
            may_be_left=True,
        )

    def _comes_nearer(self, lag: int, view: BrokerView) -> bool:
        """Whether the lag shrinks or, where nobody tells any, the reader takes messages."""
        seen = view.taken.get(self.operation.client_id)
        before, self.seen = self.seen, seen.messages if seen else 0
        if self.least is None or lag < self.least:
            return True
        return lag == 0 and self.seen > before

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
            self._owe(view.find_sent(operation.link.topic, sink))
        for sink in operation.going_on if first else tuple(self.stale):
            sent = view.find_sent(operation.link.topic, sink)
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

    def _has_mark(self, view: BrokerView) -> bool:
        """Whether it reports a mark of this drain; what came before an older one proves nothing."""
        seen = view.taken.get(self.operation.client_id)
        return seen is not None and seen.mark in self.marks

    def _send_mark(self) -> None:
        """Send a mark, and another after a while: a broker that was killed may have lost it."""
        if self.looked - self.marked < self.context.patience.drain_mark_s:
            return
        mark = secrets.token_hex(8)
        self.marks.add(mark)  # before it is sent: the answer may be lost, and the mark not
        broker = self.context.connections.broker(self.operation.site)
        self.refused = not broker.mark(self.operation.client_id, mark)
        self.marked = self.looked

    def _note(self, owed: dict[tuple[str, int], int], view: BrokerView | None = None) -> Batch:
        """Store what is owed and, of a reader that is followed, what it has taken: a broker that
        is killed before the handover may have forgotten that."""
        session = self._session()
        if session is None:
            return {}
        told = tuple((p, e, n) for (p, e), n in sorted(owed.items()))
        noted = replace(session, owed=told)
        taken = view.taken.get(self.operation.client_id) if view is not None else None
        if taken is not None and self.operation.followed:
            noted = replace(noted, skip=merge_taken(session.skip, taken.epochs()))
        if noted == session:
            return {}
        return self.context.records.put_session(self.context.scope, noted)

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


_CHECKPOINT_S = 0.15

_QUIET_CHECKPOINTS = 3
"""The first may have begun before the producers had stopped; the second has not; at the third,
what the second took has been told."""
