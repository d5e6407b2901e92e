"""The agent's main loops: it registers its site, sends heartbeats and polls for commands."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from speck.agent.folder import StateFolder
from speck.agent.host import HostLoad, cores, read_memory
from speck.agent.listener import Listener
from speck.agent.web import Caller, Json
from speck.agent.work import Work
from speck.errors import PermanentError, SpeckError, UnreachableError
from speck.tls.contexts import TlsFiles

_POLL_S = 25.0
_AT_ONCE = 8
_FULL_S = 0.5


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an agent.

    `state_folder` is the engine's, under the same path. `token_file` is read at each call.
    Other agents reach this one at `listen` (host, port), under the URL `advertise` if given. There
    it serves TLS with `tls_cert` and `tls_key`, and with `client_ca` only to agents with a
    certificate of that authority. `ca` is the authority that signed the certificates of the service
    and of other agents; `cert` and `key` are presented to them. With `broker` and, if
    its kind has an address, `engine` the agent registers the site if the service does not know it.
    """

    site: str
    service: str
    state_folder: Path
    token_file: Path | None = None
    listen: tuple[str, int] | None = None
    advertise: str | None = None
    engine: str | None = None
    broker: str | None = None
    tier: str = "edge"
    engine_kind: str | None = None
    broker_kind: str | None = None
    credentials: str | None = None
    engine_credentials: str | None = None
    beat_s: float = 5.0
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


