"""What a log may hold of a request: a secret that a client put in the wrong place stays out of it.

A value of the query is shown only under a name that some route declares: those are names of jobs,
numbers, times. What looks like one of speck's own secrets is hidden wherever it stands. Headers,
which hold Authorization, Cookie and Referer, are never logged.
"""

from __future__ import annotations

import re
from collections.abc import Set
from urllib.parse import parse_qsl, unquote, urlencode

HIDDEN = "***"
_SECRET = re.compile(r"speck_[A-Za-z0-9_-]{16,}")
_USER_INFO = re.compile(r"(://|^//)[^/@?#\s]+@")
_LONGEST = 200


def mask_url(path: str, query: str, declared: Set[str]) -> str:
    """A request's path and query for a log: on one line, without secrets, of limited length."""
    text = mask_text(path)
    if query:
        pairs = parse_qsl(query, keep_blank_values=True, errors="backslashreplace")
        shown = [(mask_text(k), v if k in declared else HIDDEN) for k, v in pairs[:20]]
        text += "?" + mask_text(urlencode(shown, safe=f"*/,:{HIDDEN}"))
    return text[:_LONGEST]


def mask_text(text: str) -> str:
    """A text on one line, without control characters, secrets, or users and passwords of URLs."""
    masked = _SECRET.sub(HIDDEN, text)
    if masked == text and "%" in text:  # a secret may be spelt with escapes
        masked = HIDDEN if _SECRET.search(unquote(text)) else text
    return _USER_INFO.sub(rf"\1{HIDDEN}@", masked).encode("unicode_escape").decode()
