"""bench.moves with jobs that are programs, beside Flink: `make bench-moves ENGINE=process`."""

from __future__ import annotations

import sys

from bench.engine_jobs import PROCESS
from bench.moves_engines import measure

if __name__ == "__main__":
    sys.exit(measure(PROCESS))
