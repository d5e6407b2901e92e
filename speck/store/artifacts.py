"""The artifact folder: each artifact is stored once, under its SHA-256."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from speck.binding import ENGINES, Artifact, ArtifactKind, artifact_kinds, kinds
from speck.clock import Clock, rfc3339
from speck.config import Config
from speck.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    Problem,
    StoreFullError,
)
from speck.model.artifact import ArtifactUse, StoredArtifact, UsedArtifact
from speck.model.values import LOCAL, SPECK
from speck.spec.artifacts import artifact_fault, find_kind, is_text
from speck.store.artifact_uses import find_in_changes, find_uses, is_used
from speck.store.leveldb import measure_room
from speck.store.records import Records

_SHA256 = re.compile(r"[0-9a-f]{64}")
_INCOMING = "incoming-"
_CHUNK = 1 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ACCEPTING_S = 600.0
"""For so long after it was adopted, the revision that names an artifact may not be stored yet."""


@dataclass(frozen=True, slots=True)
class _Upload:
    """An upload under way: its announced size, and the token that sends it."""

    size: int
    by: str | None


class Artifacts:
    """The artifact folder and its index in the store. Thread-safe."""

    def __init__(self, config: Config, records: Records, clock: Clock):
        self._folder = config.artifacts
        self._most = config.max_artifact
        self._quota = config.artifact_quota
        self._token_quota = config.artifact_token_quota
        self._grace_s = config.artifact_grace_s
        self._records = records
        self._clock = clock
        self._lock = threading.Lock()  # over what is there: none comes while others are deleted
        self._uploads: list[_Upload] = []
        self._adopted: dict[str, tuple[float, int]] = {}

    def file(self, sha256: str) -> Path:
        """Return the artifact with that SHA-256. Raises NotFoundError."""
        path = self._path(sha256)
        if _SHA256.fullmatch(sha256) is None or not path.is_file():
            raise NotFoundError(
                f"cannot find artifact {sha256!r}; send it with `speck artifacts push FILE`"
            )
        return path

    def artifact(self, sha256: str) -> Artifact:
        """The artifact with that SHA-256, as an engine gets it. Raises NotFoundError."""
        file = self.file(sha256)
        return Artifact(sha256, file, find_kind(sha256, file) or ArtifactKind.TEXT)

    def find(self, sha256: str) -> Path | None:
        """Return the artifact with that SHA-256, or None."""
        try:
            return self.file(sha256)
        except NotFoundError:
            return None

    def put(
        self, sha256: str, chunks: Iterable[bytes], size: int = 0, by: str | None = None
    ) -> bool:
        """Store an artifact from a stream that token `by` sends; returns whether it is new. `size`
        is the announced number of bytes.

        Raises InvalidError if the content has another hash, is too large or no artifact, or if the
        token has used up its quota (413); StoreFullError if the disk has too little room, or all
        artifacts together reach their quota. Nothing is stored then.
        """
        self._refuse_no_hash(sha256)
        with self._upload(sha256, _Upload(size, by)):
            return self._store(sha256, chunks, by)

    def adopt(self, sha256: str, file: Path) -> None:
        """Store a copy of the file at a `job_path`, so that it can be uploaded to a site again
        even if it has changed. It counts for no quota: it comes from a folder of the service.

        Raises NotFoundError when the file is gone.
        """
        with self._lock:
            if not is_used(self._records, sha256):
                writes = self._records.compositions.artifact_writes[sha256]
                self._adopted[sha256] = self._clock.monotonic(), writes
            is_there = self.find(sha256) is not None
        if is_there:
            return
        try:
            with file.open("rb") as source:
                self._store(sha256, iter(lambda: source.read(_CHUNK), b""), None)
        except FileNotFoundError as error:
            raise NotFoundError(
                f"cannot find the artifact {file}: it was removed meanwhile"
            ) from error

    def get(self, sha256: str) -> UsedArtifact:
        """An artifact with its uses. Raises NotFoundError."""
        artifact = self._records.artifacts.get(sha256)
        if artifact is None:
            raise NotFoundError(f"cannot find artifact {sha256!r}")
        return UsedArtifact.of(artifact, tuple(find_uses(self._records).get(sha256, ())))

    def all(self) -> list[UsedArtifact]:
        """Each artifact with its uses."""
        uses = find_uses(self._records)
        return [UsedArtifact.of(each, tuple(uses.get(each.sha256, ()))) for each in self._list()]

    def delete(
        self,
        sha256: str,
        by: str | None = None,
        *,
        any_owner: bool = True,
        shows: Callable[[ArtifactUse], bool] = lambda use: True,
    ) -> None:
        """Delete an artifact; without `any_owner` only one that token `by` has sent. `shows` says
        which of its uses may be named to them.

        Raises NotFoundError, ForbiddenError, and ConflictError naming what uses it.
        """
        with self._lock:
            artifact = self.get(sha256)
            if not any_owner and artifact.by != by:
                sender = f"token {artifact.by!r}" if artifact.by else "no token"
                raise ForbiddenError(
                    f"cannot delete artifact {sha256}: {sender} sent it; ask an administrator"
                )
            users = sorted({str(use) if shows(use) else "a job of others" for use in artifact.uses})
            if not users and sha256 in self._find_pending([sha256]):
                users = ["a change that is under way"]
            if users:
                more = f" and {len(users) - 5} more" if len(users) > 5 else ""
                raise ConflictError(
                    f"cannot delete artifact {sha256}: {', '.join(users[:5])}{more} uses it; remove"
                    " that first"
                )
            self._remove([sha256], f"artifact {sha256[:12]} deleted", by or LOCAL)

    def collect(self, *, dry_run: bool = False, by: str = SPECK) -> list[StoredArtifact]:
        """Delete the artifacts that nothing names any more and that were sent longer ago than the
        grace period; returns them. `by` asks for it."""
        with self._lock:
            uses = find_uses(self._records)
            now = self._clock.now()
            unused = {
                each.sha256: each
                for each in self._list()
                if each.sha256 not in uses and self._is_old(_age_s(each, now))
            }
            for sha256 in self._find_pending(unused):
                del unused[sha256]
            if not dry_run:
                if unused:
                    message = f"{len(unused)} artifacts that nothing uses deleted"
                    self._remove(list(unused), message, by)
                self._sweep_strays()
        return list(unused.values())

    def list_young(self) -> list[StoredArtifact]:
        """Those that nothing names, but that were sent within the grace period."""
        uses, now = find_uses(self._records), self._clock.now()
        return [
            each
            for each in self._list()
            if each.sha256 not in uses and not self._is_old(_age_s(each, now))
        ]

    def find_unneeded(self, sent_ms: Mapping[str, int]) -> list[str]:
        """Those artifacts that nothing names any more and that came, to an engine, longer ago than
        the grace period; `sent_ms` are Unix milliseconds."""
        with self._lock:
            uses, now_s = find_uses(self._records), self._clock.now().timestamp()
            unused = [
                sha256
                for sha256, at_ms in sent_ms.items()
                if sha256 not in uses and self._is_old(now_s - at_ms / 1000)
            ]
            pending = self._find_pending(unused)
        return [sha256 for sha256 in unused if sha256 not in pending]

    # -- parts ------------------------------------------------------------------------------

    def _list(self) -> list[StoredArtifact]:
        return list(self._records.artifacts.values())

    def _path(self, sha256: str) -> Path:
        return self._folder / sha256

    def _is_old(self, age_s: float) -> bool:
        return 0 < self._grace_s < age_s

    def _find_pending(self, sha256s: Iterable[str]) -> set[str]:
        """Those that a change under way needs, or a request that is being accepted."""
        now, written = self._clock.monotonic(), self._records.compositions.artifact_writes
        for sha256, (at, writes) in list(self._adopted.items()):
            if now - at > _ACCEPTING_S or written[sha256] > writes:
                del self._adopted[sha256]
        names = set(sha256s)
        return find_in_changes(self._records, names) | (names & self._adopted.keys())

    def _remove(self, sha256s: list[str], message: str, by: str) -> None:
        """The records first: a file without a record is deleted as a stray."""
        self._records.write(
            *map(self._records.artifacts.drop, sha256s),
            self._records.events.make("artifact", message, by=by),
        )
        for sha256 in sha256s:
            self._path(sha256).unlink(missing_ok=True)

    def _sweep_strays(self) -> None:
        """Delete what a kill left in the folder: parts of uploads, files without a record."""
        if not self._folder.is_dir():
            return
        now = self._clock.now().timestamp()
        for path in self._folder.iterdir():
            is_known = self._records.artifacts.has(path.stem)
            if not is_known and self._is_old(now - path.stat().st_mtime):
                path.unlink(missing_ok=True)

    def _refuse_no_hash(self, sha256: str) -> None:
        if _SHA256.fullmatch(sha256) is None:
            raise InvalidError(
                "cannot take this artifact",
                [Problem("sha256", f"{sha256!r} is no SHA-256 in 64 lower-case hex digits")],
            )

    @contextmanager
    def _upload(self, sha256: str, upload: _Upload) -> Iterator[None]:
        """Count an upload while it comes, so that many at once do not exceed what one may not."""
        with self._lock:
            self._refuse_over_quota(sha256, upload)
            self._uploads.append(upload)
        try:
            yield
        finally:
            with self._lock:
                self._uploads.remove(upload)

    def _refuse_over_quota(self, sha256: str, upload: _Upload) -> None:
        others = [each for each in self._list() if each.sha256 != sha256]
        own = sum(each.bytes for each in others if each.by == upload.by)
        own += sum(u.size for u in self._uploads if u.by == upload.by)
        if upload.by is not None and own + upload.size > self._token_quota:
            fault = (
                f"token {upload.by!r} has sent {own} bytes, of at most {self._token_quota}"
                " (SPECK_ARTIFACT_TOKEN_QUOTA); delete some with `speck artifacts remove`"
            )
            raise InvalidError(
                f"cannot take this artifact: {fault}", [Problem("", fault)], status=413
            )
        total = sum(each.bytes for each in others) + sum(u.size for u in self._uploads)
        if total + upload.size > self._quota:
            raise StoreFullError(
                f"cannot take this artifact: all artifacts have {total} bytes, of at most"
                f" {self._quota} (SPECK_ARTIFACT_QUOTA); delete those that nothing uses with `speck"
                " artifacts gc` or `speck artifacts remove`"
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        self._refuse_no_room(sum(u.size for u in self._uploads) + upload.size)

    def _refuse_no_room(self, size: int = 0) -> None:
        """Raises StoreFullError while the store could still write: twice its reserve is kept."""
        free, reserve = measure_room(self._folder)
        if free - size < 2 * reserve:
            raise StoreFullError(
                f"cannot keep an artifact in {self._folder}: {free} bytes are free on that disk,"
                f" and {2 * reserve} are reserved; free some, e.g. with `speck artifacts gc`"
            )

    def _store(self, sha256: str, chunks: Iterable[bytes], by: str | None) -> bool:
        try:
            size = self._keep(sha256, chunks)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise StoreFullError(
                f"cannot keep artifact {sha256} in {self._folder}: {error.strerror};"
                " free space on that disk, then send it again"
            ) from error
        with self._lock:
            known = self._records.artifacts.get(sha256)
            at = rfc3339(self._clock.now())  # also of one that is there: its grace begins anew
            artifact = StoredArtifact(sha256, size, at, known.by if known else by)
            if not self._path(sha256).is_file():
                raise ConflictError(f"cannot keep artifact {sha256}: it was deleted meanwhile")
            self._records.write(self._records.artifacts.put(artifact, sha256))
        return known is None

    def _keep(self, sha256: str, chunks: Iterable[bytes]) -> int:
        """Store the content under its hash and return its size in bytes."""
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=_INCOMING)
        try:
            with os.fdopen(descriptor, "wb") as out:
                actual_sha256, size = self._receive(chunks, out)
                out.flush()
                os.fsync(out.fileno())
            if actual_sha256 != sha256:
                fault = f"the content's SHA-256 is {actual_sha256}; send it under that"
                raise InvalidError(f"cannot take artifact {sha256}", [Problem("sha256", fault)])
            if (no_artifact := _find_fault(Path(name))) is not None:
                raise InvalidError(
                    f"cannot take artifact {sha256}: {no_artifact}", [Problem("", no_artifact)]
                )
            os.replace(name, self._path(sha256))
        finally:
            Path(name).unlink(missing_ok=True)
        return size

    def _receive(self, chunks: Iterable[bytes], out: BinaryIO) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        for chunk in chunks:
            size += len(chunk)
            if size > self._most:
                raise InvalidError(
                    "cannot take this artifact",
                    [Problem("", f"it is larger than {self._most} bytes")],
                    status=413,
                )
            self._refuse_no_room(len(chunk))
            digest.update(chunk)
            out.write(chunk)
        return digest.hexdigest(), size


def _find_fault(file: Path) -> str | None:
    """Why no engine of an installed kind could run a file; None: one could."""
    fault = artifact_fault(file)
    if fault is None or not is_text(file):
        return fault
    taken = (artifact_kinds(kind) for kind in kinds(ENGINES))
    return None if any(ArtifactKind.TEXT in each for each in taken) else fault


def _age_s(artifact: StoredArtifact, now: datetime) -> float:
    return (now - datetime.fromisoformat(artifact.at)).total_seconds()
