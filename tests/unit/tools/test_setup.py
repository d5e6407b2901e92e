"""What set-up says when something is missing, and that it finds what is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[3] / "tools"


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment without apt-get, and with nothing but what the scripts themselves use."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for program in ("sh", "sed", "id", "echo", "c++"):
        path = shutil.which(program)
        assert path, program
        (programs / program).symlink_to(path)
    return {"PATH": str(programs)}


def need(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(TOOLS / "need.sh"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_program_that_is_there_is_found(bare: dict[str, str]) -> None:
    assert need(bare, "sed", "sed", "edits").returncode == 0


def test_a_missing_program_is_named_with_its_package(bare: dict[str, str]) -> None:
    done = need(bare, "no-such-program", "its-package", "does the work")
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "cannot find no-such-program, which does the work: install it, on Debian with"
        " 'apt-get install its-package'"
    )


@pytest.mark.parametrize(
    ("version", "status"), [("17.0.15", 0), ("21.0.2", 0), ("25", 0), ("11.0.9", 1)]
)
def test_a_compiler_is_as_new_as_it_must_be(
    bare: dict[str, str], version: str, status: int
) -> None:
    javac = Path(bare["PATH"], "javac")
    javac.write_text(f"#!/bin/sh\necho javac {version} >&2\n")
    javac.chmod(0o755)
    assert need(bare, "javac", "default-jdk-headless", "compiles", "17").returncode == status


def test_a_header_is_looked_for_where_the_compiler_looks(bare: dict[str, str]) -> None:
    header = Path(bare["PATH"], "speck_test.h")
    assert need(bare, "speck_test.h", "speck-dev", "builds").returncode == 1
    header.touch()
    found = bare | {"CPLUS_INCLUDE_PATH": str(header.parent)}
    assert need(found, "speck_test.h", "speck-dev", "builds").returncode == 0
    assert need(bare, str(header), "speck-dev", "builds").returncode == 0


@pytest.mark.parametrize(("version", "usable"), [("3.10", False), ("3.14", False), ("3.13", True)])
def test_the_virtual_environment_takes_the_supported_pythons(
    tmp_path: Path, bare: dict[str, str], version: str, usable: bool
) -> None:
    python = Path(bare["PATH"], "some-python")
    code = 'case "$2" in *version_info*) python3 -c "${2}" ;; *) exit 1 ;; esac'
    major, minor = version.split(".")
    python.write_text(f"#!/bin/sh\n{code}\n")
    python.chmod(0o755)
    # a Python that says it is of another version
    Path(bare["PATH"], "python3").write_text(
        f"#!/bin/sh\nexec {sys.executable} -c"
        f' "import sys; sys.version_info = ({major}, {minor}, 0)\n$2"\n'
    )
    Path(bare["PATH"], "python3").chmod(0o755)
    done = subprocess.run(
        [str(TOOLS / "venv.sh"), "environment"],
        env=bare | {"PYTHON": "some-python"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    said = "it lacks ensurepip" if usable else "cannot find some-python"
    assert said in done.stderr
