"""Carries out the control plane's commands, each in a thread of its own.

A command is `{"id", "kind", ...}`. `list` and `drop` are done at once. `receive`, `fetch` and
`send` are the halves of a transfer: the target receives pieces (or fetches them from the control
plane), and the source sends them to the target's listener or, if it cannot connect, to the control
plane. `watch`, `order` and `store` are for an engine that runs beside the agent
(`speck.agent.programs`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from speck.agent.folder import State, StateFolder, open_files
from speck.agent.framing import CorruptError, Stream
from speck.agent.inbox import Arrival, Inbox
from speck.agent.layout import StateLayout
from speck.agent.programs import Programs
from speck.agent.web import Caller, Json
from speck.errors import PermanentError, SpeckError, TransientError, UnreachableError
from speck.tls.contexts import TlsFiles

_PIECE_FIRST, _PIECE_LEAST, _PIECE_MOST = 1 << 16, 1 << 14, 1 << 20
_SLOW_S, _QUICK_S = 4.0, 0.5
_CALL_S = 120.0
_CONNECT_S = 5.0
_TELL_EVERY_S = 1.0
_FETCH_WAIT_S = 10.0
_DIRECT_TRIES = 3
_AGAIN_S = 0.2

Report = Callable[[Json], None]
"""Reports a command's progress to the control plane."""


class Work:
    """Carries out commands on one state folder. `tls` is for calls to other agents."""

    def __init__(
        self, folder: StateFolder, service: Callable[[], Caller], tls: TlsFiles | None = None
    ):
        self._folder = folder
        self._service = service
        self._tls = tls
        self._programs = Programs(folder.root)
        self.inbox = Inbox(folder)

    def do(self, command: Mapping[str, Any], report: Report, cancellation: threading.Event) -> Json:
        """Carry out a command and return its answer; never raises an Exception."""
        try:
            kind = {
                "list": self._list,
                "drop": self._drop,
                "receive": self._receive,
                "fetch": self._fetch,
                "send": self._send,
                "watch": self._programs.watch,
                "order": self._programs.order,
                "store": self._programs.store,
            }.get(command["kind"])
            if kind is None:
                raise PermanentError(
                    f"cannot do {command['kind']!r}: this agent does not support it; update the"
                    " agent"
                )
            return {"state": "done", **kind(command, report, cancellation)}
        except SpeckError as error:
            again = isinstance(error, TransientError | CorruptError)
            return {"state": "failed", "error": str(error), "again": again}
        except (OSError, LookupError, ValueError, TypeError, AttributeError) as error:
            return {
                "state": "failed",
                "error": f"cannot {command['kind']}: {error!r}",
                "again": True,
            }

    def _list(self, command: Mapping[str, Any], _: Report, __: threading.Event) -> Json:
        engine_job_id = command["engine_job_id"]
        if not engine_job_id.isalnum():
            raise PermanentError(f"cannot list {engine_job_id!r}: it is not an engine job id")
        states = [
            state
            for layout in _layouts(command)
            for state in self._folder.states(engine_job_id, layout, command.get("folder"))
        ]
        states.sort(key=lambda state: (state.number, state.at_ms), reverse=True)
        return {"states": [_state_to_json(state) for state in states[:5]]}

    def _drop(self, command: Mapping[str, Any], _: Report, __: threading.Event) -> Json:
        layout = self._folder.find_layout(command["path"], _layouts(command))
        self._folder.drop(command["path"], layout)
        return {}

    def _receive(
        self, command: Mapping[str, Any], report: Report, cancellation: threading.Event
    ) -> Json:
        """Receive pieces until the state is complete; report `ready` when the source may start."""
        arrival = self.inbox.begin(
            command["transfer"], command["job_name"], command["secret"], command.get("total")
        )
        if isinstance(arrival, Path):
            return _location_of(arrival)
        report({"state": "ready", "bytes": arrival.received})
        try:
            while not arrival.complete:
                arrival.changed.wait(_TELL_EVERY_S)
                arrival.changed.clear()
                if cancellation.is_set():
                    raise TransientError("cannot continue to receive: the command was withdrawn")
                report({"state": "ready", "bytes": arrival.received, "total": arrival.total})
            return _location_of(self.inbox.finish(arrival))
        finally:
            self.inbox.end(arrival)

    def _fetch(self, command: Mapping[str, Any], _: Report, cancellation: threading.Event) -> Json:
        """Fetch the pieces from the control plane, for an arrival that `receive` has started."""
        caller = self._service()
        try:
            while not cancellation.is_set():
                arrival = self.inbox.find(command["transfer"], command["secret"])
                if arrival is None:  # `receive` has not started yet, or has ended
                    cancellation.wait(_AGAIN_S)
                elif arrival.complete:
                    break
                else:
                    self._fetch_piece(caller, arrival, command["transfer"])
        finally:
            caller.close()
        return {}

    def _fetch_piece(self, caller: Caller, arrival: Arrival, transfer: str) -> None:
        path = f"/transfers/{transfer}?offset={arrival.received}&wait={_FETCH_WAIT_S:.0f}"
        status, piece = caller.call("GET", path, timeout_s=_CALL_S)
        if status == 200:
            head, _, rest = piece.partition(b"\n")
            offset, _, total = head.partition(b"/")
            self.inbox.append(arrival, int(offset), int(total), rest)
        elif status in (204, 503):
            time.sleep(_AGAIN_S)
        else:
            raise TransientError(f"cannot fetch {transfer}: the control plane answered {status}")

    def _send(
        self, command: Mapping[str, Any], report: Report, cancellation: threading.Event
    ) -> Json:
        layout = self._folder.find_layout(command["path"], _layouts(command))
        state = self._folder.state(command["path"], layout, command.get("engine_job_id"))
        with open_files(state, layout) as files:
            return self._send_stream(command, Stream(files), report, cancellation)

    def _send_stream(
        self,
        command: Mapping[str, Any],
        stream: Stream,
        report: Report,
        cancellation: threading.Event,
    ) -> Json:
        last_report = [0.0]

        def progress(sent: int, way: str) -> None:
            if cancellation.is_set():
                raise TransientError("cannot continue to send: the command was withdrawn")
            if time.monotonic() - last_report[0] > _TELL_EVERY_S:
                last_report[0] = time.monotonic()
                report({"state": "working", "bytes": sent, "total": stream.size, "way": way})

        way = "direct"
        if not self._direct(command, stream, progress):
            way = "relayed"
            self._relay(command, stream, progress)
        return {"bytes": stream.size, "way": way}

    def _direct(
        self, command: Mapping[str, Any], stream: Stream, progress: Callable[[int, str], None]
    ) -> bool:
        """Send directly to the target; false when it cannot be reached."""
        if not command.get("to"):
            return False
        caller = Caller(command["to"], lambda: str(command["secret"]), self._tls)
        at = [0]
        try:
            for _ in range(_DIRECT_TRIES):
                try:
                    caller.connect(_CONNECT_S)
                    _send_pieces(caller, command["transfer"], stream, at, progress, "direct")
                    return True
                except UnreachableError:
                    if at[0] == 0:
                        break
        finally:
            caller.close()
        return False

    def _relay(
        self, command: Mapping[str, Any], stream: Stream, progress: Callable[[int, str], None]
    ) -> None:
        caller = self._service()
        try:
            _send_pieces(caller, command["transfer"], stream, [0], progress, "relayed")
        finally:
            caller.close()


