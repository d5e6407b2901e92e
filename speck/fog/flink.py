"""Starts a real Flink for one site, from the jars of `apache-flink-libraries`.

Runtime `single` (the default) is one small JVM (our `speck-runtime.jar`), for edges of 2 GB or
less. Runtime `cluster` runs JobManager and TaskManager in separate JVMs, like Flink's scripts.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speck.clock import SystemClock, rfc3339
from speck.errors import PermanentError
from speck.fog import flink_conf
from speck.fog.flink_conf import FlinkSettings
from speck.fog.paths import edge_jar, flink_folder
from speck.fog.ports import pick_port
from speck.fog.process import Command, Launch, Process, find_program, spawn, stop_all, wait_until
from speck.tls.identity import Identity

PORT = 8081

_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_MEMORY_TOOL = "org.apache.flink.runtime.util.bash.BashJavaUtils"
_MEMORY_LINE = "BASH_JAVA_UTILS_EXEC_RESULT:"
_INSTALL_JAVA = "install Java 17 or later (apt-get install default-jre-headless), or set JAVA_HOME"


@dataclass(frozen=True, slots=True)
class Flink:
    """A running engine. `processes` by name: `engine`, or `jobmanager` and `taskmanager`."""

    processes: Mapping[str, Process]
    host: str
    port: int
    folder: Path
    state: Path
    tls: Identity | None = None

    @property
    def url(self) -> str:
        """The address for a site's description: `http://host:port` or `https://host:port`."""
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"

    @property
    def state_uri(self) -> str:
        return flink_conf.uri(self.state)

    @property
    def log(self) -> Path:
        """The log of the process that serves the REST API."""
        return self.folder / "log" / f"{next(iter(self.processes))}.log"

    def stop(self, timeout_s: float = 15.0) -> None:
        """SIGTERM and wait."""
        stop_all(self.processes.values(), timeout_s)

    def kill(self) -> None:
        """SIGKILL and wait."""
        stop_all(self.processes.values(), 0.0)

    def __enter__(self) -> Flink:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    settings: FlinkSettings,
    *,
    running: Mapping[str, Process] | None = None,
    launch: Launch = spawn,
    timeout_s: float = 180.0,
) -> Flink:
    """Start an engine and wait until its REST API shows all slots.

    `running` holds processes of this engine that are up already; only the others are started, with
    the existing configuration (`settings.port` must then be given). If one of them ends meanwhile,
    because it was just being stopped, it is restarted.
    Raises PermanentError, with the log's last lines, when it does not come up within `timeout_s`.
    """
    port = settings.port if settings.port is not None else pick_port(settings.host)
    processes = dict(running or {})
    if not processes:
        flink_conf.write(settings, port)
    member = secrets.token_hex(8)
    single = settings.runtime == "single"
    commands = _build_single(settings) if single else _build_cluster(settings, member)
    engine = Flink(processes, settings.host, port, settings.folder, settings.state, settings.tls)
    started: dict[str, Process] = {}
    try:
        while True:
            for command in commands:
                if command.what not in processes:
                    _mark_start(command)
                    processes[command.what] = started[command.what] = launch(command)
            earlier = {what: p for what, p in processes.items() if what not in started}
            new = member if "taskmanager" in started else None
            _wait_ready(engine, commands, settings.slots, timeout_s, started, earlier, new)
            ended = [what for what, process in earlier.items() if not process.running]
            if not ended:
                return engine
            for what in ended:
                del processes[what]
    except BaseException:
        stop_all(started.values(), 0.0)
        raise


def overview(
    host: str, port: int, tls: Identity | None = None, timeout_s: float = 2.0
) -> dict[str, Any] | None:
    """The engine's own `/overview`; None when it does not answer."""
    return _get("/overview", host, port, tls, timeout_s)


