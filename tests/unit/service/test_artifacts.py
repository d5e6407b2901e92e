"""Jars, kept by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from speck.errors import InvalidError, NotFoundError
from speck.service import Service
from speck.store.artifacts import Artifacts
from tests.memory_fog import make_jar
from tests.service_helpers import LIMIT_S, job

CONTENT = b"some jar"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def list_files(service: Service) -> list[str]:
    folder = service.config.artifacts
    return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


def test_an_artifact_is_taken_in_once(service: Service) -> None:
    assert service.artifacts.put(SHA256, [CONTENT[:3], CONTENT[3:]])
    assert not service.artifacts.put(SHA256, [CONTENT])
    assert service.artifacts.file(SHA256).read_bytes() == CONTENT
    (body,) = service.artifacts.all()
    assert (body["sha256"], body["bytes"]) == (SHA256, len(CONTENT))


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
    with pytest.raises(NotFoundError, match="send it with PUT /artifacts/<sha256>"):
        service.artifacts.file(name)


def test_a_kill_between_file_and_record_is_mended_by_sending_again(service: Service) -> None:
    service.config.artifacts.mkdir(parents=True)
    (service.config.artifacts / f"{SHA256}.jar").write_bytes(CONTENT)
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
    assert from_artifact.status == from_file.status == 201
    assert len(service.artifacts.all()) == 2
