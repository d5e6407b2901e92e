"""Transfers of jobs' state between sites, each by a few commands for the agents of both ends.

The target is told to receive; once it is ready, the source is told to send, directly or, where it
cannot reach the target, through a relay of the service, from which the target is told to fetch.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from speck.agent.layout import StateLayout
from speck.binding import Transfer, TransferProgress
from speck.clock import Clock
from speck.errors import NotFoundError, TransientError
from speck.model.values import JsonObject
from speck.sites.agent_commands import AgentCommand, AgentCommands
from speck.sites.relay import Relay
from speck.store.records import Records

_UNWANTED_S = 120.0
_SEND_AGAIN_S = 3.0
_REMEMBERED = 1000
_LONGEST_ERROR = 1000


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A transfer under way. `requested` is when (monotonic) somebody last requested it."""

    transfer: Transfer
    secret: str
    requested: float
    began: float
    relay: Relay = field(default_factory=Relay)
    receive: AgentCommand | None = None
    send: AgentCommand | None = None
    fetch: AgentCommand | None = None
    sent_at: float | None = None
    way: str = "direct"
    bytes: int = 0
    total: int | None = None
    location: str | None = None
    failure: str | None = None
    trouble: str | None = None


class Transfers:
    """All transfers, and what each agent is to do for them."""

    def __init__(
        self,
        records: Records,
        clock: Clock,
        commands: AgentCommands,
        listen: Callable[[str], str | None],
        refuse_silent: Callable[[str], None],
        layouts: Callable[[str], list[StateLayout]],
    ):
        """`listen` returns where other agents reach that of a site, `refuse_silent` raises
        UnreachableError if a site's agent is silent, `layouts` returns how a site's engines lay out
        their states."""
        self._records = records
        self._clock = clock
        self._commands = commands
        self._listen = listen
        self._refuse_silent = refuse_silent
        self._layouts = layouts
        self._lock = threading.RLock()
        self._transfers: OrderedDict[str, _UnderWay] = OrderedDict()

    def carry(self, transfer: Transfer) -> TransferProgress:
        """Start a transfer or continue it. Raises UnreachableError while one of the two agents
        is silent, TransientError for what may succeed when tried again."""
        with self._lock:
            moving = self._transfers.get(transfer.id)
            if moving is None or moving.transfer != transfer:
                moving = self._begin(transfer)
            moving.requested = self._clock.monotonic()
            if moving.location is None and moving.failure is None:
                self._refuse_silent(transfer.target)
                if moving.bytes != moving.total:  # else the source has sent all of it
                    self._refuse_silent(transfer.source)
                if moving.trouble is not None:
                    trouble, moving.trouble = moving.trouble, None
                    raise TransientError(trouble)
                if moving.receive is None:
                    self._command_receive(moving)
            if moving.failure is not None:  # reported once; the next call tries again
                del self._transfers[transfer.id]
            return TransferProgress(
                moving.location is not None or moving.failure is not None,
                moving.location,
                moving.failure,
                moving.bytes,
                moving.total,
            )

    def forget_copy(self, site: str, path: str) -> None:
        """The state that was carried to `path` of a site has been deleted."""
        with self._lock:
            for identity, moving in list(self._transfers.items()):
                if moving.location == path and moving.transfer.target == site:
                    del self._transfers[identity]

    def under_way(self, transfer: str) -> Transfer:
        """The transfer of that id. Raises NotFoundError when it is over."""
        return self._find(transfer).transfer

    def relay(self, transfer: str, *, by_source: bool) -> Relay:
        """The relay of a transfer. The source's first piece makes the target fetch from it.

        Raises NotFoundError.
        """
        with self._lock:
            moving = self._find(transfer)
            if by_source and moving.fetch is None:
                moving.way = "relayed"
                moving.fetch = self._commands.add(
                    moving.transfer.target,
                    "fetch",
                    {"transfer": transfer, "secret": moving.secret},
                    lambda command, report: self._on_fetched(moving, command, report),
                )
            return moving.relay

    def _find(self, transfer: str) -> _UnderWay:
        with self._lock:
            moving = self._transfers.get(transfer)
        if moving is None or moving.receive is None:
            raise NotFoundError(f"cannot find transfer {transfer!r}: it is over")
        return moving

    def _begin(self, transfer: Transfer) -> _UnderWay:
        before = self._transfers.pop(transfer.id, None)
        if before is not None:
            self._end(before)
        now = self._clock.monotonic()
        moving = _UnderWay(transfer, secrets.token_urlsafe(24), now, now)
        self._transfers[transfer.id] = moving
        while len(self._transfers) > _REMEMBERED:
            self._end(self._transfers.popitem(last=False)[1])
        return moving

    def _command_receive(self, moving: _UnderWay) -> None:
        body: JsonObject = {
            "transfer": moving.transfer.id,
            "job_name": moving.transfer.job_name,
            "secret": moving.secret,
            **({"total": moving.total} if moving.total else {}),
        }
        moving.receive = self._commands.add(
            moving.transfer.target,
            "receive",
            body,
            lambda command, report: self._on_received(moving, command, report),
        )

    def _command_send(self, moving: _UnderWay) -> None:
        listen = self._listen(moving.transfer.target)
        body = {
            "transfer": moving.transfer.id,
            "path": moving.transfer.path,
            "engine_job_id": moving.transfer.engine_job_id,
            "layouts": [each.to_json() for each in self._layouts(moving.transfer.source)],
            "secret": moving.secret,
            "to": listen,
        }
        moving.sent_at = None
        moving.send = self._commands.add(
            moving.transfer.source,
            "send",
            body,
            lambda command, report: self._on_sent(moving, command, report),
        )

    def _on_received(self, moving: _UnderWay, command: AgentCommand, report: JsonObject) -> None:
        """The target's agent is ready, has received some bytes, or has received all."""
        with self._lock:
            if command is not moving.receive:
                return
            if "bytes" in report:
                moving.bytes = _whole(report["bytes"])
            if report.get("state") == "failed":
                self._fail(moving, moving.transfer.target, report)
            elif report.get("state") == "done" and not isinstance(report.get("location"), str):
                unplaced = "it received the state but did not report its location"
                failure = {"error": f"{unplaced}; update the agent"}
                self._fail(moving, moving.transfer.target, failure)
            elif report.get("state") == "done":
                moving.location = report["location"]
                moving.total = moving.bytes
                self._end(moving)
                self._record(moving)
            elif moving.send is None or self._has_lost(moving):
                self._command_send(moving)
            elif moving.total and self._has_all_unknowing(moving, report):
                self._commands.withdraw(moving.receive)
                self._command_receive(moving)

    def _has_lost(self, moving: _UnderWay) -> bool:
        """Whether the target misses bytes although the source sent all of them a while ago."""
        if moving.sent_at is None or moving.bytes >= (moving.total or 0):
            return False
        return self._clock.monotonic() - moving.sent_at > _SEND_AGAIN_S

    def _has_all_unknowing(self, moving: _UnderWay, report: JsonObject) -> bool:
        """Whether the target holds everything from an earlier try: then no piece is sent to it,
        and it never learns the total."""
        unknown = "total" in report and report["total"] is None
        return unknown and moving.sent_at is not None and moving.bytes == moving.total

    def _on_sent(self, moving: _UnderWay, command: AgentCommand, report: JsonObject) -> None:
        """The source's agent has sent some bytes, or all."""
        with self._lock:
            if command is not moving.send:
                return
            total = _whole(report.get("total") or report.get("bytes"))
            if report.get("state") == "failed":
                self._fail(moving, moving.transfer.source, report)
                return
            if total and moving.receive is not None:
                moving.total = total
                moving.receive.body["total"] = total  # for an agent that starts anew
            if report.get("state") == "done":
                moving.sent_at = self._clock.monotonic()

    def _on_fetched(self, moving: _UnderWay, command: AgentCommand, report: JsonObject) -> None:
        with self._lock:
            if command is moving.fetch and report.get("state") == "failed":
                self._fail(moving, moving.transfer.target, report)

    def _fail(self, moving: _UnderWay, site: str, report: JsonObject) -> None:
        message = (
            f"cannot bring the state of {moving.transfer.job_name} from"
            f" {moving.transfer.source} to {moving.transfer.target}:"
            f" the agent of {site} says: {shorten(report.get('error'))}"
        )
        if report.get("again"):
            moving.trouble = message
        else:
            moving.failure = message
        self._end(moving)

    def _end(self, moving: _UnderWay) -> None:
        """Withdraw all commands; the next `carry` may start again."""
        self._commands.withdraw(moving.receive, moving.send, moving.fetch)
        moving.receive = moving.send = moving.fetch = None
        moving.sent_at = None
        moving.relay.close()
        moving.relay = Relay()

    def _record(self, moving: _UnderWay) -> None:
        transfer = moving.transfer
        seconds = self._clock.monotonic() - moving.began
        self._records.write(
            self._records.events.make(
                "operation",
                f"state of {transfer.job_name} carried from {transfer.source} to"
                f" {transfer.target}: {moving.bytes} bytes in {seconds:.1f} s ({moving.way})",
                site=transfer.target,
                job_name=transfer.job_name,
            )
        )

    def end_unwanted(self) -> None:
        """End transfers that nobody has requested for a while: their change was cancelled."""
        now = self._clock.monotonic()
        with self._lock:
            for moving in list(self._transfers.values()):
                if moving.receive is not None and now - moving.requested > _UNWANTED_S:
                    self._end(moving)


def shorten(text: object) -> str:
    """What an agent says: it becomes part of changes and events, which are kept."""
    return str(text)[:_LONGEST_ERROR]


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
