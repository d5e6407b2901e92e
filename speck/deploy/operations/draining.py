"""Drains a reader before it leaves a link."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from speck.binding import BrokerCapability
from speck.deploy.operations.context import Context
from speck.deploy.operations.drain_followers import DrainFollowers
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.deploy.operations.reader_checkpoints import ReaderCheckpoints
from speck.errors import PermanentError
from speck.model.incarnation import Session
from speck.model.link_operations import Drain
from speck.model.observation import BrokerView, Sent, TakenEpoch, merge_taken
from speck.model.values import cut
from speck.store.tables import Batch


@dataclass(slots=True)
class Draining:
    """Waits until a reader has taken everything that was sent to the link that it leaves.

    It has when it reports a mark of this drain. The mark passes through the reader's session behind
    all messages that waited there, and is reported with the checkpoint that covers them. An empty
    inbox proves nothing: on a slow line the broker may still hold thousands of messages. Messages
    missing by then were lost, or never sent to that session, and will not come.

    It also has when the numbers show it, which may be at once. They cannot where the reader came
    after messages were sent, where it has lost its memory, or where a producer reports no numbers.
    A reader that is followed has to take all that was published before its follower's session
    existed. The producers' numbers may be slightly older than that: each of them has to report once
    more.

    A foreign reader's session takes no marks. Such a reader has taken all when it completes
    checkpoints and takes nothing for `drain_quiet_s`: it acknowledges at checkpoints, and the
    broker sends what waits. Once the last numbers are taken the quiet time is not needed: a session
    delivers in order.
    """

    operation: Drain
    context: Context
    began: float = 0.0
    owed: dict[tuple[str, int], int] | None = None
    until: tuple[TakenEpoch, ...] | None = None
    """What the reader takes, and nothing else: what is `owed` from the beginning are the last of
    these numbers."""
    stale: dict[str, Sent | None] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    mark_at: float = float("-inf")
    is_mark_refused: bool = False  # whether the broker refused the last mark
    least: int | None = None
    messages_seen: int = 0
    since: float = 0.0
    polled_at: float = 0.0
    status_at: float = 0.0
    messages: int = 0
    checkpoint: int | None = None
    quiet: int = 0
    quietest: int = 0
    quiet_since: float = 0.0
    followers: DrainFollowers = field(init=False)
    checkpoints: ReaderCheckpoints = field(init=False)

    def __post_init__(self) -> None:
        self.followers = DrainFollowers(self.operation, self.context)
        self.checkpoints = ReaderCheckpoints(self.operation, self.context)

    def poll(self) -> Outcome:
        """Poll once. Raises PermanentError after `drain_idle_s` without progress, unless what the
        reader has not taken may be dropped then."""
        limit_s = self.operation.limit_s
        try:
            outcome = self._poll()
        except PermanentError as error:
            if limit_s is None:
                raise
            return self.give_up(str(error))
        if isinstance(outcome, Done) or limit_s is None or self.polled_at - self.began <= limit_s:
            return outcome
        return self.give_up(f"the job has not taken all of it in {limit_s:g} s")

    def give_up(self, why: str) -> Done:
        """End the drain though its reader has not taken everything: what is left is dropped when
        its session is released, which says `why`."""
        records = self.context.records
        numbers = tuple((p, e, n) for (p, e), n in sorted((self.owed or {}).items()))
        session = self._session()
        if session is None:
            return Done()

        def put_undrained() -> Batch:
            stored = self._session()
            if stored is None:
                return {}
            undrained = replace(stored, owed=numbers or stored.owed, undrained=why)
            return records.sessions.put(self.context.scope, undrained)

        event = records.events.make(
            "session",
            f"{self.operation}: given up, and what is left may be dropped: {why}",
            site=session.site,
            job_name=session.job_name,
        )
        return Done(event, sessions=(session.client_id,), put_sessions=put_undrained)

    def _poll(self) -> Outcome:
        operation = self.operation
        # Read before the numbers, so that these are not older than the checkpoint.
        checkpoint = None if self.least is None else self.checkpoints.count(self.checkpoint)
        clients = (operation.client_id, *operation.sinks, *operation.silent, *operation.going_on)
        view = self.context.views.view(operation.site, clients)
        self.polled_at = self.context.clock.monotonic()
        if self.context.resends.await_all(operation.link, view):
            self.marks.clear()  # what is sent again comes behind them
            self.mark_at, self.since = float("-inf"), self.polled_at
            return self._wait("its producers' last messages are sent again")
        lag = view.untaken(operation.client_id, self._update_owed(view), self.until or ())
        # A sink of ours without a number has sent nothing; of a foreign sink nothing is known.
        topic = operation.link.topic
        is_known = all(view.knows(topic, sink) for sink in operation.silent)
        is_uncounted = operation.fed_outside and topic not in view.ends
        has_taken = lag == 0 and is_known and not (self.stale or is_uncounted)
        is_quiet = self.is_mark_refused and self._is_quiet(checkpoint, view)
        if has_taken or self._has_mark(view) or is_quiet:
            self.followers.record()
            self._store_owed({}, view, holes=lag)
            return Done()
        self._send_mark()
        if self._comes_nearer(lag, view):
            self.least, self.since = lag, self.polled_at
        self._see_it_run()
        self.checkpoints.ask(self.polled_at, self.checkpoint)
        if self.polled_at - self.since > self.context.patience.drain_idle_s:
            what = (
                f"{lag} messages and takes no more" if is_known else "messages that are not counted"
            )
            raise PermanentError(
                f"cannot drain {operation.site}/{cut(operation.link.topic)}: {operation.job_name}"
                f" has not taken {what}; see `speck job {operation.job_name}`, or apply with"
                " --drop-queues to drop them"
            )
        return self._wait()

    def _wait(self, progress: str | None = None) -> Waiting:
        """Poll again in a while."""
        return Waiting(
            None,
            lambda _: (
                self.context.clock.monotonic() - self.polled_at
                >= self.context.patience.drain_poll_s
            ),
            self.poll,
            float("inf"),
            lambda: "",
            may_be_left=True,
            progress=progress,
        )

    def _comes_nearer(self, lag: int, view: BrokerView) -> bool:
        """Whether the lag shrinks or, if no lag is reported, the reader takes messages."""
        taken = view.taken.get(self.operation.client_id)
        before, self.messages_seen = self.messages_seen, taken.messages if taken else 0
        if self.least is None or lag < self.least:
            return True
        return lag == 0 and self.messages_seen > before

    def _see_it_run(self) -> None:
        """Raise PermanentError if the reader makes no progress since it does not run any more, and
        UnreachableError if its engine does not answer."""
        operation, patience = self.operation, self.context.patience
        if self.polled_at - max(self.since, self.status_at) <= patience.drain_ask_s:
            return
        self.status_at = self.polled_at
        state = self.checkpoints.engine.status(operation.engine_job_id)
        if state is None or state.terminal:
            what = state or f"not known to {operation.reader_site} any more"
            raise PermanentError(
                f"cannot drain {operation.site}/{cut(operation.link.topic)}: {operation.job_name}"
                f" is {what}; apply again"
            )

    def _update_owed(self, view: BrokerView) -> dict[tuple[str, int], int]:
        """The last numbers to wait for; stored, since sinks may not report them later."""
        first = self.owed is None
        if self.owed is None:
            self.followers.restore(view)
            session = self._session()
            self.owed = {(p, e): n for p, e, n in session.owed} if session else {}
        operation = self.operation
        if self.until is not None:
            return self.owed
        if operation.link.topic in view.ends:
            return self._update_owed_of_log(view, first)
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
            self._store_owed(self.owed)
        return self.owed

    def _update_owed_of_log(self, view: BrokerView, first: bool) -> dict[tuple[str, int], int]:
        """The same at a broker that tells the ends of its log: those of one moment, after the
        follower's session was reserved, are all that is to be taken; without a follower the ends
        are final once the producers have stopped."""
        assert self.owed is not None
        ends = view.ends[self.operation.link.topic]
        for former in self.owed.keys() - ends.keys():  # of a log that was made anew since
            del self.owed[former]
        if first or not self.operation.followed:
            for key, number in ends.items():
                self.owed[key] = max(number, self.owed.get(key, 0))
        if first and view.untaken(self.operation.client_id, self.owed):
            self._store_owed(self.owed)
        return self.owed

    def _owe(self, sent: Sent | None) -> None:
        if self.owed is not None and sent is not None:
            key = (sent.producer, sent.epoch)
            self.owed[key] = max(sent.number, self.owed.get(key, 0))

    def _has_mark(self, view: BrokerView) -> bool:
        """Whether the reader reports a mark of this drain; a mark of an earlier drain proves
        nothing."""
        taken = view.taken.get(self.operation.client_id)
        return taken is not None and taken.mark in self.marks

    def _send_mark(self) -> None:
        """Send a mark, and another one after `drain_mark_s`: a broker that was killed may have lost
        it."""
        if self.polled_at - self.mark_at < self.context.patience.drain_mark_s:
            return
        mark = self.context.clock.new_id()[:16]
        self.marks.add(mark)  # before it is sent: the answer may be lost though the mark arrives
        broker = self.context.connections.broker(self.operation.site)
        takes_marks = BrokerCapability.MARKS in broker.capabilities
        self.is_mark_refused = not (takes_marks and broker.mark(self.operation.client_id, mark))
        self.mark_at = self.polled_at

    def _store_owed(
        self, owed: dict[tuple[str, int], int], view: BrokerView | None = None, holes: int = 0
    ) -> None:
        """Store the numbers owed and, for a reader that is followed, what it has taken: a broker
        that is killed before the handover may forget that."""
        numbers = tuple((p, e, n) for (p, e), n in sorted(owed.items()))
        taken = view.taken.get(self.operation.client_id) if view is not None else None
        with self.context.writing[self.operation.client_id]:
            session = self._session()
            if session is None:
                return
            after = replace(session, owed=numbers, undrained="", holes=holes)
            if taken is not None and self.operation.handed_over:
                after = replace(after, skip=merge_taken(session.skip, taken.epochs()))
            if after != session:
                records = self.context.records
                records.write(records.sessions.put(self.context.scope, after))

    def _session(self) -> Session | None:
        return self.context.records.sessions.get(
            self.context.scope, self.operation.client_id, self.operation.site
        )

    def _is_quiet(self, checkpoint: int | None, view: BrokerView) -> bool:
        """Whether the reader has completed enough consecutive checkpoints since it last reported
        new messages. Ids are not subtracted: they number failed checkpoints too."""
        taken = view.taken.get(self.operation.client_id)
        messages = taken.messages if taken else 0
        if checkpoint is None or self.checkpoint is None or messages != self.messages:
            self.quiet, self.checkpoint, self.messages = 0, checkpoint, messages
            self.quiet_since = self.polled_at
            return False
        if checkpoint != self.checkpoint:
            self.quiet, self.checkpoint = self.quiet + 1, checkpoint
            if self.quiet > self.quietest:
                self.quietest, self.since = self.quiet, self.polled_at
        if self.quiet < _QUIET_CHECKPOINTS:
            return False
        if self.owed and view.has_last(self.operation.client_id, self.owed):
            return True  # a gap below was lost before, or is not of this link
        return self.polled_at - self.quiet_since >= self.context.patience.drain_quiet_s


_QUIET_CHECKPOINTS = 3
"""The first may have begun before the producers had stopped; the second has not; at the third, the
messages covered by the second have been reported."""
