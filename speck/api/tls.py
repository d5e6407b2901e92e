"""The service's own TLS: its certificate, loaded again when its files change."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

from speck.config import Config
from speck.errors import PermanentError

_log = logging.getLogger("speck.api.server")


def check_settings(config: Config) -> None:
    """Raises PermanentError when the settings for TLS do not fit together or cannot be loaded."""
    if config.tls_cert and config.tls_key:
        load_context(config.tls_cert, config.tls_key, config.client_ca)
    elif config.tls_cert or config.tls_key:
        present, missing = ("--tls-cert", "--tls-key")[:: 1 if config.tls_cert else -1]
        raise PermanentError(
            f"cannot serve TLS with {present} alone: add {missing}"
            f" (or SPECK_{missing.lstrip('-').replace('-', '_').upper()})"
        )
    elif config.client_ca:
        raise PermanentError(
            "cannot ask clients for certificates without TLS: --client-ca needs --tls-cert and"
            " --tls-key"
        )


def load_context(cert: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """TLS 1.2 or later with this certificate chain (PEM). With `client_ca` every client must show
    a certificate that one of its authorities signed. Raises PermanentError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # without a password OpenSSL would ask for that of an encrypted key on the terminal
        context.load_cert_chain(cert, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise PermanentError(
            f"cannot load the certificate {cert} with the key {key}: {_reason(error)}; both must"
            " be readable PEM files that belong together, the key without a passphrase"
        ) from error
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ValueError) as error:
            raise PermanentError(
                f"cannot load the authorities of clients from {client_ca}: {_reason(error)};"
                " give a PEM file of certificates with --client-ca"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class ServerTls:
    """The context for new connections. Connections that are open keep theirs."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None):
        self._files = (cert, key, client_ca)
        self._used_versions = self._bad_versions = self._versions()
        self.context = load_context(*self._files)

    def refresh(self) -> None:
        """Load the files again if they have changed. While they cannot be loaded the previous
        certificate stays in use, and each call tries again; that is logged once."""
        versions = self._versions()
        if versions == self._used_versions:
            return
        try:
            self.context = load_context(*self._files)
        except PermanentError as error:
            if versions != self._bad_versions:
                _log.error("%s; the previous certificate stays in use", error)
            self._bad_versions = versions
        else:
            self._used_versions = versions
            _log.info("loaded the certificate %s again: it has changed", self._files[0])

    def _versions(self) -> list[object]:
        return [None if file is None else _version(file) for file in self._files]


def _version(file: Path) -> object:
    try:
        status = os.stat(file)
    except OSError as error:
        return error.errno
    return status.st_mtime_ns, status.st_ino, status.st_size


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
