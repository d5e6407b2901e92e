"""User, password and certificates for a broker, out of the files of SPECK_CREDENTIALS_DIR.

They are read for each connection, so that they may be renewed.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Credentials:
    """The fields of one file, and the folder in which its certificates lie."""

    folder: Path
    fields: Mapping[str, str]

    @property
    def user(self) -> str | None:
        return self.fields.get("user")

    @property
    def password(self) -> str | None:
        return self.fields.get("password")

    @property
    def has_ca(self) -> bool:
        """Whether connections are encrypted, whatever the address says."""
        return "ca" in self.fields

    def make_context(self) -> ssl.SSLContext:
        """Trusts the CA of the file, or without one what the system trusts, and presents the
        certificate of the file. Raises OSError if a file is missing or damaged."""
        ca = str(self.folder / self.fields["ca"]) if self.has_ca else None
        context = ssl.create_default_context(cafile=ca)
        if "cert" in self.fields:
            key = self.folder / self.fields["key"] if "key" in self.fields else None
            context.load_cert_chain(self.folder / self.fields["cert"], key)
        return context


def find_credentials(is_it: Callable[[str], bool]) -> Credentials:
    """Those of the first file of which `is_it` says that one of its addresses is the broker's; none
    if there is no such file."""
    folder = Path(os.environ.get("SPECK_CREDENTIALS_DIR", "/nowhere"))
    with suppress(OSError):
        for file in sorted(folder.iterdir()):
            with suppress(OSError, UnicodeDecodeError):
                fields = _parse(file.read_text("utf-8-sig"))
                if any(is_it(address) for address in fields.get("address", "").split()):
                    return Credentials(folder, fields)
    return Credentials(folder, {})


def _parse(lines: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in lines.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}
