"""TLS from certificates in files: TLS 1.2 or later, host names verified, files read again when
they change. Standard library only: a site's agent has nothing else."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from speck.errors import PermanentError

_log = logging.getLogger("speck.tls")


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The PEM files of a client: the authority that signs the certificates of its servers (None:
    those that this machine trusts), and the certificate with its key that is presented to a server
    that asks for one."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


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

    While new files cannot be used (one is replaced before the other), the last context stays, and
    each call tries again; that is logged once for each version of the files.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext], *files: Path | None):
        """Raises PermanentError when the files cannot be used."""
        self._make = make
        self._files = tuple(file for file in files if file is not None)
        self._lock = threading.Lock()
        self._used_version = self._bad_version = self._read_version()
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
            version = self._read_version()
            if version != self._used_version:
                self._load(version)
            return self._context

    def _load(self, version: object) -> None:
        try:
            self._context = self._make()
        except PermanentError as error:
            if version != self._bad_version:
                _log.error("%s; the previous files stay in use", error)
            self._bad_version = version
        else:
            self._used_version = version
            names = ", ".join(map(str, self._files))
            _log.info("loaded %s again: changed on the disk", names)

    def _read_version(self) -> object:
        """What differs between two versions of the files."""
        return [_version_of(file) for file in self._files]


_lock = threading.Lock()


def shared_context(files: ClientTls, protocol: str) -> ssl.SSLContext:
    """The context of all clients of this process with these files, made anew when one of them has
    changed. Each `protocol` has contexts of its own: that of HTTP offers it in the handshake.

    Raises PermanentError when a file cannot be used.
    """
    with _lock:
        reloaded = _shared_files(files, protocol)
    return reloaded.context()


@lru_cache(maxsize=64)
def _shared_files(files: ClientTls, _protocol: str) -> TlsFiles:
    return TlsFiles.of_client(files.ca, files.cert, files.key)


def _version_of(file: Path) -> object:
    try:
        status = os.stat(file)
    except OSError as error:
        return error.errno
    return status.st_mtime_ns, status.st_size, status.st_ino


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
