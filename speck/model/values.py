"""Names, texts in messages, and what JSON is in Python."""

from __future__ import annotations

import re
from typing import Any

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
"""The pattern of all names: sites, jobs, compositions, tokens and client ids."""

_NAME = re.compile(NAME_PATTERN)


def is_name(text: str) -> bool:
    """Whether `text` may name a site, job, composition or token."""
    return _NAME.fullmatch(text) is not None


_MOST_SHOWN = 80


def cut(text: str) -> str:
    """`text`, shortened for a message or a table: a topic may have 64 KiB. Its end is kept, in
    which long names differ."""
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 33]}...{text[-30:]}"


def show(text: str) -> str:
    """`text` in quotes, shortened for a message."""
    return repr(cut(text))


JsonObject = dict[str, Any]

LOCAL = "local"
"""Who acts without a token: somebody on the service's machine, who may read and write its home."""
SPECK = "speck"
"""Who asks for a change that nobody asked for: a repair."""
AUTOPILOT = "autopilot"
"""Who asks for a change that the autopilot makes."""
