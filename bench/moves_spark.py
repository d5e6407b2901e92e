"""bench.moves with a job in PySpark, beside Flink: `make bench-moves ENGINE=spark`."""

from __future__ import annotations

import sys

from bench.engine_jobs import SPARK
from bench.moves_engines import measure

if __name__ == "__main__":
    sys.exit(measure(SPARK))
