"""The artifact folder: each jar is stored once, under its SHA-256."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from speck.clock import Clock, rfc3339
from speck.config import Config
from speck.errors import InvalidError, NotFoundError, Problem, StoreFullError
from speck.model.values import JsonObject
from speck.store.records import Records

_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Artifacts:
    """The artifact folder and its index in the store."""

    def __init__(self, config: Config, records: Records, clock: Clock):
        self._folder = config.artifacts
        self._most = config.max_artifact
        self._records = records
        self._clock = clock

    def file(self, sha256: str) -> Path:
        """Return the jar with that SHA-256. Raises NotFoundError."""
        path = self._folder / f"{sha256}.jar"
        if _SHA256.fullmatch(sha256) is None or not path.is_file():
            raise NotFoundError(
                f"cannot find artifact {sha256!r}; send it with PUT /artifacts/<sha256>"
            )
        return path

    def find(self, sha256: str) -> Path | None:
        """Return the jar with that SHA-256, or None."""
        try:
            return self.file(sha256)
        except NotFoundError:
            return None

    def put(self, sha256: str, chunks: Iterable[bytes]) -> bool:
        """Store a jar from a stream; returns whether it is new.

        Raises InvalidError if the content has another hash or is too large, StoreFullError if the
        disk is full; nothing is stored then.
        """
        if _SHA256.fullmatch(sha256) is None:
            raise InvalidError(
                "cannot take this artifact",
                [Problem("sha256", f"{sha256!r} is no SHA-256 in 64 lower-case hex digits")],
            )
        is_new = self._records.artifacts.get(sha256) is None
        try:
            size = self._keep(sha256, chunks)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise StoreFullError(
                f"cannot keep artifact {sha256} in {self._folder}: {error.strerror};"
                " free space on that disk, then send it again"
            ) from error
        if is_new:
            record: JsonObject = {"sha256": sha256, "bytes": size, "at": rfc3339(self._clock.now())}
            self._records.write({self._records.artifacts.key(sha256): record})
        return is_new

    def _keep(self, sha256: str, chunks: Iterable[bytes]) -> int:
        """Store the content under its hash and return its size in bytes."""
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix="incoming-")
        try:
            with os.fdopen(descriptor, "wb") as out:
                actual_sha256, size = self._receive(chunks, out)
                out.flush()
                os.fsync(out.fileno())
            if actual_sha256 != sha256:
                fault = f"the content's SHA-256 is {actual_sha256}; send it under that"
                raise InvalidError(f"cannot take artifact {sha256}", [Problem("sha256", fault)])
            os.replace(name, self._folder / f"{sha256}.jar")
        finally:
            Path(name).unlink(missing_ok=True)
        return size

    def adopt(self, sha256: str, file: Path) -> None:
        """Store a copy of the jar of a `job_path`, so that it can be uploaded to a site again even
        if the file has changed."""
        if self.find(sha256) is None:
            with file.open("rb") as source:
                self.put(sha256, iter(lambda: source.read(_CHUNK), b""))

    def get(self, sha256: str) -> JsonObject:
        """`{sha256, bytes, at}` of one artifact. Raises NotFoundError."""
        record = self._records.artifacts.get(sha256)
        if record is None:
            raise NotFoundError(f"cannot find artifact {sha256!r}")
        return record

    def all(self) -> list[JsonObject]:
        """`{sha256, bytes, at}` of each artifact."""
        return list(self._records.artifacts.values())

    def _receive(self, chunks: Iterable[bytes], out: object) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        for chunk in chunks:
            size += len(chunk)
            if size > self._most:
                raise InvalidError(
                    "cannot take this artifact",
                    [Problem("", f"it is larger than {self._most} bytes")],
                    status=413,
                )
            digest.update(chunk)
            out.write(chunk)  # type: ignore[attr-defined]
        return digest.hexdigest(), size
