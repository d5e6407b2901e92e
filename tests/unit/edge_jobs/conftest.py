"""The programs of edge_jobs are not installed: they go to sites in an archive, or in a jar."""

from __future__ import annotations

import sys

from tests.python_jobs import ROOT, SOURCES

sys.path += [str(SOURCES), str(ROOT / "edge_jobs/pyspark")]
