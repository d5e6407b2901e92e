"""Flink's settings: durations and sizes in Flink's notation, and the faults in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from binders.flink import check
from binders.flink.check import job_finding, version_finding
from binders.flink.jvm import GUARD_JAR, MEND, Jvm, metaspace_finding
from binders.flink.settings import Settings, milliseconds, size_bytes
from speck.fog import flink_conf
from speck.fog.flink_conf import FlinkSettings
from speck.model.finding import Finding
from speck.model.observation import EngineJob, EngineView, RunState, Slots

IDLE = EngineView("2.3.0", Slots(8, 8), {})
OURS = Jvm(17, (f"-javaagent:/opt/speck/lib/{GUARD_JAR}", *flink_conf.JAVA_OPTIONS))


def findings(settings: Settings, view: EngineView, jvm: Jvm = OURS) -> list[Finding]:
    return check.findings(settings, view, jvm)


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("1.9.3", "error"),
        ("1.19.0", "error"),
        ("1.20.5", None),
        ("2.3.0", None),
        ("2.10-SNAPSHOT", None),
        ("3.0.0", "warning"),
        ("<unknown>", None),
        ("20260101", None),
    ],
)
def test_versions_that_speck_cannot_use_are_named(version: str, severity: str | None) -> None:
    finding = version_finding(version)
    assert (finding.severity if finding is not None else None) == severity
    if finding is not None:
        assert (finding.value, finding.mend) == (version, "# run Flink 1.20 or 2.x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2000", 2000),
        ("10 s", 10_000),
        ("5min", 300_000),
        ("1h", 3_600_000),
        ("300ms", 300),
        ("PT1M30S", 90_000),
        ("P1D", 86_400_000),
        ("soon", None),
        ("5 fortnights", None),
    ],
)
def test_durations(text: str, expected: float | None) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4096", 4096), ("20kb", 20480), ("1 mb", 1 << 20), ("2G", 2 << 30), ("much", None)],
)
def test_sizes(text: str, expected: int | None) -> None:
    assert size_bytes(text) == expected


def fog_settings(folder: Path, **changes: str | None) -> Settings:
    """What `speck fog` writes, with `changes` by key ("_" for ".", None: not set)."""
    settings = FlinkSettings(folder=folder / "engine", state=folder / "state")
    flink_conf.write(settings, 8081)
    written = yaml.safe_load((folder / "engine" / "conf" / "config.yaml").read_text())
    values = {str(key): str(value) for key, value in written.items()}
    for key, value in changes.items():
        values.pop(key, None)
        if value is not None:
            values[key] = value
    return Settings(values)


def test_the_fogs_own_settings_are_good(tmp_path: Path) -> None:
    assert findings(fog_settings(tmp_path), IDLE) == []


def test_an_unconfigured_flink_has_every_fault_errors_first() -> None:
    faults = findings(Settings({}), IDLE, Jvm(17))
    assert [finding.setting for finding in faults if finding.severity == "error"] == [
        "cluster.intercept-user-system-exit",
        "execution.checkpointing.dir",
        "execution.checkpointing.savepoint-dir",
        "execution.checkpointing.externalized-checkpoint-retention",
        "execution.checkpointing.interval",
    ]
    assert [finding.setting for finding in faults if finding.severity == "warning"] == [
        "file.encoding",
        "web.upload.dir",
        "execution.checkpointing.num-retained",
        "execution.checkpointing.data-inline-threshold",
        "heartbeat.timeout",
        "heartbeat.interval",
        "metrics.fetcher.update-interval",
        "rest.async.store-duration",
        "rest.cache.execution-graph.timeout",
        "rest.cache.checkpoint-statistics.timeout",
        "rest.bind-address",
    ]
    assert faults[0] == Finding(
        "error",
        "cluster.intercept-user-system-exit",
        "not set (Flink's default: DISABLED)",
        "a job that calls System.exit ends the engine's process and every job in it; speck's agent"
        " prevents that",
        MEND,
    )


def test_every_mend_mends() -> None:
    """The lines of all findings, put into an empty configuration, leave none."""
    mended = yaml.safe_load("\n".join(each.mend for each in findings(Settings({}), IDLE, Jvm(17))))
    settings = Settings({key: str(value) for key, value in mended.items()})
    assert findings(settings, IDLE, Jvm(17)) == []


@pytest.mark.parametrize(
    ("key", "value", "severity"),
    [
        ("execution.checkpointing.storage", "jobmanager", "error"),
        (
            "execution.checkpointing.externalized-checkpoint-retention",
            "DELETE_ON_CANCELLATION",
            "error",
        ),
        ("execution.checkpointing.interval", "0", "error"),
        ("execution.checkpointing.mode", "AT_LEAST_ONCE", "error"),
        ("web.submit.enable", "false", "error"),
        ("restart-strategy.type", "none", "error"),
        ("execution.checkpointing.num-retained", "2", "warning"),
        ("heartbeat.interval", "10000", "warning"),
        ("metrics.fetcher.update-interval", "0", "warning"),
        ("rest.bind-address", "0.0.0.0", "warning"),
        ("rest.bind-address", "10.0.0.5", "warning"),
        ("rest.bind-address", "flink.example", "warning"),
    ],
)
def test_each_bad_value_is_found(tmp_path: Path, key: str, value: str, severity: str) -> None:
    faults = findings(fog_settings(tmp_path, **{key: value}), IDLE)
    assert [(each.setting, each.value, each.severity) for each in faults] == [
        (key, value, severity)
    ]
    assert faults[0].mend.startswith(f"{key}: ")


def test_names_of_flink_1_are_understood(tmp_path: Path) -> None:
    older = fog_settings(
        tmp_path,
        **{
            "execution.checkpointing.dir": None,
            "state.checkpoints.dir": "file:///c",
            "execution.checkpointing.savepoint-dir": None,
            "state.savepoints.dir": "file:///s",
            "execution.checkpointing.num-retained": None,
            "state.checkpoints.num-retained": "5",
            "rest.cache.execution-graph.timeout": None,
            "rest.cache.checkpoint-statistics.timeout": None,
            "web.refresh-interval": "500",
        },
    )
    assert findings(older, IDLE) == []
    assert older.checkpoint_cache_ms == 500


def test_client_certificates_make_an_open_address_safe(tmp_path: Path) -> None:
    settings = fog_settings(
        tmp_path,
        **{"rest.bind-address": "0.0.0.0", "security.ssl.rest.authentication-enabled": "true"},
    )
    assert findings(settings, IDLE) == []


def test_no_slots_and_waiting_jobs_are_found(tmp_path: Path) -> None:
    settings = fog_settings(tmp_path)
    none = findings(settings, EngineView("2.3.0", Slots(0, 0), {}))
    assert [(each.severity, each.mend) for each in none] == [
        ("error", "taskmanager.numberOfTaskSlots: 8")
    ]
    waiting = EngineJob("a" * 32, "A", RunState.STARTING, 0, 2)
    full = findings(settings, EngineView("2.3.0", Slots(8, 0), {waiting.engine_job_id: waiting}))
    assert [(each.severity, each.mend) for each in full] == [
        ("warning", "taskmanager.numberOfTaskSlots: 16")
    ]


def test_a_running_job_without_checkpoints_is_named() -> None:
    externalization = {"enabled": True, "delete_on_cancellation": False}
    assert job_finding("A", {"interval": 1000, "externalization": externalization}) is None
    without = job_finding("A", None)
    assert without is not None
    assert without.value == "job A takes no checkpoints"
    never = job_finding("A", {"interval": 2**63 - 1, "externalization": externalization})
    assert never == without
    deleted = job_finding(
        "A", {"interval": 1, "externalization": {"enabled": True, "delete_on_cancellation": True}}
    )
    assert deleted is not None
    assert deleted.setting.endswith("externalized-checkpoint-retention")


@pytest.mark.parametrize(
    ("setting", "severity"), [(None, "error"), ("LOG", "error"), ("THROW", "warning")]
)
def test_without_the_guard_flinks_own_is_not_enough(
    tmp_path: Path, setting: str | None, severity: str
) -> None:
    settings = fog_settings(tmp_path, **{"cluster.intercept-user-system-exit": setting})
    assert findings(settings, IDLE) == []
    (finding,) = findings(settings, IDLE, Jvm(25, ("-Xmx1g",)))
    assert (finding.severity, finding.mend) == (severity, MEND)


@pytest.mark.parametrize(
    ("java", "options", "severity"),
    [
        (17, (), "warning"),
        (17, ("-Dfile.encoding=ISO-8859-1",), "error"),
        (25, ("-Dfile.encoding=COMPAT",), "error"),
        (17, ("-Dfile.encoding=US-ASCII", "-Dfile.encoding=utf8"), None),
        (21, (), None),
        (None, (), None),
    ],
)
def test_the_encoding_of_text(
    tmp_path: Path, java: int | None, options: tuple[str, ...], severity: str | None
) -> None:
    jvm = Jvm(java, (f"-javaagent:/lib/{GUARD_JAR}", *options))
    faults = findings(fog_settings(tmp_path), IDLE, jvm)
    assert [each.severity for each in faults] == ([severity] if severity else [])
    assert {each.setting for each in faults} <= {"file.encoding"}


@pytest.mark.parametrize(
    ("version", "feature"),
    [
        ("OpenJDK 64-Bit Server VM - Debian - 17/17.0.15+6-Debian-1deb12u1", 17),
        ("OpenJDK 64-Bit Server VM - Eclipse Adoptium - 25/25.0.3+9-LTS", 25),
        ("OpenJDK 64-Bit Server VM - Azul - 1.8/25.1", 1),
        ("unknown", None),
    ],
)
def test_the_version_of_the_jvm(version: str, feature: int | None) -> None:
    assert Jvm.of({"jvm": {"version": version, "options": ["-Xmx1g"]}}) == Jvm(feature, ("-Xmx1g",))


@pytest.mark.parametrize(
    ("used", "limit", "warned"),
    [(79, 100, False), (80, 100, True), (None, None, False), (150, 192, False)],
)
def test_a_metaspace_that_is_nearly_full(used: int | None, limit: int | None, warned: bool) -> None:
    mib = 1 << 20
    finding = metaspace_finding(used and used * mib, limit and limit * mib)
    assert (finding is not None) == warned
    if finding is not None:
        assert finding.value == "80 of 100 MiB in use"
        assert finding.mend == "taskmanager.memory.jvm-metaspace.size: 200m"
