"""An import in a process of its own, with limits on its memory and its CPU time.

What a Parquet file grows to is known only when it is read: a few kilobytes may hold gigabytes. In
a process of its own that costs neither the service's memory nor its response times.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from speck.errors import InvalidError, Problem, SpeckError, TransientError
from speck.metrics.dataset.schema import TABLES, Table
from speck.metrics.dataset.storage import Storage

if TYPE_CHECKING:
    from speck.metrics.dataset.exchange import ImportResult

MEMORY_BYTES = 256 << 20
"""What an import may take on top of the interpreter and its libraries."""
CPU_S = 600
LIMIT_S = 1800.0

LONGEST_TRACE = 4000
"""The most bytes of a failed import's last words that are logged."""

_REFUSED, _FAILED, _TOO_LARGE = 3, 4, 5
"""Exit statuses: the file is at fault, or the disk, or it takes too much memory."""

_log = logging.getLogger(__name__)


def import_in_process(
    storage: Storage, path: Path, name: str, form: str, table: Table | None
) -> ImportResult:
    """As `speck.metrics.dataset.exchange.import_file`. Raises InvalidError, also for a file that
    takes too much memory or time to be read, and TransientError."""
    from speck.metrics.dataset.exchange import ImportResult

    arguments = [
        storage.uri,
        str(storage.local),
        str(path),
        name,
        form,
        table.name if table else "",
    ]
    # Arrow's own allocators reserve more address space than they use
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", __name__, *arguments]
    try:
        process = subprocess.run(
            command, capture_output=True, env=environment, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _make_limit_error(name) from error
    answer = json.loads(process.stdout or "{}")
    if process.returncode == 0:
        moments = {end: answer[end] and datetime.fromisoformat(answer[end]) for end in _MOMENTS}
        return ImportResult(**{**answer, **moments})
    if process.returncode == _REFUSED:
        raise InvalidError(answer["error"], [Problem(**each) for each in answer["problems"]])
    if process.returncode == _FAILED:
        raise TransientError(answer["error"])
    if process.returncode == _TOO_LARGE or process.returncode < 0:  # or killed by the kernel
        raise _make_limit_error(name)
    text = process.stderr[-LONGEST_TRACE:].decode(errors="replace")
    _log.error("the import of %s ended with status %s: %s", name, process.returncode, text)
    raise TransientError(
        f"cannot import {name}: its process ended with status {process.returncode}; nothing was"
        " imported; the service's log has more"
    )


def _make_limit_error(name: str) -> InvalidError:
    return InvalidError(
        f"cannot import {name}: reading it takes more than {MEMORY_BYTES >> 20} MiB of memory or"
        f" {CPU_S} s; nothing was imported: check the file, or split it by time"
    )


_MOMENTS = ("since", "until")


def main(arguments: list[str]) -> int:
    """Import, print the result or the error as JSON, and return the exit status."""
    import pyarrow as pa

    from speck.metrics.dataset.exchange import import_file
    from speck.metrics.dataset.opening import open_storage

    uri, local, path, name, form, table = arguments
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    _limit()
    try:
        storage = open_storage(uri, Path(local))
        result = import_file(storage, Path(path), name, form, TABLES[table] if table else None)
    except InvalidError as error:
        problems = [asdict(problem) for problem in error.problems]
        print(json.dumps({"error": str(error), "problems": problems}))
        return _REFUSED
    except SpeckError as error:
        print(json.dumps({"error": str(error)}))
        return _FAILED
    except MemoryError:  # also Arrow's
        return _TOO_LARGE
    moments = {end: getattr(result, end) for end in _MOMENTS}
    shown = {end: moment and moment.isoformat() for end, moment in moments.items()}
    print(json.dumps({**asdict(result), **shown}))
    return 0


def _limit() -> None:
    """Limit what comes on top of what the process has now; the service goes first."""
    os.nice(10)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
