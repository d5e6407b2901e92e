"""Finds settings of Flink that lose data or starve jobs, each with the line that corrects it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from binders.flink import jvm as jvms
from binders.flink.jvm import Jvm
from binders.flink.settings import Settings, milliseconds, size_bytes
from speck.model.finding import Finding
from speck.model.observation import EngineView, RunState

UNSET = "not set"
_OLDEST, _NEWEST = (1, 20), 2

CHECKPOINT_DIR = ("execution.checkpointing.dir", "state.checkpoints.dir")
_INTERVAL = "execution.checkpointing.interval"


@dataclass(frozen=True, slots=True)
class _Rule:
    """`good` checks the effective value: the one set under `names`, else Flink's `default`."""

    severity: str
    names: tuple[str, ...]
    default: str | None
    good: Callable[[str], bool]
    why: str
    mend: str

    def finding(self, settings: Settings) -> Finding | None:
        setting = settings.get(*self.names)
        value = setting if setting is not None else self.default
        if value is not None and self.good(value):
            return None
        description = setting if setting is not None else _describe_unset(self.default)
        return Finding(self.severity, self.names[0], description, self.why, self.mend)


def _describe_unset(default: str | None) -> str:
    return f"{UNSET} (Flink's default: {default})" if default is not None else UNSET


def _at_most(limit: str) -> Callable[[str], bool]:
    most = milliseconds(limit)
    return lambda text: most is not None and (milliseconds(text) or 0) <= most


def _at_least(limit: str) -> Callable[[str], bool]:
    least = milliseconds(limit)

    def good(text: str) -> bool:
        value = milliseconds(text)
        return value is None or least is None or value >= least

    return good


def _is(*words: str) -> Callable[[str], bool]:
    return lambda text: text.strip().lower() in words


def _is_not(*words: str) -> Callable[[str], bool]:
    return lambda text: text.strip().lower() not in words


def _any(_: str) -> bool:
    return True


_RULES = (
    _Rule(
        "error",
        CHECKPOINT_DIR,
        None,
        _any,
        "checkpoints are kept in the JobManager's memory and are lost with it, and messages"
        " acknowledged at them too",
        "execution.checkpointing.dir: file:///var/lib/flink/checkpoints",
    ),
    _Rule(
        "error",
        ("execution.checkpointing.storage", "state.checkpoint-storage"),
        "filesystem",
        _is_not("jobmanager"),
        "checkpoints are kept in the JobManager's memory and are lost with it, whatever folder"
        " is set",
        "execution.checkpointing.storage: filesystem",
    ),
    _Rule(
        "error",
        ("execution.checkpointing.savepoint-dir", "state.savepoints.dir"),
        None,
        _any,
        "a stop with savepoint that names no folder is refused",
        "execution.checkpointing.savepoint-dir: file:///var/lib/flink/savepoints",
    ),
    _Rule(
        "error",
        ("execution.checkpointing.externalized-checkpoint-retention",),
        "NO_EXTERNALIZED_CHECKPOINTS",
        _is("retain_on_cancellation"),
        "cancelling a job deletes its checkpoints; after a failed stop it has no state to resume"
        " from, although its input is acknowledged",
        "execution.checkpointing.externalized-checkpoint-retention: RETAIN_ON_CANCELLATION",
    ),
    _Rule(
        "error",
        (_INTERVAL,),
        None,
        lambda text: milliseconds(text) is None or (milliseconds(text) or 0) > 0,
        "a job that does not ask for checkpoints itself never completes one: its input is never"
        " acknowledged, fills the broker's queue and is read again after a restart",
        f"{_INTERVAL}: 1s",
    ),
    _Rule(
        "error",
        ("execution.checkpointing.mode", "execution.checkpointing.consistency-mode"),
        "EXACTLY_ONCE",
        _is("exactly_once"),
        "a checkpoint that does not align its inputs counts records twice after a restart",
        "execution.checkpointing.mode: EXACTLY_ONCE",
    ),
    _Rule(
        "error",
        ("web.submit.enable",),
        "true",
        _is("true"),
        "jars cannot be uploaded or run over REST, so no job can be deployed",
        "web.submit.enable: true",
    ),
    _Rule(
        "error",
        ("restart-strategy.type", "restart-strategy"),
        "exponential-delay",
        _is_not("none", "off", "disable", "disabled"),
        "a job fails for good at its first failure, e.g. when its broker restarts",
        "restart-strategy.type: exponential-delay",
    ),
    _Rule(
        "warning",
        ("web.upload.dir",),
        None,
        _any,
        "uploaded jars are lost with the JobManager, so that every job's jar is uploaded again",
        "web.upload.dir: /var/lib/flink/upload",
    ),
    _Rule(
        "warning",
        ("execution.checkpointing.num-retained", "state.checkpoints.num-retained"),
        "1",
        lambda text: not text.strip().isdigit() or int(text) >= 3,
        "if one file is damaged, there is no other checkpoint to resume from",
        "execution.checkpointing.num-retained: 5",
    ),
    _Rule(
        "warning",
        ("execution.checkpointing.data-inline-threshold", "state.storage.fs.memory-threshold"),
        "20kb",
        lambda text: (size := size_bytes(text)) is None or size >= 100 * 1024,
        "each checkpoint of a small state is many small files instead of one, and a job that starts"
        " again reads them byte by byte",
        "execution.checkpointing.data-inline-threshold: 1mb",
    ),
    _Rule(
        "warning",
        ("heartbeat.timeout",),
        "50 s",
        _at_most("20 s"),
        "for this long a TaskManager keeps running old tasks after its JobManager has died, beside"
        " the restarted ones, and for this long a dead TaskManager goes unnoticed",
        "heartbeat.timeout: 10000",
    ),
    _Rule(
        "warning",
        ("heartbeat.interval",),
        "10 s",
        _at_most("5 s"),
        "too few heartbeats fit into a short heartbeat.timeout: one lost packet restarts jobs",
        "heartbeat.interval: 2000",
    ),
    _Rule(
        "warning",
        ("metrics.fetcher.update-interval",),
        "10 s",
        lambda text: milliseconds(text) != 0 and _at_most("5 s")(text),
        "metrics are late (0: never updated), and so are rates and placement",
        "metrics.fetcher.update-interval: 2000",
    ),
    _Rule(
        "warning",
        ("rest.async.store-duration",),
        "5 min",
        _at_least("30 min"),
        "Flink forgets the outcome of a savepoint before speck reaches a disconnected site again",
        "rest.async.store-duration: 1h",
    ),
    _Rule(
        "warning",
        ("rest.cache.execution-graph.timeout", "web.refresh-interval"),
        "3 s",
        _at_most("1 s"),
        "the engine's reports on jobs are this old, so that every change takes longer",
        "rest.cache.execution-graph.timeout: 500",
    ),
    _Rule(
        "warning",
        ("rest.cache.checkpoint-statistics.timeout", "web.refresh-interval"),
        "3 s",
        _at_most("1 s"),
        "the engine's reports on checkpoints are this old; finding the newest one has to wait",
        "rest.cache.checkpoint-statistics.timeout: 500",
    ),
)


