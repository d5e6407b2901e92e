"""The file that holds a site's secrets: `key=value` lines, readable by its owner only.

Beside what the broker wants it may hold lines `secret.NAME=value`, to which the `args` of jobs that
run at the site refer as `{secret:NAME}`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from speck.errors import BrokerRefusedError
from speck.model.site import normalise_address

_KEYS = ("user", "password", "ca", "address")
_SECRET = "secret."


@dataclass(frozen=True, slots=True)
class Credentials:
    """The content of a credentials file; `ca` is a PEM file with the authority that signs the
    broker's certificate."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: Path | None = None


def read_credentials(file: Path, address: str) -> Credentials:
    """Read the credentials in `file` for the broker at the normalised `address`.

    Lines are `key=value` with keys user, password, ca (relative to the file's folder) and
    address; blank lines and lines that begin with `#` are skipped. Raises BrokerRefusedError if
    others may read the file, if a line is invalid, or if the file belongs to another broker's
    address: a secret is never sent to the wrong broker.
    """
    values = _read_values(file)
    own_address = values.get("address")
    if own_address is not None and _normalise(file, own_address) != address:
        raise BrokerRefusedError(
            f"cannot use the credentials in {file} for {address}: they are for {own_address};"
            " name another file, or correct its address line"
        )
    if "password" in values and "user" not in values:
        raise BrokerRefusedError(f"cannot use the credentials in {file}: a password but no user")
    ca = values.get("ca")
    return Credentials(
        user=values.get("user"),
        password=values.get("password"),
        ca=file.parent / ca if ca else None,
    )


def read_secrets(file: Path) -> dict[str, str]:
    """The secrets in `file` for jobs, by name. Raises like `read_credentials`."""
    values = _read_values(file)
    return {
        key.removeprefix(_SECRET): value for key, value in values.items() if key.startswith(_SECRET)
    }


def _read_values(file: Path) -> dict[str, str]:
    try:
        mode = file.stat().st_mode & 0o777
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BrokerRefusedError(f"cannot read the credentials in {file}: {error}") from error
    if mode & 0o077:
        raise BrokerRefusedError(
            f"cannot use the credentials in {file}: mode {mode:04o} lets others read them;"
            f" run: chmod 0600 {file}"
        )
    values: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not (key.strip() in _KEYS or key.strip().startswith(_SECRET)):
            # The line itself stays out of the message: it may hold a secret.
            raise BrokerRefusedError(
                f"cannot use the credentials in {file}: line {number} is none of"
                f" {', '.join(f'{key}=' for key in (*_KEYS, 'secret.NAME'))}"
            )
        values[key.strip()] = value.strip()
    return values


def _normalise(file: Path, address: str) -> str:
    try:
        return normalise_address(address)
    except ValueError as error:
        raise BrokerRefusedError(f"cannot use the credentials in {file}: {error}") from error
