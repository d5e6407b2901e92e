"""The one grammar of addresses. Which schemes there are is for binders to say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from speck.model.hosts import normalise_host
from speck.model.values import show


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme of addresses: the port when an address has none, and the scheme that it is another
    name of, if it is one. `encrypted`: connections use TLS."""

    port: int
    means: str | None = None
    encrypted: bool = False


HTTP = {"http": Scheme(80), "https": Scheme(443, encrypted=True)}

_HIGHEST_PORT = 65_535
_ADDRESS = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*)://(\[[^\[\]/?#@\\\s]+\]|[^\[\]/?#@:\\\s]+)(:[0-9]*)?(/[^\s?#\\]*)?",
    re.ASCII,
)
_PATH = re.compile(r"[A-Za-z0-9/._~!$&'()*+,;=:@-]*|%[0-9A-Fa-f]{2}")
_SECRETS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*@|.*[?#]", re.DOTALL)


class AddressError(ValueError):
    """A text is no address. `reason` says why; None if it does not even look like one."""

    def __init__(self, message: str, reason: str | None = None):
        super().__init__(message)
        self.reason = reason


class SecretsInAddressError(AddressError):
    """An address holds more than a place; the message does not repeat it."""


def normalise(address: str, schemes: Mapping[str, Scheme], example: str) -> str:
    """Return `address` in the form in which addresses are compared.

    Lower-case scheme and host, explicit port, no trailing slash: `http://Pi:8081/` ->
    `http://pi:8081`. An IP address has one spelling: `http://0x7f.1` -> `http://127.0.0.1:80`; an
    international name is in ASCII. This is the only grammar of addresses: whatever connects to
    one (Python, and the connector in Java) takes what this function returns. Raises AddressError
    unless it is `scheme://host[:port][/path]` with one of `schemes`, like `example`.
    """
    text = address.strip()
    if _SECRETS.match(text):
        raise SecretsInAddressError("an address must hold no user, password, query or fragment")
    parts = _ADDRESS.fullmatch(text)
    scheme = parts[1].lower() if parts else ""
    if parts is None or scheme not in schemes:
        raise _address_error(text, example)
    scheme = schemes[scheme].means or scheme
    digits = (parts[3] or "")[1:]
    port = int(digits[:9]) if digits else schemes[scheme].port
    if not 0 < port <= _HIGHEST_PORT:
        raise _address_error(text, example, f"a port is a number from 1 to {_HIGHEST_PORT}")
    path = (parts[4] or "").rstrip("/")
    if _PATH.sub("", path):
        raise _address_error(text, example, "its path holds characters that must be written as %XX")
    try:
        host = normalise_host(parts[2])
    except ValueError as error:
        raise _address_error(text, example, str(error)) from error
    return f"{scheme}://{host}:{port}{path}"


def _address_error(text: str, example: str, reason: str | None = None) -> AddressError:
    why = f": {reason}" if reason else ""
    return AddressError(f"{show(text)} is not an address like {example}{why}", reason)
