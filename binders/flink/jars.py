"""The jars at one engine; uploads each content once."""

from __future__ import annotations

import threading
from pathlib import Path

from binders.flink import answers
from binders.flink.rest import FlinkRest


class JarStore:
    """SHA-256 -> Flink's jar id, cached because Flink opens every jar for `GET /jars`.

    Raises the errors of `FlinkRest`. Thread-safe.
    """

    def __init__(self, rest: FlinkRest, timeout_s: float):
        self._rest = rest
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._upload_locks: dict[str, threading.Lock] = {}
        self._listing = threading.Lock()
        self._ids: dict[str, str] = {}
        self._has_list = False

    def find(self, sha256: str) -> str | None:
        """Return the id of the artifact, or None. Only the first call sends a request."""
        with self._lock:
            jar_id = self._ids.get(sha256)
            if jar_id is not None or self._has_list:
                return jar_id
        with self._listing:
            self._list()
        with self._lock:
            return self._ids.get(sha256)

    def put(self, jar_file: Path, sha256: str, *, missing: str | None = None) -> str:
        """Upload the artifact unless the engine has it; returns its id.

        `missing` is an id that the engine has just reported as missing.
        """
        with self._lock:
            upload_lock = self._upload_locks.setdefault(sha256, threading.Lock())
        with upload_lock:
            jar_id = self.find(sha256)
            if jar_id is not None and jar_id != missing:
                return jar_id
            # the name holds the SHA-256, so that it is recognised after restarts of either side
            answer = self._rest.upload(
                "/jars/upload", jar_file, f"{sha256}.jar", timeout_s=self._timeout_s
            )
            jar_id = answers.jar_id(answer)
            with self._lock:
                self._ids[sha256] = jar_id
            return jar_id

    def all(self) -> list[answers.Jar]:
        """Return the jars of speck's, oldest first; one content may be there several times. Flink
        opens every jar for this."""
        return answers.jars(self._rest.get("/jars"))

    def delete(self, sha256: str) -> None:
        """Delete every jar of this content."""
        for jar in self.all():
            if jar.sha256 == sha256:
                self._rest.delete(f"/jars/{jar.id}")
        with self._lock:
            self._ids.pop(sha256, None)

    def _list(self) -> None:
        with self._lock:
            if self._has_list:
                return
        jar_ids = {jar.sha256: jar.id for jar in self.all()}
        with self._lock:
            self._ids = jar_ids | self._ids
            self._has_list = True
