"""The Spark application that stays up between analyses, so that Spark is warm for each of them."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from speck.analyzer.clusters import SparkClusters
from speck.analyzer.process import SparkApplication

NATIVE_BYTES = 1 << 30
"""Memory of an application besides the JVM's heap; one that has taken more is ended."""
_LOG = logging.getLogger(__name__)


class WarmApplication:
    """At most one application, at one master. One thread uses it; others may read `current`."""

    def __init__(self, clusters: SparkClusters, memory: int, log: Path):
        """`memory`: bytes of the JVM's heap; `log` is the file for what the process prints."""
        self._clusters = clusters
        self._memory = memory
        self._log = log
        self._master = ""
        self.current: SparkApplication | None = None

    def take(self, master: str) -> SparkApplication:
        """The application that stays up; a new one if there is none at this master."""
        if self.current is not None:
            if self.current.is_usable and self._master == master:
                return self.current
            self.end()
        argv = [sys.executable, "-m", "speck.analyzer", "--serve", "--master", master]
        argv += ["--memory", f"{self._memory >> 20}m", *self._clusters.list_arguments()]
        self._master, self.current = master, SparkApplication(argv, self._log)
        return self.current

    def start(self, master: str) -> None:
        """Start it, unless there is one; does not wait."""
        if self.current is None:
            try:
                self.take(master).warm_up()
            except OSError as error:
                _LOG.warning("cannot start the analyzer before it is needed: %s", error)
                self.end()

    def end(self) -> None:
        """End it, if there is one, and wait for that."""
        application, self.current = self.current, None
        if application is not None:
            application.end()
            application.await_end()

    def end_if_large(self) -> None:
        """End it if it has taken too much memory."""
        most = self._memory + NATIVE_BYTES
        if self.current is not None and self.current.measure_memory() > most:
            self.end()
