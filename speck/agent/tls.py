"""TLS from certificates in files: TLS 1.2 or later, host names verified, files read again when
they change. It is here, and not beside the service, since the agent has nothing but the standard
library."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

from speck.errors import PermanentError

Stamp = tuple[tuple[int, int, int], ...]


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """The context of a server. With `client_ca` every client must present a certificate that this
    authority has signed. Raises PermanentError when a file cannot be used."""
    # Python 3.13's default context refuses clients whose certificates lack key identifiers, as
    # those of a plain `openssl x509 -req` do; the service and the brokers accept them
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_own(context, cert, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_authority(context, client_ca)
    return context


def client_context(
    ca: Path | None = None, cert: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """The context of a client, which verifies the server's certificate and host name: against `ca`
    alone, or without it against the authorities of this machine. `cert` and `key` are presented to
    a server that asks for them. Raises PermanentError when a file cannot be used."""
    if ca is None:
        context = ssl.create_default_context()
    else:  # with `cafile` alone, the machine's own authorities are not loaded
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_authority(context, ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert is not None:
        _load_own(context, cert, key or cert)
    return context


class TlsFiles:
    """A context made from files, and made anew when one of them has changed. Thread-safe.

    While new files cannot be used (one is replaced before the other), the last context stays.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext], *files: Path | None):
        """Raises PermanentError when the files cannot be used."""
        self._make = make
        self._files = tuple(file for file in files if file is not None)
        self._lock = threading.Lock()
        self._stamp = self._read_stamp()
        self._context = make()

    @classmethod
    def of_server(cls, cert: Path, key: Path, client_ca: Path | None = None) -> TlsFiles:
        """The files of `server_context`."""
        return cls(lambda: server_context(cert, key, client_ca), cert, key, client_ca)

    @classmethod
    def of_client(
        cls, ca: Path | None = None, cert: Path | None = None, key: Path | None = None
    ) -> TlsFiles:
        """The files of `client_context`."""
        return cls(lambda: client_context(ca, cert, key), ca, cert, key)

    def context(self) -> ssl.SSLContext:
        """The context of the files as they are now."""
        with self._lock:
            stamp = self._read_stamp()
            if stamp and stamp != self._stamp:
                try:
                    self._context = self._make()
                    self._stamp = stamp
                except PermanentError:
                    pass  # the next call tries again
            return self._context

    def _read_stamp(self) -> Stamp:
        """What differs between two versions of the files; empty while one of them is missing."""
        try:
            stats = [os.stat(file) for file in self._files]
        except OSError:
            return ()
        return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)


def _load_own(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    try:
        context.load_cert_chain(cert, key, password=lambda: b"")  # else OpenSSL asks the terminal
    except (OSError, ValueError) as error:
        raise PermanentError(
            f"cannot use the certificate {cert} with the key {key}: {_describe(error)}; give PEM"
            " files that belong together, the key without a password"
        ) from error


def _load_authority(context: ssl.SSLContext, ca: Path) -> None:
    try:
        context.load_verify_locations(cafile=ca)
    except (OSError, ValueError) as error:
        raise PermanentError(
            f"cannot use the certificate authority {ca}: {_describe(error)}; give a PEM file"
        ) from error


def _describe(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
