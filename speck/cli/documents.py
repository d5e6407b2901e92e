"""Reads documents that the user names: a file, or `-` for stdin."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import BinaryIO

from speck.errors import InvalidError, NotFoundError

STDIN = "-"
MAX_BYTES = 64 << 20
"""Far more than the service takes of any document: a device would fill the memory."""
_JSON, _YAML = "application/json", "application/yaml"


@dataclass(frozen=True, slots=True)
class Text:
    """A document; `name` is its name in messages."""

    name: str
    content: bytes
    content_type: str


def read(file: str) -> Text:
    """Read a file, or stdin. Raises NotFoundError when it cannot be read, InvalidError when
    it is too large."""
    if file == STDIN:
        content = _read(sys.stdin.buffer, "stdin")
        # JSON may hold tabs, which YAML refuses.
        kind = _JSON if content.lstrip()[:1] in (b"{", b"[") else _YAML
        return Text("stdin", content, kind)
    try:
        with open(file, "rb") as stream:
            content = _read(stream, file)
    except OSError as error:
        raise NotFoundError(f"cannot read {file}: {error.strerror or error}") from error
    return Text(file, content, _JSON if file.endswith(".json") else _YAML)


def _read(stream: BinaryIO, name: str) -> bytes:
    content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InvalidError(f"cannot read {name}: it has more than {MAX_BYTES >> 20} MiB")
    return content
