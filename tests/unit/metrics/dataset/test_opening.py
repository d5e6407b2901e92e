"""Which places of a dataset are understood, and how S3 and HDFS are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from speck.config import Config
from speck.errors import InvalidError
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.opening import open_storage
from speck.metrics.dataset.remote import RemoteStorage


@pytest.mark.parametrize(
    "place", ["{root}/m", "file:{root}/m", "file://{root}/m", "file://localhost{root}/m"]
)
def test_a_folder_of_this_machine(tmp_path: Path, place: str) -> None:
    storage = open_storage(place.format(root=tmp_path), Path("/nowhere"))
    assert isinstance(storage, LocalStorage)
    assert storage.local == tmp_path / "m"
    assert storage.uri == f"file:{tmp_path}/m"


def test_a_bucket_and_a_folder_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    storage = open_storage("s3a://bucket/a/b/", tmp_path)
    assert isinstance(storage, RemoteStorage)
    assert (storage.uri, storage.local) == ("s3a://bucket/a/b", tmp_path)
    assert storage.uri_of("tasks") == "s3a://bucket/a/b/tasks"


@pytest.mark.parametrize(
    "place",
    ["s3://bucket/a", "s3a://", "s3a://Bucket", "hdfs://host", "ftp://a/b", "file:a", "s3a://b//c"],
)
def test_other_places_are_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(InvalidError, match=r"cannot use .*: ?write file:///folder|for metrics"):
        open_storage(place, tmp_path)


@pytest.mark.parametrize("place", ["s3://bucket/a", "ftp://a/b", "metrics", "file:metrics"])
def test_a_setting_with_another_scheme_is_refused_at_the_start(place: str) -> None:
    with pytest.raises(
        ValueError, match=r"cannot read SPECK_METRICS_URI: .* is not file:///folder"
    ):
        Config.from_env({"SPECK_METRICS_URI": place})


def test_hdfs_without_hadoop_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
    with pytest.raises(InvalidError, match="install Hadoop where the service runs"):
        open_storage("hdfs://127.0.0.1:1/speck/metrics", tmp_path)
