"""Jars, kept by their content."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from speck.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StoreFullError,
)
from speck.model.artifact import ArtifactUse
from speck.service import Service
from speck.store.artifacts import Artifacts
from tests.memory_fog import jar_bytes, make_jar
from tests.service_helpers import DONE, LIMIT_S, composition, job, job_body

CONTENT = jar_bytes(b"some class")
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ZEROS = "0" * 64


def list_files(service: Service) -> list[str]:
    folder = service.config.artifacts
    return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


def test_an_artifact_is_taken_in_once(service: Service) -> None:
    assert service.artifacts.put(SHA256, [CONTENT[:3], CONTENT[3:]])
    assert not service.artifacts.put(SHA256, [CONTENT])
    assert service.artifacts.file(SHA256).read_bytes() == CONTENT
    (body,) = service.artifacts.all()
    assert (body.sha256, body.bytes) == (SHA256, len(CONTENT))


def test_content_of_another_hash_is_refused_and_leaves_nothing(service: Service) -> None:
    with pytest.raises(InvalidError) as error:
        service.artifacts.put("0" * 64, [CONTENT])
    assert [problem.message for problem in error.value.problems] == [
        f"the content's SHA-256 is {SHA256}; send it under that"
    ]
    assert list_files(service) == []
    assert service.artifacts.all() == []


def test_a_transfer_that_breaks_off_leaves_nothing(service: Service) -> None:
    def broken() -> Iterator[bytes]:
        yield CONTENT[:3]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        service.artifacts.put(SHA256, broken())
    assert list_files(service) == []


def test_what_is_too_large_is_refused_and_leaves_nothing(service: Service) -> None:
    config = replace(service.config, max_artifact=4)
    artifacts = Artifacts(config, service.records, service.clock)
    with pytest.raises(InvalidError) as error:
        artifacts.put(SHA256, [CONTENT])
    assert error.value.status == 413
    assert list_files(service) == []


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, SHA256 + "0"])
def test_what_is_no_hash_is_refused(service: Service, name: str) -> None:
    with pytest.raises(InvalidError, match="cannot take this artifact"):
        service.artifacts.put(name, [CONTENT])
    with pytest.raises(NotFoundError, match="send it with `speck artifacts push FILE`"):
        service.artifacts.file(name)


def test_a_kill_between_file_and_record_is_mended_by_sending_again(service: Service) -> None:
    service.config.artifacts.mkdir(parents=True)
    (service.config.artifacts / SHA256).write_bytes(CONTENT)
    assert service.artifacts.put(SHA256, [CONTENT])
    assert len(service.artifacts.all()) == 1


def test_a_job_runs_from_an_artifact_and_from_the_copy_of_a_file(
    service: Service, tmp_path: Path
) -> None:
    jar = make_jar(tmp_path / "elsewhere", content=b"7")
    sha256 = hashlib.sha256(jar.read_bytes()).hexdigest()
    service.artifacts.put(sha256, [jar.read_bytes()])
    from_artifact = service.jobs.post(job("A", job_path=f"artifact:{sha256}"), LIMIT_S)
    from_file = service.jobs.post(job("B"), LIMIT_S)
    assert from_artifact.created and from_file.created
    assert len(service.artifacts.all()) == 2


def put(service: Service, content: bytes, by: str | None = None) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    service.artifacts.put(sha256, [content], len(content), by)
    return sha256


def limited(service: Service, **limits: float) -> Artifacts:
    return Artifacts(replace(service.config, **limits), service.records, service.clock)  # type: ignore[arg-type]


NO_ARTIFACTS = {
    "nothing": b"",
    "a word": b"hello",
    "a shell script": b"#!/bin/sh\nrm -rf /\n",
    "an executable": b"\x7fELF" + b"\0" * 100,
    "the head of a jar": b"PK\x03\x04 and nothing else",
    "a jar cut short": CONTENT[:-30],
    "a compressed text": gzip.compress(b"no tar", mtime=0),
    "a deep expression": b"(" * 100_000,
    "a program with a NUL": b"import os\0",
}


@pytest.mark.parametrize("content", NO_ARTIFACTS.values(), ids=NO_ARTIFACTS)
def test_what_is_no_artifact_is_refused_and_leaves_nothing(
    service: Service, content: bytes
) -> None:
    with pytest.raises(InvalidError, match=r"cannot take artifact .*: it is") as refused:
        put(service, content)
    assert refused.value.status == 422
    assert list_files(service) == []
    assert service.artifacts.all() == []


def test_jars_archives_and_programs_are_artifacts(service: Service) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("job.py"))
    for content in (CONTENT, packed.getvalue(), gzip.decompress(packed.getvalue())):
        put(service, content)
    put(service, b"from pyspark.sql import SparkSession\n\nSparkSession.builder.getOrCreate()\n")
    assert len(service.artifacts.all()) == 4


def test_a_directory_that_is_too_large_to_be_read_is_refused(service: Service) -> None:
    """Its end record says so; nobody reads it to find out."""
    end = CONTENT.rfind(b"PK\x05\x06")
    huge = bytearray(CONTENT)
    huge[end + 12 : end + 16] = (1 << 30).to_bytes(4, "little")
    with pytest.raises(InvalidError, match="an archive may hold 100000"):
        put(service, bytes(huge))


def test_a_token_sends_no_more_than_its_quota(service: Service) -> None:
    artifacts = limited(service, artifact_token_quota=2 * len(CONTENT))
    contents = [jar_bytes(str(n).encode() * 10) for n in range(3)]
    names = [hashlib.sha256(content).hexdigest() for content in contents]
    artifacts.put(names[0], [contents[0]], len(contents[0]), "ci")
    artifacts.put(names[1], [contents[1]], len(contents[1]), "ci")
    with pytest.raises(InvalidError, match=r"token 'ci' has sent \d+ bytes, of at most") as refused:
        artifacts.put(names[2], [contents[2]], len(contents[2]), "ci")
    assert refused.value.status == 413
    artifacts.put(names[1], [contents[1]], len(contents[1]), "ci")  # again: no more than it was
    artifacts.put(names[2], [contents[2]], len(contents[2]), "other")


def test_uploads_that_come_at_once_share_the_quota(service: Service) -> None:
    artifacts = limited(service, artifact_quota=len(CONTENT) + 10)

    def slowly() -> Iterator[bytes]:
        with pytest.raises(StoreFullError, match="SPECK_ARTIFACT_QUOTA"):
            artifacts.put("1" * 64, [CONTENT], len(CONTENT), "other")
        yield CONTENT

    artifacts.put(SHA256, slowly(), len(CONTENT), "ci")
    assert list_files(service) == [SHA256]


def test_an_upload_ends_before_the_disk_is_full(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store needs for changes under way is left, and as much again."""
    free = 1000

    def measure(path: Path) -> tuple[int, int]:
        return free, 300

    monkeypatch.setattr("speck.store.artifacts.measure_room", measure)
    with pytest.raises(StoreFullError, match="600 are reserved"):
        service.artifacts.put(SHA256, [], 401)

    def fill() -> Iterator[bytes]:
        nonlocal free
        yield CONTENT[:10]
        free = 600
        yield CONTENT[10:]

    with pytest.raises(StoreFullError, match="600 bytes are free on that disk"):
        service.artifacts.put(SHA256, fill(), len(CONTENT))
    assert list_files(service) == []


