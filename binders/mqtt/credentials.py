"""A broker's credentials (`speck.sites.credentials` reads the file), and its TLS context."""

from __future__ import annotations

import ssl
from functools import lru_cache
from pathlib import Path

from speck.errors import BrokerRefusedError
from speck.sites.credentials import Credentials, read_credentials

__all__ = ["Credentials", "read_credentials", "tls_context"]


def tls_context(ca: Path | None) -> ssl.SSLContext:
    """Return a TLS context that trusts only `ca`, or without it the machine's authorities."""
    try:
        # The modification time is part of the key, so that a renewed file is read again.
        return _tls_context(ca, ca.stat().st_mtime_ns if ca else 0)
    except OSError as error:  # ssl.SSLError is one too: a file that is no PEM
        raise BrokerRefusedError(
            f"cannot use the authority file {ca}: {error.strerror or error};"
            " the `ca` line must name a PEM file"
        ) from error


@lru_cache(maxsize=64)
def _tls_context(ca: Path | None, _mtime_ns: int) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca) if ca else None)
