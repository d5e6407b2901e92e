"""The configuration of a site's Flink: config.yaml, log4j.properties and JVM options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import yaml

from speck.fog.ports import pick_port
from speck.tls.identity import Identity

Runtime = Literal["single", "cluster"]

_OPEN_PACKAGES = (
    "java.base/java.lang",
    "java.base/java.net",
    "java.base/java.io",
    "java.base/java.nio",
    "java.base/java.text",
    "java.base/java.time",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/java.util.concurrent.locks",
    "java.base/sun.net.util",
    "java.base/sun.nio.ch",
)

JAVA_OPTIONS = (
    # Java 17 takes the locale's encoding: under LC_ALL=C a job's getBytes() makes ? of each umlaut
    "-Dfile.encoding=UTF-8",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPEN_PACKAGES),
)
"""What Flink's own scripts pass to its JVMs (`env.java.opts.all`), and one encoding everywhere."""

LOCALE = "C.UTF-8"
"""`LC_ALL` of every engine: names of files in UTF-8, and the same formats wherever a job runs."""

_LOG4J = """\
monitorInterval = 30
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
appender.file.name = file
appender.file.type = RollingFile
appender.file.fileName = ${sys:log.file}
appender.file.filePattern = ${sys:log.file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %-60c %x - %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 5MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
# one line for each checkpoint of each job, every second
logger.coordinator.name = org.apache.flink.runtime.checkpoint.CheckpointCoordinator
logger.coordinator.level = WARN
# Flink warns at every checkpoint of a job with a committer that it registers a metric twice
logger.metrics.name = org.apache.flink.metrics.MetricGroup
logger.metrics.level = ERROR
# each of Kafka's clients writes all its settings, a hundred lines, and each start opens several
logger.kafka.name = io.speck.shaded.kafka
logger.kafka.level = WARN
# twice a second for each client while a broker is away: our own connector says it, and less often
logger.network.name = io.speck.shaded.kafka.clients.NetworkClient
logger.network.level = ERROR
"""

# Folders of one engine; nothing in them is needed after it has ended.
_FOLDERS = ("conf", "log", "tmp", "work", "upload", "plugins")


@dataclass(frozen=True, slots=True)
class FlinkSettings:
    """The settings of a site's Flink.

    `state` is the folder of checkpoints and savepoints; sites that share it can exchange state.
    `class_path` lists jars besides Flink's own, e.g. the connector. `heap_mb` is the heap of the
    JVM that runs the tasks (None: derived from the number of slots). `config` is written to
    config.yaml and overrides our settings. `java_options` come last on the command line, so that
    they take precedence. `flink` is the folder of another Flink (for `cluster`), and `runtime_jar`
    and `guard_jar` other paths of `speck-runtime.jar` and `speck-exit-guard.jar`. With `tls`
    everything is encrypted, and the REST API asks for client certificates.
    """

    folder: Path
    state: Path
    slots: int = 8
    runtime: Runtime = "single"
    host: str = "127.0.0.1"
    port: int | None = None
    class_path: Sequence[Path] = ()
    checkpoint_interval_s: float = 1.0
    heap_mb: int | None = None
    credentials: Path | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    java_options: Sequence[str] = ()
    flink: Path | None = None
    runtime_jar: Path | None = None
    guard_jar: Path | None = None
    tls: Identity | None = None

    @property
    def task_heap_mb(self) -> int:
        return self.heap_mb if self.heap_mb is not None else 160 + 12 * self.slots


def uri(folder: Path) -> str:
    """`folder` as Flink names it, e.g. `file:///srv/fog/state`."""
    return f"file://{folder.absolute()}"


def write(settings: FlinkSettings, port: int) -> None:
    """Write the engine's `conf/` and create its folders."""
    for name in _FOLDERS:
        (settings.folder / name).mkdir(parents=True, exist_ok=True)
    settings.state.mkdir(parents=True, exist_ok=True)
    conf = settings.folder / "conf"
    secured = settings.tls.engine_settings() if settings.tls else {}
    values = {
        **_common_settings(settings, port),
        **_memory_settings(settings),
        **secured,
        **settings.config,
    }
    # keys in their dotted form, as in Flink's documentation
    (conf / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    (conf / "log4j.properties").write_text(_LOG4J)


def _common_settings(settings: FlinkSettings, port: int) -> dict[str, str | int]:
    folder, host, state = settings.folder.absolute(), settings.host, settings.state
    rest_log = "engine.log" if settings.runtime == "single" else "jobmanager.log"
    return {
        "rest.address": host,
        "rest.bind-address": host,
        "rest.port": port,
        "jobmanager.rpc.address": host,
        "jobmanager.bind-host": host,
        "taskmanager.host": host,
        "taskmanager.bind-host": host,
        "taskmanager.numberOfTaskSlots": settings.slots,
        "io.tmp.dirs": str(folder / "tmp"),
        "process.working-dir": str(folder / "work"),
        "web.log.path": str(folder / "log" / rest_log),
        # otherwise uploaded jars are deleted with the JobManager
        "web.upload.dir": str(folder / "upload"),
        # what a job prints goes to the log, which is rotated
        "taskmanager.system-out.mode": "LOG",
        # 50 s by default: so long a TaskManager continues its tasks after its JobManager died
        "heartbeat.interval": 2000,
        "heartbeat.timeout": 10000,
        "execution.checkpointing.interval": f"{round(settings.checkpoint_interval_s * 1000)}ms",
        "execution.checkpointing.dir": uri(state / "checkpoints"),
        "execution.checkpointing.savepoint-dir": uri(state / "savepoints"),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.num-retained": 5,
        # small state is then one _metadata file
        "execution.checkpointing.data-inline-threshold": "1mb",
        # so that a lost response can be requested again
        "rest.async.store-duration": "1h",
        # a trial of a main that never returns holds one of these threads; 4 by default
        "rest.server.numThreads": 16,
        # views are 3 s old by default
        "rest.cache.execution-graph.timeout": 500,
        "web.refresh-interval": 500,
        "metrics.fetcher.update-interval": 2000,
        # a list of jobs includes those that ended: by default all of the last hour
        "completed-application-store.max-capacity": 200,
    }


def _memory_settings(settings: FlinkSettings) -> dict[str, str | int]:
    """Memory settings: state is on the heap, and on one machine a few network buffers for each
    slot are enough."""
    if settings.runtime == "single":
        return {}  # speck-runtime's own defaults; the heap is given to the JVM
    network = f"{8 + 2 * settings.slots}m"
    heap = settings.task_heap_mb
    return {
        "jobmanager.rpc.port": pick_port(settings.host, 6123),
        "jobmanager.memory.heap.size": "192m",
        "jobmanager.memory.off-heap.size": "64m",
        "jobmanager.memory.jvm-metaspace.size": "192m",
        "jobmanager.memory.jvm-overhead.min": "64m",
        "jobmanager.memory.jvm-overhead.max": "64m",
        "taskmanager.memory.framework.heap.size": "64m",
        "taskmanager.memory.task.heap.size": f"{max(64, heap - 64)}m",
        "taskmanager.memory.framework.off-heap.size": "48m",
        # the MQTT client's buffers
        "taskmanager.memory.task.off-heap.size": "64m",
        "taskmanager.memory.managed.size": "0m",
        "taskmanager.memory.network.min": network,
        "taskmanager.memory.network.max": network,
        "taskmanager.memory.jvm-metaspace.size": "192m",
        "taskmanager.memory.jvm-overhead.min": "64m",
        "taskmanager.memory.jvm-overhead.max": "64m",
    }
