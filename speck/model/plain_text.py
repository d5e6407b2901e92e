"""Texts of others, made harmless for a terminal."""

from __future__ import annotations

import logging
from typing import Any


def escape_controls(text: str) -> str:
    """`text` with what could control a terminal, or forge a further line, as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class PlainFormatter(logging.Formatter):
    """Formats messages so that each is one line that cannot control the terminal: they hold texts
    of engines, brokers and clients. Traces of exceptions keep their lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escape_controls(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        lines = super().formatException(ei).split("\n")
        return "\n".join(map(escape_controls, lines))
