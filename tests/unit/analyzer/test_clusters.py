"""What is said at once of a cluster that cannot take an analysis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speck.analyzer.clusters import SparkClusters
from speck.config import Config
from speck.errors import InvalidError
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.storage import Storage
from tests.storages import open_renaming

FAR = {"spark_driver_host": "10.0.0.2"}
KUBERNETES = "k8s://https://10.0.0.5:6443"


def make_clusters(storage: Storage, **more: Any) -> SparkClusters:
    return SparkClusters(Config(home=storage.local.parent, **more), storage)


@pytest.mark.parametrize("master", ["yarn", KUBERNETES])
def test_containers_cannot_read_a_folder_of_this_machine(tmp_path: Path, master: str) -> None:
    clusters = make_clusters(LocalStorage(tmp_path / "metrics"), **FAR)
    with pytest.raises(InvalidError, match=r"its containers cannot read .*set SPECK_METRICS_URI"):
        clusters.check(master)


def test_a_dataset_elsewhere_is_for_all_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    clusters = make_clusters(open_renaming(tmp_path, tmp_path / "here"), **FAR)
    for master in ("yarn", KUBERNETES, "local[2]"):
        clusters.check(master)
    monkeypatch.delenv("HADOOP_CONF_DIR")
    with pytest.raises(InvalidError, match="set HADOOP_CONF_DIR"):
        clusters.check("yarn")


@pytest.mark.parametrize("master", [KUBERNETES, "spark://10.0.0.5:7077"])
def test_executors_elsewhere_do_not_reach_loopback(tmp_path: Path, master: str) -> None:
    storage = open_renaming(tmp_path, tmp_path / "here")
    clusters = make_clusters(storage, spark_secret_file=tmp_path / "secret")
    with pytest.raises(InvalidError, match="set SPECK_SPARK_DRIVER_HOST"):
        clusters.check(master)


def test_the_command_line_names_files_and_no_secret(tmp_path: Path) -> None:
    clusters = make_clusters(
        LocalStorage(tmp_path / "metrics"),
        spark_secret_file=Path("/etc/secret"),
        spark_jars=(Path("/opt/a"), Path("/opt/b.jar")),
    )
    assert clusters.list_arguments() == [
        *("--driver-host", "127.0.0.1"),
        *("--secret-file", "/etc/secret"),
        *("--jars", "/opt/a"),
        *("--jars", "/opt/b.jar"),
    ]