class Agent:
    """One site's agent; `run` returns after `stop`."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._folder = StateFolder(settings.state_folder)
        self._tls = TlsFiles.of_client(settings.ca, settings.cert, settings.key)
        self._work = Work(self._folder, self._caller, self._tls)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._running: dict[str, threading.Event] = {}
        self._last_message = ""
        self._host = HostLoad()
        self._run_id = secrets.token_hex(8)
        self.listener: Listener | None = None

    def run(self) -> None:
        """Run until `stop` is called. Raises PermanentError when it cannot start."""
        listen = self._settings.listen
        if listen and listen[0] in ("0.0.0.0", "::") and not self._settings.advertise:
            raise PermanentError(
                f"cannot let other agents connect to {listen[0]}: give --advertise with the"
                f" address of this machine, e.g. http://192.168.1.10:{listen[1]}"
            )
        tls = self._read_tls()
        self._folder.root.mkdir(parents=True, exist_ok=True)
        self._token()
        self._work.inbox.clear_old()
        if listen is not None:
            self.listener = Listener(*listen, self._work.inbox, tls)
        beats = threading.Thread(target=self._send_heartbeats, name="beats", daemon=True)
        beats.start()
        try:
            self._poll_commands()
        finally:
            self.stop()
            if self.listener is not None:
                self.listener.close()

    def _read_tls(self) -> TlsFiles | None:
        settings = self._settings
        if settings.tls_cert is None:
            if settings.tls_key or settings.client_ca:
                raise PermanentError("cannot use --tls-key or --client-ca without --tls-cert")
            return None
        key = settings.tls_key or settings.tls_cert
        return TlsFiles.of_server(settings.tls_cert, key, settings.client_ca)

    def stop(self) -> None:
        """Stop soon. Running transfers are left as they are; the next agent continues them."""
        self._stopping.set()
        with self._lock:
            for cancellation in self._running.values():
                cancellation.set()

    def _poll_commands(self) -> None:
        caller = self._caller()
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = 2.0
            try:
                status, answer = self._poll(caller)
            except SpeckError as error:
                self._log(str(error))
                continue
            if status == 200:
                self._log(f"{self._settings.site} is served at {self._settings.service}")
                all_started = self._start_new(answer.get("commands", []))
                # the service does not repeat known commands, but would at once repeat those that
                # could not be started yet
                pause = max(float(answer.get("again", 0.0)), 0.0 if all_started else _FULL_S)
            else:
                self._log(
                    f"cannot get commands from {self._settings.service}:"
                    f" {answer.get('detail') or status}"
                )

    def _poll(self, caller: Caller) -> tuple[int, Json]:
        with self._lock:
            known = ",".join(
                identity
                for identity, cancellation in self._running.items()
                if not cancellation.is_set()
            )
        identity = self._folder.identity()
        path = f"/sites/{self._settings.site}/commands?wait={_POLL_S:.0f}&agent={identity}"
        if known:
            path += f"&known={known}"
        return caller.json("GET", path, timeout_s=_POLL_S + 15)

    def _start_new(self, commands: list[Json]) -> bool:
        """Start new commands and cancel those that are no longer open; false when some must
        wait."""
        open_commands = {str(command["id"]): command for command in commands}
        with self._lock:
            for identity, cancellation in self._running.items():
                if identity not in open_commands:
                    cancellation.set()
            new_commands = [
                command
                for identity, command in open_commands.items()
                if identity not in self._running
            ]
            room = max(0, _AT_ONCE - len(self._running))
            for command in new_commands[:room]:
                cancellation = self._running[str(command["id"])] = threading.Event()
                threading.Thread(
                    target=self._do,
                    args=(command, cancellation),
                    name=str(command["id"]),
                    daemon=True,
                ).start()
            return len(new_commands) <= room

    def _do(self, command: Json, cancellation: threading.Event) -> None:
        caller = self._caller()

        def report(body: Json) -> None:
            try:
                self._answer(caller, command, body)
            except UnreachableError as error:
                self._log(str(error))

        try:
            body = self._work.do(command, report, cancellation)
            while not cancellation.is_set():
                try:
                    self._answer(caller, command, body)
                    break
                except UnreachableError:
                    cancellation.wait(1.0)
        finally:
            caller.close()
            with self._lock:
                self._running.pop(str(command["id"]), None)

    def _answer(self, caller: Caller, command: Json, body: Json) -> None:
        caller.json("POST", f"/sites/{self._settings.site}/commands/{command['id']}", body)

    def _send_heartbeats(self) -> None:
        caller = self._caller()
        while not self._stopping.is_set():
            try:
                path = f"/sites/{self._settings.site}/heartbeat"
                status, answer = caller.json("POST", path, self.health())
                if status == 404:
                    self._register(caller)
                    continue
                if status != 200:
                    self._log(f"cannot report to {self._settings.service}: {answer.get('detail')}")
            except SpeckError as error:
                self._log(str(error))
            self._stopping.wait(self._settings.beat_s)

    def health(self) -> Json:
        """The body of a heartbeat."""
        memory_bytes, available_bytes = read_memory()
        body: Json = {
            "identity": self._folder.identity(),
            "state_folder": str(self._folder.root),
            "listen": self._build_listen_url(),
            "free_bytes": self._folder.free_bytes(),
            "load": round(os.getloadavg()[0], 2),
            "cpu": self._host.cpu(),
            "cores": cores(),
            "memory_bytes": memory_bytes,
            "memory_available_bytes": available_bytes,
            "versions": {"agent": _version(), "python": sys.version.split()[0]},
            "run": self._run_id,
        }
        return body

    def _build_listen_url(self) -> str | None:
        if self.listener is None:
            return None
        listener = self.listener
        return self._settings.advertise or f"{listener.scheme}://{listener.host}:{listener.port}"

    def _register(self, caller: Caller) -> None:
        """Register the site if its addresses are configured; otherwise log how to register it."""
        settings = self._settings
        if settings.broker is None:
            self._log(
                f"cannot report for site {settings.site}: {settings.service} does not know it;"
                " register it with `speck site add`, or start the agent with --engine and --broker"
            )
            self._stopping.wait(settings.beat_s)
            return
        ends = {
            "spe": (settings.engine_kind, settings.engine, settings.engine_credentials),
            "broker": (settings.broker_kind, settings.broker, settings.credentials),
        }
        site: Json = {"name": settings.site, "tier": settings.tier}
        for part, values in ends.items():
            given = zip(("kind", "address", "credentials"), values, strict=True)
            site[part] = {name: value for name, value in given if value is not None}
        status, answer = caller.json("POST", "/sites", site)
        if status not in (200, 201):
            self._log(f"cannot register site {settings.site}: {answer.get('detail') or status}")
            self._stopping.wait(settings.beat_s)

    def _caller(self) -> Caller:
        return Caller(self._settings.service, self._token, self._tls)

    def _token(self) -> str | None:
        if self._settings.token_file is None:
            return None
        try:
            return self._settings.token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise PermanentError(
                f"cannot read the token file {self._settings.token_file}: {error}"
            ) from error

    def _log(self, message: str) -> None:
        """Print a message, unless it repeats the last one or the agent was told to stop: what a
        call finds that outlives the stop is no news."""
        if message != self._last_message and not self._stopping.is_set():
            self._last_message = message
            # it holds words of the service and of other agents
            plain = message if message.isprintable() else ascii(message)[1:-1]
            print(time.strftime("%H:%M:%S"), plain, file=sys.stderr, flush=True)


def _version() -> str | None:
    try:
        return version("speck")
    except PackageNotFoundError:  # installed as plain files, see docker/systemd
        return None
