"""Uploads of jars."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from binders.flink.engine import FlinkEngine
from speck.binding import Artifact, ArtifactKind, Target
from speck.errors import EngineRefusedError
from tests.flink_server import JOB_CLASS, FlinkServer, sha256_of
from tests.services.flink.site import Site


def upload(server: FlinkServer, name: str, content: bytes, **fields: str) -> requests.Response:
    files = {"anything": (name, content)}
    return requests.post(f"{server.url}/jars/upload", files=files, data=fields, timeout=30)


def test_upload_takes_any_content_under_a_jar_name_and_no_other_field(site: Site) -> None:
    first = upload(site.server, "junk.jar", b"no zip at all")
    second = upload(site.server, "junk.jar", b"no zip at all")
    ids = [Path(answer.json()["filename"]).name for answer in (first, second)]
    assert ids[0] != ids[1]
    assert all(each.endswith("_junk.jar") for each in ids)
    assert upload(site.server, "junk.zip", b"no zip at all").status_code == 400
    assert upload(site.server, "junk.jar", b"no zip at all", more="x").status_code == 400
    for each in ids:
        assert requests.delete(f"{site.server.url}/jars/{each}", timeout=20).ok


def test_a_broken_jar_is_found_by_trying_main(site: Site, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jar"
    broken.write_bytes(b"no zip at all")
    site.jar = broken
    with pytest.raises(EngineRefusedError, match="zip END header not found"):
        site.engine.try_main(site.submission())


@pytest.mark.long
def test_upload_passes_the_limit_on_requests_and_memory_stays_flat(
    slow_views: Site, tmp_path: Path
) -> None:
    big = tmp_path / "big.jar"
    with big.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    tracemalloc.start()
    try:
        slow_views.engine.upload(Artifact("b" * 64, big, ArtifactKind.JAR))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 1024 * 1024
    sizes = [
        path.stat().st_size for path in (slow_views.server.folder / "upload").rglob("*bbb.jar")
    ]
    assert sizes == [64 * 1024 * 1024]


def test_many_threads_upload_one_copy(site: Site, tmp_path: Path) -> None:
    site.jar = tmp_path / "copy.jar"
    site.jar.write_bytes(uuid4().bytes)
    with ThreadPoolExecutor(16) as pool:
        for _ in pool.map(
            lambda _: site.engine.upload(Artifact(sha256_of(site.jar), site.jar, ArtifactKind.JAR)),
            range(32),
        ):
            pass
    assert len(site.jar_ids()) == 1
    again = FlinkEngine(Target(site.server.url))
    again.upload(Artifact(sha256_of(site.jar), site.jar, ArtifactKind.JAR))
    assert len(site.jar_ids()) == 1, "another binder finds it by its name"


def test_a_jar_that_has_vanished_is_uploaded_again(site: Site) -> None:
    old_id = site.jar_id()
    requests.delete(f"{site.server.url}/jars/{old_id}", timeout=20)
    answer = site.server.post(f"/jars/{old_id}/run", {"entryClass": JOB_CLASS})
    assert answer.status_code == 500
    assert "does not exist" in answer.text
    site.engine.try_main(site.submission())
    assert old_id not in site.jar_ids()
    assert site.run()
