from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from binders.process.artifacts import judge_program
from speck.binding import Artifact, ArtifactKind


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Artifact]:
    (tmp_path / "job.py").write_text("import sys")
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as app:
        app.writestr("__main__.py", "")
    with zipfile.ZipFile(tmp_path / "lib.whl", "w") as wheel:
        wheel.writestr("jobs/clean.py", "")
    with tarfile.open(tmp_path / "job.tar", "w") as tar:
        for name, mode in (("bin/job", 0o755), ("readme", 0o644)):
            member = tarfile.TarInfo(name)
            member.mode = mode
            tar.addfile(member, io.BytesIO())
    (tmp_path / "damaged.zip").write_bytes(b"PK\x03\x04" + b"x" * 100)
    kinds = {"job.py": ArtifactKind.PYFILE}
    return {
        file.name: Artifact("0" * 64, file, kinds.get(file.name, ArtifactKind.ARCHIVE))
        for file in tmp_path.iterdir()
    }


@pytest.mark.parametrize(
    ("name", "entry", "fault"),
    [
        ("job.py", "", None),
        ("job.py", "main", "a Python program has no entry; leave it out"),
        ("app.pyz", "", None),
        ("lib.whl", "jobs.clean", None),
        ("lib.whl", "jobs.clean:main", None),
        ("lib.whl", "", "missing: the archive has no __main__.py; name the module that starts"),
        ("lib.whl", "jobs.merge", "the archive has no module 'jobs.merge'"),
        ("lib.whl", "jobs/clean.py", "'jobs/clean.py' is no module like package.module"),
        ("job.tar", "bin/job", None),
        ("job.tar", "", "missing: name the file in the archive that starts the job"),
        ("job.tar", "bin/other", "the archive has no file 'bin/other'"),
        ("job.tar", "readme", "'readme' is not executable"),
        ("job.tar", "../bin/job", "'../bin/job' is no path within the archive"),
        ("damaged.zip", "", "the archive cannot be read: "),
    ],
)
def test_what_a_program_is_started_from(
    files: dict[str, Artifact], name: str, entry: str, fault: str | None
) -> None:
    judgement = judge_program(files[name], entry)
    if fault is None:
        assert judgement.fault is None
    else:
        assert (judgement.fault or "").startswith(fault)
        assert judgement.at_entry
