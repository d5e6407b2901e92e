"""The sites' agents: they report how a site is, list its state, and transfer state to another."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from speck.binding import CheckpointInfo, Transfer, TransferProgress
from speck.clock import Clock, rfc3339
from speck.errors import NotFoundError, PermanentError, TransientError, UnreachableError
from speck.model.finding import Finding
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.sites.agent_commands import SILENT_S, AgentCommand, AgentCommands
from speck.sites.state_transfer import Relay
from speck.store.records import Records

_STORE_EVERY_S = 10.0
_ANSWER_S = 10.0
_UNWANTED_S = 120.0
_SEND_AGAIN_S = 3.0
_REMEMBERED = 1000
_LONGEST_ERROR = 1000
_LOW_BYTES, _EMPTY_BYTES = 500 << 20, 50 << 20
_REPORTED_AT_ONCE = ("identity", "state_folder", "listen", "refused_listen", "versions")


@dataclass(slots=True, eq=False)
class _Carriage:
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


class Agents:
    """Keeps state at sites and carries it between them; a `speck.binding.StateKeeper`.

    A site's label `state_uri` says where its engine keeps state; the same label at two sites
    means storage that both read. Without the label, the site's agent reports its folder.
    """

    def __init__(
        self,
        records: Records,
        sites: Callable[[], Mapping[str, Site]],
        clock: Clock,
        engine_folder: Callable[[str], str | None] = lambda site: None,
    ):
        """`engine_folder` returns the URI of the checkpoints of a site's engine; None when the
        engine does not report it."""
        self._records = records
        self._sites = sites
        self._engine_folder = engine_folder
        self._clock = clock
        self.commands = AgentCommands(clock)
        self.silent_s = SILENT_S
        """An agent that has been silent for this long is unreachable."""
        self._lock = threading.RLock()
        self._beats: dict[str, JsonObject] = {}
        self._stored: dict[str, float] = {}
        self._agreed: dict[str, str] = {}
        self._carriages: OrderedDict[str, _Carriage] = OrderedDict()

    # --- what agents report ------------------------------------------------------------------

    def heartbeat(self, name: str, body: JsonObject) -> JsonObject:
        """Take an agent's report. It is stored at once when more than figures has changed, and
        every 10 s otherwise. Raises NotFoundError."""
        self._site(name)
        self.commands.hear(name)
        record = {"at": rfc3339(self._clock.now()), "body": body}
        before = self._beat(name).get("body", {})
        same = all(before.get(key) == body.get(key) for key in _REPORTED_AT_ONCE)
        with self._lock:
            self._beats[name] = record
            now = self._clock.monotonic()
            due = not same or now - self._stored.get(name, float("-inf")) >= _STORE_EVERY_S
            if due:
                self._stored[name] = now
        if due:
            self._records.write({self._records.heartbeats.key(name): record})
        return {"name": name, "last_seen": record["at"]}

    def open_commands(
        self,
        site: str,
        known: Collection[str],
        wait_s: float,
        stopping: Callable[[], bool] = lambda: False,
    ) -> list[JsonObject]:
        """The open commands for a site's agent. Raises NotFoundError."""
        self._site(site)
        self._drop_unwanted()
        return self.commands.open(site, known, wait_s, stopping)

    def beat(self, site: str) -> JsonObject:
        """The last report of a site's agent; empty when the site has no agent."""
        return dict(self._beat(site).get("body", {}))

    def last_seen(self, site: str) -> str | None:
        """When a site's agent reported last (RFC 3339); None when it never did."""
        return self._beat(site).get("at")

    def last_report(self, site: str) -> tuple[JsonObject, datetime | None]:
        """The last report of a site's agent, and when it came."""
        seen = self.last_seen(site)
        return self.beat(site), datetime.fromisoformat(seen) if seen else None

    def forget(self, site: str) -> None:
        """The site is removed."""
        with self._lock:
            self._beats.pop(site, None)
            self._stored.pop(site, None)
            self._agreed.pop(site, None)
        self.commands.forget(site)

    # --- StateKeeper -----------------------------------------------------------------------

    def folder(self, site: str) -> str | None:
        """The URI below which a site's engine keeps state; None when it is not known."""
        known = self._sites().get(site)
        if known is None:
            return None
        if known.state_uri is not None:
            return known.state_uri
        folder = self._beat(site).get("body", {}).get("state_folder")
        return f"file://{folder}" if isinstance(folder, str) else None

    def shares_storage(self, one: str, other: str) -> bool:
        """Whether nothing needs to travel between two sites."""
        if one == other:
            return True
        sites = self._sites()
        uris = [sites[name].state_uri if name in sites else None for name in (one, other)]
        return uris[0] is not None and uris[0] == uris[1]

    def newest(
        self, site: str, engine_job_id: str, folder: str | None = None
    ) -> CheckpointInfo | None:
        """The newest checkpoint, by listing the folder, and the job's own `folder`. Raises
        UnreachableError; PermanentError without an agent, or with one whose folder is not the
        engine's: it would find none."""
        lister = self._lister(site)
        self._refuse_silent(lister)
        self._refuse_elsewhere(site, lister)
        body = {"engine_job_id": engine_job_id, **({"folder": folder} if folder else {})}
        answer = self._ask(lister, "list", body)
        try:
            states = answer["states"]
            return _checkpoint(states[0]) if states else None
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise PermanentError(
                f"cannot read the list of states that the agent of {lister} sent: {error!r:.200};"
                " update the agent"
            ) from error

    def drop(self, site: str, path: str) -> None:
        """Delete a state that is no longer needed."""
        self._ask(self._lister(site), "drop", {"path": path})
        with self._lock:
            for identity, carriage in list(self._carriages.items()):
                if carriage.location == path and carriage.transfer.target == site:
                    del self._carriages[identity]

    def carry(self, transfer: Transfer) -> TransferProgress:
        """Start a transfer or continue it. Raises UnreachableError while one of the two agents
        is silent, TransientError for what may succeed when tried again."""
        with self._lock:
            carriage = self._carriages.get(transfer.id)
            if carriage is None or carriage.transfer != transfer:
                carriage = self._new_carriage(transfer)
            carriage.requested = self._clock.monotonic()
            if carriage.location is None and carriage.failure is None:
                self._refuse_silent(transfer.target)
                if carriage.bytes != carriage.total:  # else the source has sent all of it
                    self._refuse_silent(transfer.source)
                if carriage.trouble is not None:
                    trouble, carriage.trouble = carriage.trouble, None
                    raise TransientError(trouble)
                if carriage.receive is None:
                    self._command_receive(carriage)
            if carriage.failure is not None:  # reported once; the next call tries again
                del self._carriages[transfer.id]
            return TransferProgress(
                carriage.location is not None or carriage.failure is not None,
                carriage.location,
                carriage.failure,
                carriage.bytes,
                carriage.total,
            )

    # --- transfers -------------------------------------------------------------------------

    def under_way(self, transfer: str) -> Transfer:
        """The transfer of that id. Raises NotFoundError when it is over."""
        return self._carriage(transfer).transfer

    def relay(self, transfer: str, *, by_source: bool) -> Relay:
        """The relay of a transfer. The source's first piece makes the target fetch from it.

        Raises NotFoundError.
        """
        with self._lock:
            carriage = self._carriage(transfer)
            if by_source and carriage.fetch is None:
                carriage.way = "relayed"
                carriage.fetch = self.commands.add(
                    carriage.transfer.target,
                    "fetch",
                    {"transfer": transfer, "secret": carriage.secret},
                    lambda command, report: self._on_fetched(carriage, command, report),
                )
            return carriage.relay

    def _carriage(self, transfer: str) -> _Carriage:
        with self._lock:
            carriage = self._carriages.get(transfer)
        if carriage is None or carriage.receive is None:
            raise NotFoundError(f"cannot find transfer {transfer!r}: it is over")
        return carriage

    def _new_carriage(self, transfer: Transfer) -> _Carriage:
        before = self._carriages.pop(transfer.id, None)
        if before is not None:
            self._end(before)
        now = self._clock.monotonic()
        carriage = _Carriage(transfer, secrets.token_urlsafe(24), now, now)
        self._carriages[transfer.id] = carriage
        while len(self._carriages) > _REMEMBERED:
            self._end(self._carriages.popitem(last=False)[1])
        return carriage

    def _command_receive(self, carriage: _Carriage) -> None:
        body: JsonObject = {
            "transfer": carriage.transfer.id,
            "job_name": carriage.transfer.job_name,
            "secret": carriage.secret,
            **({"total": carriage.total} if carriage.total else {}),
        }
        carriage.receive = self.commands.add(
            carriage.transfer.target,
            "receive",
            body,
            lambda command, report: self._on_received(carriage, command, report),
        )

    def _command_send(self, carriage: _Carriage) -> None:
        listen = self._beat(carriage.transfer.target).get("body", {}).get("listen")
        body = {
            "transfer": carriage.transfer.id,
            "path": carriage.transfer.path,
            "engine_job_id": carriage.transfer.engine_job_id,
            "secret": carriage.secret,
            "to": listen,
        }
        carriage.sent_at = None
        carriage.send = self.commands.add(
            carriage.transfer.source,
            "send",
            body,
            lambda command, report: self._on_sent(carriage, command, report),
        )

    def _on_received(self, carriage: _Carriage, command: AgentCommand, report: JsonObject) -> None:
        """The target's agent is ready, has received some bytes, or has received all."""
        with self._lock:
            if command is not carriage.receive:
                return
            if "bytes" in report:
                carriage.bytes = _whole(report["bytes"])
            if report.get("state") == "failed":
                self._fail(carriage, carriage.transfer.target, report)
            elif report.get("state") == "done" and not isinstance(report.get("location"), str):
                said = {"error": "it has received the state, but not where it is; update the agent"}
                self._fail(carriage, carriage.transfer.target, said)
            elif report.get("state") == "done":
                carriage.location = report["location"]
                carriage.total = carriage.bytes
                self._end(carriage)
                self._note(carriage)
            elif carriage.send is None or self._has_lost(carriage):
                self._command_send(carriage)
            elif carriage.total and self._has_all_unknowing(carriage, report):
                self.commands.withdraw(carriage.receive)
                self._command_receive(carriage)

    def _has_lost(self, carriage: _Carriage) -> bool:
        """Whether the target misses bytes although the source sent all of them a while ago."""
        if carriage.sent_at is None or carriage.bytes >= (carriage.total or 0):
            return False
        return self._clock.monotonic() - carriage.sent_at > _SEND_AGAIN_S

    def _has_all_unknowing(self, carriage: _Carriage, report: JsonObject) -> bool:
        """Whether the target holds everything from an earlier try: then no piece is sent to it,
        and it never learns the total."""
        unknown = "total" in report and report["total"] is None
        return unknown and carriage.sent_at is not None and carriage.bytes == carriage.total

    def _on_sent(self, carriage: _Carriage, command: AgentCommand, report: JsonObject) -> None:
        """The source's agent has sent some bytes, or all."""
        with self._lock:
            if command is not carriage.send:
                return
            total = _whole(report.get("total") or report.get("bytes"))
            if report.get("state") == "failed":
                self._fail(carriage, carriage.transfer.source, report)
                return
            if total and carriage.receive is not None:
                carriage.total = total
                carriage.receive.body["total"] = total  # for an agent that starts anew
            if report.get("state") == "done":
                carriage.sent_at = self._clock.monotonic()

    def _on_fetched(self, carriage: _Carriage, command: AgentCommand, report: JsonObject) -> None:
        with self._lock:
            if command is carriage.fetch and report.get("state") == "failed":
                self._fail(carriage, carriage.transfer.target, report)

    def _fail(self, carriage: _Carriage, site: str, report: JsonObject) -> None:
        message = (
            f"cannot bring the state of {carriage.transfer.job_name} from"
            f" {carriage.transfer.source} to {carriage.transfer.target}:"
            f" the agent of {site} says: {_shorten(report.get('error'))}"
        )
        if report.get("again"):
            carriage.trouble = message
        else:
            carriage.failure = message
        self._end(carriage)

    def _end(self, carriage: _Carriage) -> None:
        """Withdraw all commands; the next `carry` may start again."""
        self.commands.withdraw(carriage.receive, carriage.send, carriage.fetch)
        carriage.receive = carriage.send = carriage.fetch = None
        carriage.sent_at = None
        carriage.relay.close()
        carriage.relay = Relay()

    def _note(self, carriage: _Carriage) -> None:
        transfer = carriage.transfer
        seconds = self._clock.monotonic() - carriage.began
        self._records.write(
            self._records.event(
                "operation",
                f"state of {transfer.job_name} carried from {transfer.source} to"
                f" {transfer.target}: {carriage.bytes} bytes in {seconds:.1f} s ({carriage.way})",
                site=transfer.target,
                job_name=transfer.job_name,
            )
        )

    def _drop_unwanted(self) -> None:
        """End transfers that nobody has requested for a while: their change was cancelled."""
        now = self._clock.monotonic()
        with self._lock:
            for carriage in list(self._carriages.values()):
                if carriage.receive is not None and now - carriage.requested > _UNWANTED_S:
                    self._end(carriage)

    # --- one command and its answer -------------------------------------------------------

    def _ask(self, site: str, kind: str, body: JsonObject) -> JsonObject:
        """Give a command and wait for its answer.

        Raises UnreachableError, TransientError, PermanentError.
        """
        self._refuse_silent(site)
        command = self.commands.add(site, kind, body)
        if not command.over.wait(_ANSWER_S):
            self.commands.withdraw(command)
            raise UnreachableError(f"cannot reach the agent of {site}: no answer to {kind!r}")
        if command.answer["state"] == "failed":
            error = TransientError if command.answer.get("again") else PermanentError
            raise error(f"{_shorten(command.answer.get('error'))} (agent of site {site})")
        return command.answer

    def _lister(self, site: str) -> str:
        """The site itself, or another that reads the same storage and has an agent."""
        if not self._beat(site):
            for other in sorted(self._sites()):
                if other != site and self.shares_storage(site, other) and self._beat(other):
                    return other
        return site

    def _refuse_silent(self, site: str) -> None:
        self._site(site)
        if not self._beat(site):
            raise PermanentError(
                f"cannot reach state at {site}: the site has no agent; run `speck agent --site"
                f" {site} --state-folder FOLDER` beside its engine, or give sites that share"
                " storage the same label state_uri"
            )
        silent = self.commands.silent_s(site)
        if silent is None or silent > self.silent_s:
            since = self._beat(site)["at"]
            raise UnreachableError(f"cannot reach the agent of {site}: last heard at {since}")

    def _refuse_elsewhere(self, site: str, lister: str) -> None:
        """Raises PermanentError when the agent lists another folder than the engine writes to; the
        engine is queried once for each folder that an agent reports."""
        reported = str(self._beat(lister)["body"].get("state_folder"))
        if self._agreed.get(site) == reported:
            return
        try:
            folder = self._engine_folder(site)
        except TransientError as error:
            raise UnreachableError(
                f"cannot tell whether the agent of {lister} searches where the engine of {site}"
                f" keeps its checkpoints: {error}"
            ) from error
        if folder is not None and not _below(folder, reported):
            raise PermanentError(
                f"cannot list states of {site}: its agent searches below {reported}, but the engine"
                f" keeps its checkpoints in {folder}; start the agent with the right --state-folder"
            )
        self._agreed[site] = reported

    def doubt(self, site: str) -> None:
        """Forget that a site's agent and engine use the same folder: the site has changed."""
        self._agreed.pop(site, None)

    def _site(self, name: str) -> Site:
        site = self._sites().get(name)
        if site is None:
            raise NotFoundError(
                f"cannot find site {name!r}; register it (speck site add, or POST /sites)"
            )
        return site

    def _beat(self, site: str) -> dict[str, Any]:
        """The last report, `{at, body}`; empty when there never was one."""
        with self._lock:
            if site not in self._beats:
                stored = self._records.heartbeats.get(site)
                if stored is None:
                    return {}
                self._beats[site] = stored
            return self._beats[site]

    # --- site check ------------------------------------------------------------------------

    def findings(self, name: str, engine_folder: str | None) -> list[JsonObject]:
        """Problems of a site's agent. `engine_folder` is the engine's own checkpoint folder,
        None when the engine does not report it."""
        site = self._site(name)
        beat = self._beat(name)
        if not beat:
            findings = [] if site.state_uri is not None else [_MISSING]
        else:
            body = beat["body"]
            findings = [*self._silence(name, beat), *_folder_findings(body, engine_folder)]
            findings += _listen_findings(body)
        return [{"part": "agent", **asdict(finding)} for finding in findings]

    def _silence(self, name: str, beat: Mapping[str, Any]) -> list[Finding]:
        silent = self.commands.silent_s(name)
        if silent is not None and silent <= self.silent_s:
            return []
        return [
            Finding(
                "error",
                "agent",
                f"silent since {beat['at']}",
                "jobs with state can neither leave nor enter the site",
                "start it: systemctl start speck-agent",
            )
        ]


