"""The programs of edge_jobs/python are not installed: they go to sites in an archive."""

from __future__ import annotations

import sys

from tests.python_jobs import SOURCES

sys.path.append(str(SOURCES))