def test_what_is_used_is_not_deleted(service: Service, tmp_path: Path) -> None:
    sha256 = put(service, jar_bytes(b"used"), "ci")
    unused = put(service, jar_bytes(b"unused"), "ci")
    service.jobs.post(job("A", job_path=f"artifact:{sha256}"), LIMIT_S)
    with pytest.raises(ConflictError, match="job 'A' uses it"):
        service.artifacts.delete(sha256)
    with pytest.raises(ForbiddenError, match="token 'ci' sent it"):
        service.artifacts.delete(unused, "other", any_owner=False)
    service.artifacts.delete(unused, "ci", any_owner=False)
    service.jobs.delete("A", LIMIT_S)
    service.artifacts.delete(sha256)
    assert list_files(service) == []
    with pytest.raises(NotFoundError):
        service.artifacts.delete(sha256)


def test_older_revisions_keep_their_artifacts_until_the_composition_is_gone(
    service: Service,
) -> None:
    names = [put(service, jar_bytes(content)) for content in (b"first", b"second")]
    for sha256 in names:
        jobs = composition(job_body("A", job_path=f"artifact:{sha256}"))
        service.compositions.apply(jobs, DONE)
    uses = {each.sha256: each.uses for each in service.artifacts.all()}
    assert uses[names[0]] == (ArtifactUse("c", None, 1),)
    assert ArtifactUse("c", "A", None) in uses[names[1]]
    artifacts = limited(service, artifact_grace_s=1e-9)
    assert artifacts.collect() == []
    with pytest.raises(ConflictError, match="revision 1 of composition 'c' uses it"):
        service.artifacts.delete(names[0])
    service.compositions.delete("c", LIMIT_S)
    assert {each.sha256 for each in artifacts.collect(dry_run=True)} == set(names)
    assert len(list_files(service)) == 2
    artifacts.collect()
    assert list_files(service) == []
    assert service.artifacts.all() == []


def test_what_was_sent_just_now_is_not_collected(service: Service) -> None:
    """Its apply may be about to come."""
    put(service, CONTENT)
    assert service.artifacts.collect() == []
    service.artifacts.adopt(SHA256, service.artifacts.file(SHA256))
    with pytest.raises(ConflictError, match="a change that is under way uses it"):
        service.artifacts.delete(SHA256)


def test_what_a_kill_left_behind_is_collected(service: Service) -> None:
    folder = service.config.artifacts
    folder.mkdir(parents=True)
    for name in ("incoming-abc", ZEROS):
        (folder / name).write_bytes(b"part")
    put(service, CONTENT)
    service.artifacts.collect()
    assert len(list_files(service)) == 3
    for file in folder.iterdir():
        os.utime(file, (0, 0))
    service.artifacts.collect()
    assert list_files(service) == [SHA256]
