"""A folder with a jar, in which jobs' files are found."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from speck.spec.job_files import JobFileFinder
from tests.unit.spec.resolving import FindFile


@pytest.fixture
def find_file(tmp_path: Path) -> FindFile:
    with zipfile.ZipFile(tmp_path / "x.jar", "w") as archive:
        archive.writestr("package/ExampleJob.class", b"")
    return JobFileFinder([tmp_path], lambda sha256: None)
