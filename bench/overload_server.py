"""`speck serve` for bench.overload: with few descriptors (BENCH_FILES), or with gunicorn's own
worker for threads, to compare with (BENCH_WORKER=threads)."""

from __future__ import annotations

import os
import resource
from typing import Any

from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped]

from speck.api.server import process
from speck.config import Config


class _Worker(ThreadWorker):  # type: ignore[misc]
    """Tells the application when it stops."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.wsgi.stop()
        super().handle_exit(sig, frame)


if __name__ == "__main__":
    if os.environ.get("BENCH_WORKER") == "threads":
        process.ConnectionWorker = _Worker  # type: ignore[misc, assignment]
    if files := int(os.environ.get("BENCH_FILES", "0")):
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    process.serve(Config.from_env())
