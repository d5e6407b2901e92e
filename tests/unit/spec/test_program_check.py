"""Python programs are checked in a process with limits, whatever they do to Python's parser."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from speck.spec import artifacts, program_check
from speck.spec.artifacts import artifact_fault

MOST = 1 << 18
IMPORT = b"import os\n"


def fill(head: bytes, piece: bytes, tail: bytes = b"") -> bytes:
    return head + piece * ((MOST - len(head) - len(tail)) // len(piece)) + tail


PROGRAMS = {
    "replaced fields": fill(IMPORT + b'x=f"', b"{a}", b'"'),
    "expressions": fill(IMPORT, b"a\n"),
    "parentheses": fill(IMPORT, b"("),
    "a sum": fill(IMPORT + b"x=", b"1+", b"1"),
    "attributes": fill(IMPORT + b"x=a", b".b"),
    "calls": fill(IMPORT + b"x=a", b"()"),
    "branches": fill(IMPORT + b"if a: pass\n", b"elif a: pass\n"),
    "functions": fill(IMPORT, b"def f(x):\n    return [y * 2 for y in range(x) if y % 3]\n\n"),
    "comments": fill(IMPORT, b"#\n"),
    "a long string": fill(IMPORT + b'x="', b"\\N{DIGIT ONE}", b'"'),
    "matches": fill(IMPORT + b"match a:\n", b" case 1: pass\n"),
    "no text": fill(IMPORT, b"\xff"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("programs")
    for name, content in PROGRAMS.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in PROGRAMS}


def test_many_at_once_are_taken_or_refused_and_cost_this_process_nothing(
    files: dict[str, Path],
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    with ThreadPoolExecutor(12) as pool:
        faults = dict(zip(files, pool.map(artifact_fault, files.values()), strict=True))
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert all(
        fault is None or fault.startswith("it is no artifact: ") for fault in faults.values()
    )
    assert {name for name, fault in faults.items() if fault is None} >= {"functions", "comments"}
    assert {"parentheses", "no text"} <= {n for n, f in faults.items() if f}
    assert after.ru_utime - before.ru_utime < 1.0
    assert after.ru_maxrss - before.ru_maxrss < 32 << 10  # KiB


def test_a_check_ends_when_it_has_used_its_cpu_time(tmp_path: Path) -> None:
    script = tmp_path / "busy.py"
    body = Path(program_check.__file__).read_text().replace("ast.parse(", "_spin(")
    script.write_text(
        body.replace("def main(", "def _spin(text):\n    while True: pass\n\n\ndef main(", 1)
    )
    (tmp_path / "a.py").write_bytes(IMPORT)
    ended = subprocess.run([sys.executable, "-I", "-S", script, tmp_path / "a.py"], check=False)
    assert ended.returncode < 0


def test_a_check_does_not_take_more_memory_than_its_limit(tmp_path: Path) -> None:
    script = tmp_path / "large.py"
    body = Path(program_check.__file__).read_text()
    script.write_text(body.replace("ast.parse(", "bytearray(1 << 30, "))
    (tmp_path / "a.py").write_bytes(IMPORT)
    ended = subprocess.run([sys.executable, "-I", "-S", script, tmp_path / "a.py"], check=False)
    assert ended.returncode == 1


def test_two_are_checked_at_once(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[int] = []
    now, lock = 0, threading.Lock()

    def run(command: list[object], **_: object) -> subprocess.CompletedProcess[bytes]:
        nonlocal now
        with lock:
            now += 1
            running.append(now)
        pair.wait(30)
        with lock:
            now -= 1
        return subprocess.CompletedProcess(command, 0)

    pair = threading.Barrier(2)
    monkeypatch.setattr(artifacts.subprocess, "run", run)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(artifact_fault, [files["functions"]] * 8)) == {None}
    assert max(running) <= 2


def test_a_check_that_hangs_is_given_up(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[object], **_: object) -> None:
        raise subprocess.TimeoutExpired("python", 60)

    monkeypatch.setattr(artifacts.subprocess, "run", run)
    assert artifact_fault(files["functions"]) is not None