def _send_pieces(
    caller: Caller,
    transfer: str,
    stream: Stream,
    at: list[int],
    progress: Callable[[int, str], None],
    way: str,
) -> None:
    """Send everything from `at[0]` on, or from the receiver's position.

    Pieces grow on a fast link and shrink on a slow one. Raises UnreachableError, PermanentError.
    """
    size = _PIECE_FIRST
    while at[0] < stream.size:
        progress(at[0], way)
        piece = stream.read(at[0], size)
        began = time.monotonic()
        status, answer = caller.json(
            "PUT",
            f"/transfers/{transfer}?offset={at[0]}&total={stream.size}",
            raw=piece,
            media="application/octet-stream",
            timeout_s=_CALL_S,
        )
        received = answer.get("received")
        if status == 200 or (status == 409 and received not in (None, at[0])):
            at[0] = int(received or 0)
            time.sleep(float(answer.get("pause", 0)))
        elif status == 503:
            time.sleep(_AGAIN_S)
        else:
            detail = answer.get("detail") or f"status {status}"
            kind = TransientError if status in (403, 404, 409, 507) else PermanentError
            raise kind(f"cannot send state to {caller.url}: {detail}")
        took = time.monotonic() - began
        if took > _SLOW_S:
            size = max(_PIECE_LEAST, size // 2)
        elif took < _QUICK_S:
            size = min(_PIECE_MOST, size * 2)


def _layouts(command: Mapping[str, Any]) -> list[StateLayout]:
    """Those of the site's engines. Raises PermanentError."""
    layouts = command.get("layouts")
    if not isinstance(layouts, list) or not layouts:
        raise PermanentError(
            f"cannot {command['kind']}: it is not said how the engine lays out its states; update"
            " the service"
        )
    return [StateLayout.from_json(layout) for layout in layouts]


def _location_of(folder: Path) -> Json:
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {"location": f"file://{folder}", "bytes": size}


def _state_to_json(state: State) -> Json:
    return {
        "location": f"file://{state.folder}",
        "number": state.number,
        "at_ms": state.at_ms,
        "bytes": state.bytes,
        "on_request": state.on_request,
    }
