"""The jars at one engine: which are there, and one upload for each content."""

from __future__ import annotations

import threading
from pathlib import Path

from binders.flink import answers
from binders.flink.rest import FlinkRest


class JarStore:
    """SHA-256 -> Flink's jar id, kept because `GET /jars` opens every jar there is.

    Raises what `FlinkRest` raises. Usable from several threads.
    """

    def __init__(self, rest: FlinkRest, timeout_s: float):
        self._rest = rest
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._uploading: dict[str, threading.Lock] = {}
        self._listing = threading.Lock()
        self._ids: dict[str, str] = {}
        self._listed = False

    def find(self, sha256: str) -> str | None:
        """The id of the artifact; the engine is asked at the first call only."""
        with self._lock:
            known = self._ids.get(sha256)
            if known is not None or self._listed:
                return known
        with self._listing:
            self._list()
        with self._lock:
            return self._ids.get(sha256)

    def put(self, jar_file: Path, sha256: str, *, gone: str | None = None) -> str:
        """The id of the artifact, uploaded unless it is there.

        `gone` is an id that the engine has just said it does not have.
        """
        with self._lock:
            uploading = self._uploading.setdefault(sha256, threading.Lock())
        with uploading:
            known = self.find(sha256)
            if known is not None and known != gone:
                return known
            # the name says the content, whatever engine or speck restarts in between
            answer = self._rest.upload(
                "/jars/upload", jar_file, f"{sha256}.jar", timeout_s=self._timeout_s
            )
            found = answers.jar_id(answer)
            with self._lock:
                self._ids[sha256] = found
            return found

    def _list(self) -> None:
        with self._lock:
            if self._listed:
                return
        found = answers.jar_ids(self._rest.get("/jars"))
        with self._lock:
            self._ids = found | self._ids
            self._listed = True