def _get(
    path: str, host: str, port: int, tls: Identity | None, timeout_s: float = 2.0
) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    if tls is not None:
        context = tls.context()
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        return dict(json.loads(body)) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def find_java() -> Path:
    """Find Java in JAVA_HOME or PATH. Raises PermanentError with a hint how to install it."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home, "bin", "java"), os.X_OK):
        return Path(home, "bin", "java")
    return find_program("java", _INSTALL_JAVA)


def flink_jars(flink: Path) -> list[Path]:
    """The jars that a job without SQL needs: flink-dist and log4j."""
    lib = flink / "lib"
    return [*sorted(lib.glob("flink-dist*.jar")), *sorted(lib.glob("log4j-*.jar"))]


def _mark_start(command: Command) -> None:
    """Write when a process was started, behind the last words of the former one: that is how the
    binder tells how it ended (`binders.flink.ends`)."""
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with command.log.open("a") as log:
        log.write(f"speck: {command.what} started {rfc3339(SystemClock().now())}\n")


def _wait_ready(
    engine: Flink,
    commands: Sequence[Command],
    slots: int,
    timeout_s: float,
    started: Mapping[str, Process],
    earlier: Mapping[str, Process],
    member: str | None,
) -> None:
    """Wait until the engine shows its slots, or one of the `earlier` processes has ended. A
    TaskManager that was killed is shown until its heartbeats are missed: its slots are not those of
    the one that was started as `member`."""

    def ready() -> bool:
        if not all(process.running for process in earlier.values()):
            return True
        view = overview(engine.host, engine.port, engine.tls)
        return (
            view is not None
            and view.get("slots-total") == slots
            and (member is None or _has_member(engine, member))
        )

    logs = [path for command in commands for path in (command.log, command.log.with_suffix(".log"))]
    wait_until(ready, started, f"Flink at {engine.url}", logs, timeout_s)


def _has_member(engine: Flink, member: str) -> bool:
    view = _get("/taskmanagers", engine.host, engine.port, engine.tls) or {}
    return member in {each["id"] for each in view.get("taskmanagers", ())}


def _build_single(settings: FlinkSettings) -> list[Command]:
    heap = settings.task_heap_mb
    # SerialGC and only C1: small and quick to start. Many JVMs share this machine's cores.
    memory = [
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Xms{heap // 3}m",
        f"-Xmx{heap}m",
        "-XX:MaxMetaspaceSize=256m",
        "-XX:ReservedCodeCacheSize=64m",
        "-Xss512k",
    ]
    main = ["io.speck.runtime.EdgeSite", "--config-dir", str(settings.folder / "conf")]
    jar = settings.runtime_jar or edge_jar("speck-runtime.jar")
    return [_build_java(settings, "engine", memory, main, [jar])]


def _build_cluster(settings: FlinkSettings, member: str) -> list[Command]:
    """`member`: the resource id of its TaskManager."""
    conf = ["--configDir", str(settings.folder / "conf")]
    small = ["-XX:+UseSerialGC", "-Xss512k"]
    job_options, job_config = _compute_memory(settings, "GET_JM_RESOURCE_PARAMS")
    task_options, task_config = _compute_memory(settings, "GET_TM_RESOURCE_PARAMS")
    job_main = [_JOB_MANAGER, *conf, *job_config]
    task_main = [_TASK_MANAGER, *conf, *task_config, "-D", f"taskmanager.resource-id={member}"]
    return [
        _build_java(settings, "jobmanager", [*small, *job_options], job_main),
        _build_java(settings, "taskmanager", [*small, *task_options], task_main),
    ]


def _build_java(
    settings: FlinkSettings,
    what: str,
    memory: Sequence[str],
    main: Sequence[str],
    first: Sequence[Path] = (),
) -> Command:
    jars = [*first, *flink_jars(settings.flink or flink_folder()), *settings.class_path]
    folder = settings.folder
    argv = [
        str(find_java()),
        *memory,
        "-XX:+ExitOnOutOfMemoryError",
        # without it System.exit in a job ends the engine; Flink's own guard needs the security
        # manager, which Java 24 removed
        f"-javaagent:{settings.guard_jar or edge_jar('speck-exit-guard.jar')}",
        *flink_conf.JAVA_OPTIONS,
        f"-Dlog.file={folder / 'log' / what}.log",
        f"-Dlog4j.configurationFile=file:{folder / 'conf' / 'log4j.properties'}",
        *settings.java_options,
        "-cp",
        ":".join(str(jar) for jar in jars),
        *main,
    ]
    env = {
        "FLINK_CONF_DIR": str(folder / "conf"),
        "FLINK_PLUGINS_DIR": str(folder / "plugins"),
        "LC_ALL": flink_conf.LOCALE,
    }
    if settings.credentials is not None:
        env["SPECK_CREDENTIALS_DIR"] = str(settings.credentials)
    # Flink itself logs to <what>.log; the JVM's output goes to <what>.out
    return Command(what, argv, folder, folder / "log" / f"{what}.out", env)


def _compute_memory(settings: FlinkSettings, question: str) -> tuple[list[str], list[str]]:
    """JVM options and `-D` settings that Flink's own tool derives from config.yaml."""
    flink = settings.flink or flink_folder()
    tool = next(iter(sorted(flink.rglob("bash-java-utils.jar"))), None)
    if tool is None:
        raise PermanentError(f"cannot find bash-java-utils.jar below {flink}: reinstall Flink")
    jars = [tool, *flink_jars(flink)]
    argv = [str(find_java()), "-XX:TieredStopAtLevel=1", "-Xmx64m"]
    argv += ["-cp", ":".join(str(jar) for jar in jars), _MEMORY_TOOL, question]
    argv += ["--configDir", str(settings.folder / "conf")]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    lines = [
        line.partition(_MEMORY_LINE)[2].strip()
        for line in result.stdout.splitlines()
        if _MEMORY_LINE in line
    ]
    if result.returncode != 0 or len(lines) < 2:
        output = (result.stderr or result.stdout).strip().splitlines()[-5:]
        raise PermanentError("cannot compute Flink's memory settings: " + " ".join(output))
    return lines[0].split(), lines[1].split()
