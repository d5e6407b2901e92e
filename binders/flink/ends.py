"""How an engine's process ended last, from what its JVMs wrote to their standard output.

Whoever starts an engine of speck's (a fog, `engine.sh`) writes `speck: <role> started <time>` to
`<role>.out`, in the folder that Flink shows as its logs. What stands before that line are the last
words of the former process. Flink itself keeps nothing: with `-XX:+ExitOnOutOfMemoryError` its JVM
ends before it can log why, and one that the kernel kills says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from binders.flink.numbers import unix_ms
from binders.flink.rest import FlinkRest, RefusedAnswer
from speck.binding import EngineEnd

MOST_BYTES = 200_000
"""The largest file that is read; these have some hundred bytes."""
MOST_WORKERS = 10
"""The most TaskManagers whose files are read."""
MOST_FILES = 4
"""The most such files of one folder: a fog's JobManager and TaskManager share theirs."""
MOST_READ = 12
"""The most files that are read of all folders: those that were written last."""
LONGEST_WORDS = 200

_STARTED = re.compile(r"^speck: (\S{1,60}) started (\S{1,40})\s*$", re.MULTILINE)
_ENDED = re.compile(r"^speck: \S+ ended: (.+)$", re.MULTILINE)
_OUT_OF_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError(?:: (.+))?")
_NO_NATIVE_MEMORY = re.compile(r"insufficient memory for the Java Runtime|Cannot allocate memory")
_CRASH = re.compile(r"fatal error has been detected by the Java Runtime[^\n]*\n(?:#\s*\n)*#\s*(.+)")
_OWN_WORDS = re.compile(r"^speck-runtime: (.+)$", re.MULTILINE)
_KILLED = re.compile(r"oom-kill|\b137\b|\bKILL\b|\b9\b")

_SILENT = (
    "its process ended without a word: it was stopped, or killed (by the kernel if memory ran out:"
    " exit code 137; `journalctl -k` shows that), or its machine went down"
)
_ADVICE = {
    "metaspace": "use thin jars, or give it more: taskmanager.memory.jvm-metaspace.size, in one JVM"
    " -XX:MaxMetaspaceSize",
    "heap": "a job holds too much: give the engine more heap, or fewer jobs",
    "direct": "give it more: taskmanager.memory.task.off-heap.size, in one JVM"
    " -XX:MaxDirectMemorySize",
    "thread": "jobs leave threads behind, or the limit of processes is too low",
}


def read_last_end(rest: FlinkRest) -> EngineEnd | None:
    """The newest end that any of the engine's files reports. Raises RefusedAnswer, SpeckErrors."""
    ends = (find_last_end(text) for text in _read_outputs(rest))
    return max((end for end in ends if end is not None), key=lambda end: end.at_ms, default=None)


def find_last_end(text: str) -> EngineEnd | None:
    """How the process before the last start ended; None if there was none."""
    starts = list(_STARTED.finditer(text))
    if not starts:
        return None
    last, begin = starts[-1], starts[-2].end() if len(starts) > 1 else 0
    words = text[begin : last.start()]
    if len(starts) < 2 and not words.strip():
        return None
    try:
        at = datetime.fromisoformat(last[2])
        if at.tzinfo is None:
            return None
        at_ms = unix_ms(int(at.timestamp() * 1000))
    except ValueError:
        return None
    when = (
        f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"  # the job may have been lost for another reason
    )
    return EngineEnd(at_ms, f"the {last[1]} was restarted at {when}: {explain(words)}")


def explain(words: str) -> str:
    """Why a process ended, by its last words."""
    if memory := list(_OUT_OF_MEMORY.finditer(words)):
        kind = _clean(memory[-1][1] or "")
        advice = next((text for key, text in _ADVICE.items() if key in kind.lower()), None)
        out = "its JVM ran out of memory: OutOfMemoryError" + (f": {kind}" if kind else "")
        return f"{out} ({advice})" if advice else out
    if _NO_NATIVE_MEMORY.search(words):
        return "its JVM ended since the machine had no memory left"
    if crash := list(_CRASH.finditer(words)):
        return f"its JVM crashed: {_clean(crash[-1][1])}"
    if ended := list(_ENDED.finditer(words)):
        how = _clean(ended[-1][1])
        killed = ": it was killed, by the kernel if memory ran out (`journalctl -k` shows that)"
        return f"its process ended ({how})" + (killed if _KILLED.search(how) else "")
    own = [m[1] for m in _OWN_WORDS.finditer(words)]
    return f"its process ended: {_clean(own[-1])}" if own else _SILENT


def _read_outputs(rest: FlinkRest) -> Iterator[str]:
    folders = ["/jobmanager/logs"]
    workers: list[Any] = rest.get("/taskmanagers")["taskmanagers"]
    folders += [f"/taskmanagers/{worker['id']}/logs" for worker in workers[:MOST_WORKERS]]
    files: list[tuple[int, str]] = []
    for folder in folders:
        with suppress(RefusedAnswer):  # it keeps none, or was lost meanwhile
            for written, name in list_outputs(rest.get(folder)["logs"]):
                files.append((written, f"{folder}/{quote(name, safe='')}"))
    for _, path in sorted(files, key=itemgetter(0), reverse=True)[:MOST_READ]:
        with suppress(RefusedAnswer):
            yield rest.get_text(path)


def list_outputs(logs: Iterable[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """The files of an engine's list of logs that are worth reading, the newest first, each with the
    time when it was written last (Unix ms; 0: not known)."""
    files = [
        (int(file.get("mtime", 0)), str(file["name"]))
        for file in logs
        if str(file["name"]).endswith(".out") and 0 < int(file["size"]) <= MOST_BYTES
    ]
    return sorted(files, key=itemgetter(0), reverse=True)[:MOST_FILES]


def _clean(words: str) -> str:
    plain = "".join(each if each.isprintable() else " " for each in words[:LONGEST_WORDS])
    return plain.strip()
