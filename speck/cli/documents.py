"""Reads documents that the user names: a file, or `-` for stdin."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from speck.errors import NotFoundError

STDIN = "-"
_JSON, _YAML = "application/json", "application/yaml"


@dataclass(frozen=True, slots=True)
class Text:
    """A document; `name` is its name in messages."""

    name: str
    content: bytes
    content_type: str


def read(file: str) -> Text:
    """Read a file, or stdin. Raises NotFoundError when it cannot be read."""
    if file == STDIN:
        content = sys.stdin.buffer.read()
        # JSON may hold tabs, which YAML refuses.
        kind = _JSON if content.lstrip()[:1] in (b"{", b"[") else _YAML
        return Text("stdin", content, kind)
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise NotFoundError(f"cannot read {file}: {error.strerror or error}") from error
    return Text(file, content, _JSON if file.endswith(".json") else _YAML)
