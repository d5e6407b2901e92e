"""A stored result; reading a key that is missing is an error that names file and key."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from speck.errors import PermanentError


class ResultError(PermanentError):
    """A result cannot be shown: its file is not as its section expects it."""


class Result(dict[str, Any]):
    """A JSON object that knows where it stands in which file."""

    def __init__(self, content: dict[str, Any], file: str, path: str = "") -> None:
        super().__init__(
            {key: _wrap(each, file, _join(path, key)) for key, each in content.items()}
        )
        self.file, self.path = file, path

    def __missing__(self, key: str) -> Any:
        raise ResultError(
            f"cannot show {self.file}: it has no {_join(self.path, key)!r}; measure it again with"
            " today's code, or mend its section below bench/page/"
        )


def load(path: Path) -> Result:
    """The result in a file. A list at its top is given as `{"items": [...]}`."""
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ResultError(f"cannot read {path}: {error}; measure it again") from error
    return Result({"items": content} if isinstance(content, list) else content, path.name)


def fingerprint(path: Path) -> str:
    """The mark of a plot of this file: a test detects a plot of another version."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _wrap(value: Any, file: str, path: str) -> Any:
    if isinstance(value, dict):
        return Result(value, file, path)
    if isinstance(value, list):
        return [_wrap(each, file, f"{path}[{n}]") for n, each in enumerate(value)]
    return value


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
