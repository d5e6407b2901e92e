from __future__ import annotations

from pathlib import Path

import yaml

from speck.fog import flink_conf
from speck.fog.flink_conf import FlinkSettings


def written(tmp_path: Path, **settings: object) -> dict[str, object]:
    flink_settings = FlinkSettings(folder=tmp_path / "engine", state=tmp_path / "state", **settings)  # type: ignore[arg-type]
    flink_conf.write(flink_settings, 8081)
    loaded = yaml.safe_load((tmp_path / "engine/conf/config.yaml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_nothing_listens_past_the_sites_own_address(tmp_path: Path) -> None:
    for runtime in ("single", "cluster"):
        values = written(tmp_path, host="127.8.8.8", runtime=runtime)
        for key in ("rest.bind-address", "jobmanager.bind-host", "taskmanager.bind-host"):
            assert values[key] == "127.8.8.8"


def test_settings_that_matter(tmp_path: Path) -> None:
    values = written(tmp_path, slots=5, checkpoint_interval_s=0.25)
    assert values["taskmanager.numberOfTaskSlots"] == 5
    assert values["execution.checkpointing.interval"] == "250ms"
    assert values["execution.checkpointing.dir"] == f"file://{tmp_path}/state/checkpoints"
    assert values["execution.checkpointing.savepoint-dir"] == f"file://{tmp_path}/state/savepoints"
    assert values["web.upload.dir"] == f"{tmp_path}/engine/upload"
    assert Path(str(values["web.upload.dir"])).is_dir()
    assert values["taskmanager.system-out.mode"] == "LOG"
    retention = "execution.checkpointing.externalized-checkpoint-retention"
    assert values[retention] == "RETAIN_ON_CANCELLATION"


def test_what_the_user_gives_wins(tmp_path: Path) -> None:
    values = written(tmp_path, config={"heartbeat.timeout": "60000"})
    assert values["heartbeat.timeout"] == "60000"


def test_heap_grows_with_slots_unless_given() -> None:
    folder = Path("/nowhere")
    assert FlinkSettings(folder, folder, slots=8).task_heap_mb == 256
    assert FlinkSettings(folder, folder, slots=16).task_heap_mb == 352
    assert FlinkSettings(folder, folder, heap_mb=100).task_heap_mb == 100
