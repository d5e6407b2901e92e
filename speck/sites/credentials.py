"""The file that holds a site's secrets: `key=value` lines, readable by its owner only.

Beside what its broker and engine want it may hold lines `secret.NAME=value`, to which the `args` of
jobs that run at the site refer as `{secret:NAME}`.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from speck.binding import normalise_address
from speck.errors import BrokerRefusedError, EngineRefusedError, PermanentError
from speck.tls.contexts import ClientTls, shared_context

_KEYS = ("user", "password", "mechanism", "ca", "cert", "key", "address")
_SECRET = "secret."

# Engines read the same files (Credentials.java), with the same table of tests.
_LINE_END = re.compile("\r?\n")
_AROUND = " \t"

Refusal = type[BrokerRefusedError] | type[EngineRefusedError]


@dataclass(frozen=True, slots=True)
class Credentials:
    """The content of a credentials file. `mechanism` is how the user is authenticated, where a
    protocol has several ways."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ClientTls = field(default_factory=ClientTls)
    mechanism: str | None = None

    def context(self, protocol: str) -> ssl.SSLContext:
        """`shared_context` of their files. Raises PermanentError."""
        return shared_context(self.tls, protocol)


def read_credentials(
    file: Path, address: str, refusal: Refusal = BrokerRefusedError
) -> Credentials:
    """Read the credentials in `file` for the broker or engine at the normalised `address`.

    The file is UTF-8, with or without a byte order mark. Lines end with `\\n` or `\\r\\n`, and are
    `key=value` with keys user, password, mechanism, ca, cert, key (paths relative to the file's
    folder) and address (several are separated by spaces); blank lines and lines that begin with `#`
    are skipped. Raises `refusal` if others may read the file or the key, if a line is invalid, or
    if the file belongs to another address: a secret is never sent to the wrong place.
    """
    try:
        return _read(file, address)
    except PermanentError as error:
        raise refusal(str(error)) from error


def _read(file: Path, address: str) -> Credentials:
    values = _read_values(file)
    own = values.get("address")
    if own is not None and address not in (_normalise(file, each) for each in own.split()):
        raise PermanentError(
            f"cannot use the credentials in {file} for {address}: they are for {own};"
            " name another file, or correct its address line"
        )
    if "password" in values and "user" not in values:
        raise PermanentError(f"cannot use the credentials in {file}: a password but no user")
    if "key" in values and "cert" not in values:
        raise PermanentError(f"cannot use the credentials in {file}: a key but no cert")
    ca, cert, key = (
        file.parent / values[name] if values.get(name) else None for name in ("ca", "cert", "key")
    )
    if key is not None:
        _refuse_readable(key, "key")
    tls = ClientTls(ca, cert, key)
    return Credentials(
        values.get("user"), values.get("password"), tls, values.get("mechanism") or None
    )


def read_secrets(file: Path) -> dict[str, str]:
    """The secrets in `file` for jobs, by name. Raises like `read_credentials`."""
    try:
        values = _read_values(file)
    except PermanentError as error:
        raise BrokerRefusedError(str(error)) from error
    return {
        key.removeprefix(_SECRET): value for key, value in values.items() if key.startswith(_SECRET)
    }


def _read_values(file: Path) -> dict[str, str]:
    _refuse_readable(file, "credentials in")
    try:
        lines = _LINE_END.split(file.read_bytes().decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise PermanentError(f"cannot read the credentials in {file}: {error}") from error
    values: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        line = line.strip(_AROUND)
        if not line or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        key = key.strip(_AROUND)
        if not equals or not (key in _KEYS or key.startswith(_SECRET)):
            # The line itself stays out of the message: it may hold a secret.
            raise PermanentError(
                f"cannot use the credentials in {file}: line {number} is none of"
                f" {', '.join(f'{key}=' for key in (*_KEYS, 'secret.NAME'))}"
            )
        values[key] = value.strip(_AROUND)
    return values


def _refuse_readable(file: Path, what: str) -> None:
    try:
        mode = file.stat().st_mode & 0o777
    except OSError as error:
        raise PermanentError(f"cannot read the {what} {file}: {error}") from error
    if mode & 0o077:
        raise PermanentError(
            f"cannot use the {what} {file}: mode {mode:04o} lets others read them;"
            f" run: chmod 0600 {file}"
        )


def _normalise(file: Path, address: str) -> str:
    try:
        normalised = normalise_address(address)
    except ValueError as error:
        raise PermanentError(f"cannot use the credentials in {file}: {error}") from error
    if not address.isascii():  # jobs read the file, too, and compare addresses as they stand
        raise PermanentError(
            f"cannot use the credentials in {file}: write the address in its ASCII form,"
            f" {normalised}"
        )
    return normalised