_MISSING = Finding(
    "warning",
    "agent",
    "none",
    "jobs can leave or enter the site only without their state",
    "run `speck agent` beside the engine, or set the label state_uri for shared storage",
)


def _folder_findings(body: Mapping[str, Any], engine_folder: str | None) -> list[Finding]:
    findings = []
    reported = str(body.get("state_folder"))
    if engine_folder is not None and not _below(engine_folder, reported):
        findings.append(
            Finding(
                "error",
                "state-folder",
                reported,
                f"the engine keeps its checkpoints in {engine_folder}: the agent finds none",
                "start the agent with --state-folder set to the folder that holds checkpoints/",
            )
        )
    free = body.get("free_bytes")
    if isinstance(free, int) and free < _LOW_BYTES:
        findings.append(
            Finding(
                "error" if free < _EMPTY_BYTES else "warning",
                "free disk",
                f"{free >> 20} MB",
                "without room neither checkpoints nor arriving state can be written",
                f"make room at {reported}",
            )
        )
    return findings


def _listen_findings(body: Mapping[str, Any]) -> list[Finding]:
    refused = body.get("refused_listen")
    if refused is None:
        return []
    return [
        Finding(
            "warning",
            "listen",
            str(refused),
            "it is neither the host of the site's engine or broker nor in an allowed network: other"
            " agents are not sent there, and state travels through the service",
            "give --advertise an address on that host, or set SPECK_SITE_NETWORKS at the service",
        )
    ]


def _below(uri: str, folder: str) -> bool:
    """Whether `uri` is `<folder>/checkpoints`."""
    path = "/" + uri.removeprefix("file:").lstrip("/")
    return PurePosixPath(path) == PurePosixPath(folder) / "checkpoints"


def _checkpoint(state: Mapping[str, Any]) -> CheckpointInfo:
    return CheckpointInfo(
        int(state["checkpoint_id"]),
        str(state["path"]),
        int(state["at_ms"]),
        int(state["bytes"]),
        bool(state["is_savepoint"]),
    )


def _shorten(text: object) -> str:
    """What an agent says: it becomes part of changes and events, which are kept."""
    return str(text)[:_LONGEST_ERROR]


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
