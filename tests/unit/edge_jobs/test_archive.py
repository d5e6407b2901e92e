"""The files of a batch on their way into an archive, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from speck_spark.archive import Archive, publish, read_query_id
from speck_spark.arguments import ArgumentFaultError
from speck_spark.places import LocalPlace, open_place

NO_SPARK = cast(Any, None)
STAGED = ".writing/5f"


def stage(root: Path, *files: str) -> None:
    for file in files:
        path = root / STAGED / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)


def list_table(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_files_get_the_name_of_their_batch(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path)
    stage(
        tmp_path,
        "_SUCCESS",
        "day=2026-11-27/site=A/part-00000-x.c000.zstd.parquet",
        "day=2026-11-27/site=A/part-00000-x.c001.zstd.parquet",
        "day=2026-11-27/site=A/.part-00000-x.c001.zstd.parquet.crc",
        "day=2026-11-27/site=A-2/part-00000-x.c000.zstd.parquet",
    )
    publish(place, STAGED, "detections", "batch-5f-000000007-0a")
    assert list_table(tmp_path) == [
        "detections/day=2026-11-27/site=A-2/batch-5f-000000007-0a-0.parquet",
        "detections/day=2026-11-27/site=A/batch-5f-000000007-0a-0.parquet",
        "detections/day=2026-11-27/site=A/batch-5f-000000007-0a-1.parquet",
    ]
    assert not (tmp_path / STAGED).exists()


def test_what_is_in_place_stays(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path)
    stage(tmp_path, "day=2026-11-27/site=A/part-0.parquet")
    publish(place, STAGED, "detections", "batch-5f-000000007-0a")
    (file,) = list_table(tmp_path)
    (tmp_path / file).write_text("the first run's")
    stage(tmp_path, "day=2026-11-27/site=A/part-0.parquet", "day=2026-11-28/site=A/part-0.parquet")
    publish(place, STAGED, "detections", "batch-5f-000000007-0a")
    assert len(list_table(tmp_path)) == 2
    assert (tmp_path / file).read_text() == "the first run's"


def test_a_batch_without_rows_leaves_nothing(tmp_path: Path) -> None:
    stage(tmp_path, "_SUCCESS")
    publish(LocalPlace(tmp_path), STAGED, "detections", "batch-5f-000000007-0a")
    publish(LocalPlace(tmp_path), STAGED, "detections", "batch-5f-000000008-0a")
    assert list_table(tmp_path) == []


@pytest.mark.parametrize("scheme", ["file:", "file://", "file://localhost"])
def test_a_folder_of_this_machine_is_made(tmp_path: Path, scheme: str) -> None:
    place = open_place(NO_SPARK, f"{scheme}{tmp_path}/a/b")
    assert (tmp_path / "a/b").is_dir()
    assert place.uri_of("c") == f"file:{tmp_path}/a/b/c"


@pytest.mark.parametrize("target", ["", "/folder", "file:folder", "file://host/a", "s3a://bucket"])
def test_what_is_no_uri_of_a_folder_is_refused(target: str) -> None:
    with pytest.raises(ArgumentFaultError, match=r'^cannot use --target ".*": write file:///'):
        open_place(NO_SPARK, target)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentFaultError, match=r"^cannot use --target .*: .*Not a directory"):
        open_place(NO_SPARK, f"file:{tmp_path}/file/folder")


def test_two_runs_of_a_query_do_not_write_in_one_folder(tmp_path: Path) -> None:
    """Where its site was cut off, a job may run twice for a moment."""
    place = LocalPlace(tmp_path)
    runs = [Archive(place, "detections", tmp_path, lambda rows: rows) for _ in range(2)]
    one, other = (each.find_staging("5f") for each in runs)
    assert one != other
    assert {each.rpartition("-")[0] for each in (one, other)} == {STAGED}


def test_a_query_is_known_by_the_id_in_its_checkpoint(tmp_path: Path) -> None:
    content = {"id": "0f9a8b7c-1111-2222-3333-444455556666"}
    (tmp_path / "metadata").write_text(json.dumps(content))
    assert read_query_id(tmp_path) == "0f9a8b7c111122223333444455556666"