def findings(settings: Settings, view: EngineView, jvm: Jvm) -> list[Finding]:
    """Findings from the settings, the view and the JVM, errors first."""
    result = jvms.findings(settings, jvm)
    result += [finding for rule in _RULES if (finding := rule.finding(settings)) is not None]
    result += _check_slots(settings, view) + _check_exposure(settings)
    return sorted(result, key=lambda finding: finding.severity != "error")


def version_finding(version: str) -> Finding | None:
    """Check the version of the engine, as far as it begins like one."""
    numbers = re.match(r"(\d{1,4})\.(\d{1,4})\b", version)
    if numbers is None:
        return None
    is_old = (int(numbers[1]), int(numbers[2])) < _OLDEST
    if not is_old and int(numbers[1]) <= _NEWEST:
        return None
    return Finding(
        "error" if is_old else "warning",
        "version",
        version,
        "it lacks calls that speck needs" if is_old else "speck has not been tried with it",
        "# run Flink 1.20 or 2.x",
    )


def interval_s(config: Mapping[str, Any] | None) -> float | None:
    """A job's checkpoint interval, from `/jobs/:id/checkpoints/config`; None: no checkpoints."""
    interval_ms = float(config["interval"]) if config is not None else 0.0
    return interval_ms / 1000 if 0 < interval_ms < 2**62 else None


def job_finding(name: str, config: Mapping[str, Any] | None) -> Finding | None:
    """Check `/jobs/:id/checkpoints/config` of one running job; None: it takes no checkpoints."""
    if interval_s(config) is None:
        return Finding(
            "error",
            _INTERVAL,
            f"job {name} takes no checkpoints",
            "its input is never acknowledged, and is read again after a restart",
            f"{_INTERVAL}: 1s",
        )
    retention = config["externalization"] if config is not None else {}
    if not retention.get("enabled") or retention.get("delete_on_cancellation"):
        return Finding(
            "error",
            "execution.checkpointing.externalized-checkpoint-retention",
            f"job {name} deletes its checkpoints when it is cancelled",
            "after a failed stop it has no state to resume from, while its input is acknowledged",
            "execution.checkpointing.externalized-checkpoint-retention: RETAIN_ON_CANCELLATION",
        )
    return None


def _check_slots(settings: Settings, view: EngineView) -> list[Finding]:
    name = "taskmanager.numberOfTaskSlots"
    slots = view.slots
    if slots is None:
        return []
    if slots.total == 0:
        why = "no TaskManager has offered a slot: no job can run; start one"
        return [Finding("error", name, "0 slots", why, f"{name}: 8")]
    waiting = [job.name for job in view.jobs.values() if job.state is RunState.STARTING]
    if slots.free == 0 and waiting:
        description = f"{settings.get(name) or slots.total}: no slot of {slots.total} is free"
        why = "jobs may wait for a slot in vain: " + ", ".join(sorted(waiting)[:5])
        return [Finding("warning", name, description, why, f"{name}: {2 * slots.total}")]
    return []


def _check_exposure(settings: Settings) -> list[Finding]:
    """Flink's REST API runs any code that it receives; only client certificates prevent that."""
    if (settings.get("security.ssl.rest.authentication-enabled") or "").lower() == "true":
        return []
    address = settings.get("rest.bind-address")
    if address is not None and _is_loopback(address):
        return []
    where = "every interface" if address in (None, "0.0.0.0", "::") else str(address)
    return [
        Finding(
            "warning",
            "rest.bind-address",
            address if address is not None else _describe_unset("0.0.0.0"),
            f"anyone who can connect to {where} can run any code here: Flink's REST API accepts"
            " jars from everyone; bind it to loopback or to a private network of speck's",
            "rest.bind-address: 127.0.0.1",
        )
    ]


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
