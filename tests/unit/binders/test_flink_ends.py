"""How an engine ended is read from what its JVM wrote at its end."""

from __future__ import annotations

from typing import Any, cast

import pytest

from binders.flink.ends import (
    MOST_READ,
    MOST_WORKERS,
    explain,
    find_last_end,
    list_outputs,
    read_last_end,
)

FIRST = "speck: engine started 2026-11-26T10:00:00Z\nspeck-runtime ready http://127.0.0.1:1\n"
SECOND = "speck: engine started 2026-11-26T11:00:00.5Z\nspeck-runtime ready http://127.0.0.1:1\n"
METASPACE = "Terminating due to java.lang.OutOfMemoryError: Metaspace\n"


def reason(words: str) -> str:
    end = find_last_end(FIRST + words + SECOND)
    assert end is not None
    assert end.at_ms == 1795690800500
    return end.reason.removeprefix("the engine was restarted at 2026-11-26T11:00:00Z: ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (METASPACE, "ran out of memory: OutOfMemoryError: Metaspace (use thin jars, or"),
        (
            "Terminating due to java.lang.OutOfMemoryError: Java heap space\n",
            "OutOfMemoryError: Java heap space (a job holds too much: give the engine more heap",
        ),
        (
            'Exception in thread "netty" java.lang.OutOfMemoryError: Cannot reserve 65536 bytes of'
            " direct buffer memory (allocated: 1, limit: 2)\n",
            "(give it more: taskmanager.memory.task.off-heap.size",
        ),
        (
            "Terminating due to java.lang.OutOfMemoryError: unable to create native thread\n",
            "(jobs leave threads behind",
        ),
        ("Terminating due to java.lang.OutOfMemoryError: Requested array size\n", "Requested"),
        ("java.lang.OutOfMemoryError\n", "its JVM ran out of memory: OutOfMemoryError"),
        (
            "# There is insufficient memory for the Java Runtime Environment to continue.\n",
            "the machine had no memory left",
        ),
        (
            "# A fatal error has been detected by the Java Runtime Environment:\n#\n"
            "#  SIGSEGV (0xb) at pc=0x00007f, pid=1, tid=2\n",
            "its JVM crashed: SIGSEGV (0xb) at pc",
        ),
        ("speck: edge ended: oom-kill, KILL\n", "(oom-kill, KILL): it was killed, by the kernel"),
        ("speck: edge ended: exit code 137\n", "(exit code 137): it was killed"),
        ("speck: edge ended: success, 0\n", "its process ended (success, 0)"),
        ("speck-runtime: cannot go on: no slots are left; see log\n", "no slots are left"),
        ("", "without a word: it was stopped, or killed (by the kernel"),
    ],
)
def test_last_words(words: str, expected: str) -> None:
    assert expected in reason(words)


def test_an_end_says_when_since_it_may_be_long_ago() -> None:
    end = find_last_end(FIRST + "speck: engine started 2026-11-26T12:00:00+01:00\n")
    assert end is not None
    assert end.reason.startswith("the engine was restarted at 2026-11-26T11:00:00Z: its process")


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00", "0001-01-01T00:00:00+14:00", "2026-11-26"])
def test_what_is_no_moment_with_its_zone_is_no_start(at: str) -> None:
    assert find_last_end(FIRST + f"speck: engine started {at}\n") is None


def test_only_the_last_end_counts() -> None:
    assert "without a word" in str(find_last_end(FIRST + METASPACE + SECOND + SECOND))


def test_a_first_start_has_no_end_before_it() -> None:
    assert find_last_end(FIRST) is None
    assert find_last_end("speck-runtime ready x\n") is None
    assert find_last_end("") is None
    assert find_last_end(FIRST + "speck: engine started soon\n") is None


def test_a_file_that_was_cut_still_tells_its_last_end() -> None:
    assert "Metaspace" in str(find_last_end(METASPACE + SECOND))


def test_words_are_short_and_plain() -> None:
    words = explain("java.lang.OutOfMemoryError: \x1b[2J" + "x" * 10_000)
    assert "\x1b" not in words
    assert len(words) < 300


def test_few_and_small_files_are_read() -> None:
    sizes = {"engine.out": 300, "engine.log": 300, "large.out": 10**9, "empty.out": 0}
    logs = [{"name": name, "size": size, "mtime": 1} for name, size in sizes.items()]
    assert list_outputs(logs) == [(1, "engine.out")]
    assert len(list_outputs([{"name": f"{n}.out", "size": 1} for n in range(1000)])) == 4


def test_of_many_workers_only_the_files_written_last_are_read() -> None:
    asked: list[str] = []

    class Rest:
        def get(self, path: str) -> Any:
            asked.append(path)
            if path == "/taskmanagers":
                return {"taskmanagers": [{"id": f"w{n}"} for n in range(1000)]}
            worker = int(path.split("/")[2][1:]) if "w" in path else 99
            files = [("a.out", 10 * worker), ("b.out", 10 * worker + 1), ("c.out", 0)]
            return {"logs": [{"name": n, "size": 1, "mtime": at} for n, at in files]}

        def get_text(self, path: str) -> str:
            asked.append(path)
            return FIRST + METASPACE + SECOND

    assert read_last_end(cast(Any, Rest())) is not None
    texts = [path for path in asked if path.endswith(".out")]
    assert len(texts) == MOST_READ and len(asked) == 2 + MOST_WORKERS + MOST_READ
    assert texts[0] == "/jobmanager/logs/b.out" and "/taskmanagers/w9/logs/b.out" in texts
