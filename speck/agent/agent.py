"""The agent's life: it registers its site, tells how it is, and asks what is to be done."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from speck.agent.folder import StateFolder
from speck.agent.host import HostLoad, cores
from speck.agent.listener import Listener
from speck.agent.web import Caller, Json
from speck.agent.work import Work
from speck.errors import PermanentError, SpeckError, UnreachableError

_POLL_S = 25.0
_AT_ONCE = 8
_FULL_S = 0.5


@dataclass(frozen=True, slots=True)
class Settings:
    """What an agent is started with.

    `state_folder` is the engine's, by the same path. `token_file` is read again at each call.
    `listen` (host, port) is where other agents reach this one, `advertise` how they name it.
    With `broker` and `engine` the site is registered when the service does not know it.
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
    engine_kind: str = "flink"
    broker_kind: str = "mqtt"
    credentials: str | None = None
    beat_s: float = 5.0


class Agent:
    """One site's agent; `run` returns after `stop`."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._folder = StateFolder(settings.state_folder)
        self._work = Work(self._folder, self._caller)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._doing: dict[str, threading.Event] = {}
        self._said = ""
        self._host = HostLoad()
        self._run_id = secrets.token_hex(8)
        self.listener: Listener | None = None

    def run(self) -> None:
        """Serve until `stop`. Raises PermanentError when it cannot begin."""
        listen = self._settings.listen
        if listen and listen[0] in ("0.0.0.0", "::") and not self._settings.advertise:
            raise PermanentError(
                f"cannot tell other agents to come to {listen[0]}: give --advertise with the"
                f" address of this machine, e.g. http://192.168.1.10:{listen[1]}"
            )
        self._folder.root.mkdir(parents=True, exist_ok=True)
        self._token()
        self._work.inbox.clear_old()
        if listen is not None:
            self.listener = Listener(*listen, self._work.inbox)
        beats = threading.Thread(target=self._beat_for_ever, name="beats", daemon=True)
        beats.start()
        try:
            self._poll_for_ever()
        finally:
            self.stop()
            if self.listener is not None:
                self.listener.close()

    def stop(self) -> None:
        """End soon; what is under way is left as it is and goes on with the next agent."""
        self._stopping.set()
        with self._lock:
            for given_up in self._doing.values():
                given_up.set()

    def _poll_for_ever(self) -> None:
        caller = self._caller()
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = 2.0
            try:
                status, answer = self._poll(caller)
            except SpeckError as error:
                self._say(str(error))
                continue
            if status == 200:
                self._say(f"{self._settings.site} is served at {self._settings.service}")
                begun_all = self._take(answer.get("commands", []))
                # what we know of is not told again; what we cannot begin yet would be, at once
                pause = max(float(answer.get("again", 0.0)), 0.0 if begun_all else _FULL_S)
            else:
                self._say(
                    f"cannot ask {self._settings.service} what to do:"
                    f" {answer.get('detail') or status}"
                )

    def _poll(self, caller: Caller) -> tuple[int, Json]:
        with self._lock:
            known = ",".join(
                identity for identity, given_up in self._doing.items() if not given_up.is_set()
            )
        path = f"/sites/{self._settings.site}/commands?wait={_POLL_S:.0f}"
        if known:
            path += f"&known={known}"
        return caller.json("GET", path, timeout_s=_POLL_S + 15)

    def _take(self, commands: list[Json]) -> bool:
        """Begin what is new, give up what is not there any more; false when some must wait."""
        wanted = {str(command["id"]): command for command in commands}
        with self._lock:
            for identity, given_up in self._doing.items():
                if identity not in wanted:
                    given_up.set()
            fresh = [command for identity, command in wanted.items() if identity not in self._doing]
            room = max(0, _AT_ONCE - len(self._doing))
            for command in fresh[:room]:
                given_up = self._doing[str(command["id"])] = threading.Event()
                threading.Thread(
                    target=self._do, args=(command, given_up), name=str(command["id"]), daemon=True
                ).start()
            return len(fresh) <= room

    def _do(self, command: Json, given_up: threading.Event) -> None:
        caller = self._caller()

        def tell(body: Json) -> None:
            try:
                self._answer(caller, command, body)
            except UnreachableError as error:
                self._say(str(error))

        try:
            body = self._work.do(command, tell, given_up)
            while not given_up.is_set():
                try:
                    self._answer(caller, command, body)
                    break
                except UnreachableError:
                    given_up.wait(1.0)
        finally:
            caller.close()
            with self._lock:
                self._doing.pop(str(command["id"]), None)

    def _answer(self, caller: Caller, command: Json, body: Json) -> None:
        caller.json("POST", f"/sites/{self._settings.site}/commands/{command['id']}", body)

    def _beat_for_ever(self) -> None:
        caller = self._caller()
        while not self._stopping.is_set():
            try:
                path = f"/sites/{self._settings.site}/heartbeat"
                status, answer = caller.json("POST", path, self.health())
                if status == 404:
                    self._register(caller)
                    continue
                if status != 200:
                    self._say(f"cannot report to {self._settings.service}: {answer.get('detail')}")
            except SpeckError as error:
                self._say(str(error))
            self._stopping.wait(self._settings.beat_s)

    def health(self) -> Json:
        """What a heartbeat tells."""
        body: Json = {
            "state_folder": str(self._folder.root),
            "listen": self._advertised(),
            "free_bytes": self._folder.free_bytes(),
            "load": round(os.getloadavg()[0], 2),
            "cpu": self._host.cpu(),
            "cores": cores(),
            "versions": {"agent": _version(), "python": sys.version.split()[0]},
            "run": self._run_id,
        }
        overview = self._overview()
        if overview:
            body["slots"] = {
                "total": overview.get("slots-total"),
                "free": overview.get("slots-available"),
            }
            body["versions"]["engine"] = overview.get("flink-version")
        return body

    def _overview(self) -> Json:
        if self._settings.engine is None or self._settings.engine_kind != "flink":
            return {}
        caller = Caller(self._settings.engine, lambda: None)
        try:
            status, answer = caller.json("GET", "/overview", timeout_s=3.0)
            return answer if status == 200 else {}
        except UnreachableError:
            return {}
        finally:
            caller.close()

    def _advertised(self) -> str | None:
        if self.listener is None:
            return None
        return self._settings.advertise or f"http://{self.listener.host}:{self.listener.port}"

    def _register(self, caller: Caller) -> None:
        """Register the site when we were told its addresses; else say how to."""
        given = self._settings
        if given.engine is None or given.broker is None:
            self._say(
                f"cannot report for site {given.site}: {given.service} does not know it; register"
                " it with `speck site add`, or start the agent with --engine and --broker"
            )
            self._stopping.wait(given.beat_s)
            return
        broker: dict[str, Any] = {"kind": given.broker_kind, "address": given.broker}
        if given.credentials is not None:
            broker["credentials"] = given.credentials
        site = {
            "name": given.site,
            "tier": given.tier,
            "spe": {"kind": given.engine_kind, "address": given.engine},
            "broker": broker,
        }
        status, answer = caller.json("POST", "/sites", site)
        if status not in (200, 201):
            self._say(f"cannot register site {given.site}: {answer.get('detail') or status}")
            self._stopping.wait(given.beat_s)

    def _caller(self) -> Caller:
        return Caller(self._settings.service, self._token)

    def _token(self) -> str | None:
        if self._settings.token_file is None:
            return None
        try:
            return self._settings.token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise PermanentError(
                f"cannot read the token file {self._settings.token_file}: {error}"
            ) from error

    def _say(self, message: str) -> None:
        """Once, until there is something else to say."""
        if message != self._said:
            self._said = message
            print(time.strftime("%H:%M:%S"), message, file=sys.stderr, flush=True)


def _version() -> str | None:
    try:
        return version("speck")
    except PackageNotFoundError:  # installed as plain files, see docker/systemd
        return None
