"""Finds the storage that a URI names."""

from __future__ import annotations

import re
from pathlib import Path

from speck.errors import InvalidError
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.storage import Storage

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):(.*)", re.DOTALL)


def open_storage(place: str, local: Path, what: str = "metrics") -> Storage:
    """The storage at a URI (`file:`, `s3a:`, `hdfs:`) or in a folder. Of a dataset elsewhere
    `local` is the folder of this machine with its lock. Raises InvalidError, which says `what` the
    place was to be for."""
    match = _SCHEME.fullmatch(place)
    scheme = match[1] if match else "file"
    if scheme == "file":
        path = re.sub(r"^//(localhost)?(?=/)", "", match[2]) if match else place
        if not Path(path).is_absolute() and match:
            raise InvalidError(f"cannot use {place}: write file:///folder, with its whole path")
        return LocalStorage(Path(path).absolute())
    uri = place.rstrip("/")
    if scheme == "s3a" and re.fullmatch(r"s3a://[a-z0-9][a-z0-9.-]+(/[^/]+)*", uri):
        from speck.metrics.dataset.remote import open_s3

        return open_s3(uri, local)
    if scheme == "hdfs" and re.fullmatch(r"hdfs://[^/]+(/[^/]+)+", uri):
        from speck.metrics.dataset.remote import open_hdfs

        return open_hdfs(uri, local)
    raise InvalidError(
        f"cannot use {place!r:.200} for {what}: write file:///folder, s3a://bucket/folder or"
        " hdfs://host:port/folder"
    )
