"""Gives a program the credentials of its own two brokers, and no others.

The site's folder holds files of `key=value` lines (docs/binders.md, "Credentials"); one belongs to
the brokers that its line `address` names, or, without such a line, to none. The program gets copies
of its own, with the certificates that they name.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_BESIDE = ("ca", "cert", "key")
_BROKERS = ("--source-broker", "--sink-broker")


def find_brokers(args: Sequence[str]) -> frozenset[tuple[str, str]]:
    """The brokers of a job, as the contract's arguments name them: host and port."""
    return frozenset(_split(value) for flag, value in itertools.pairwise(args) if flag in _BROKERS)


def list_credentials(folder: Path, brokers: frozenset[tuple[str, str]]) -> dict[str, Path]:
    """The files, by name, that these brokers' logins consist of."""
    wanted = {}
    with suppress(OSError):
        for file in sorted(folder.iterdir()):
            fields = _read(file)
            named = [_split(address) for address in fields.get("address", "").split()]
            if any(_is_same(one, other) for one in named for other in brokers):
                wanted[file.name] = file
                names = (fields[key] for key in _BESIDE if fields.get(key))
                wanted |= {Path(name).name: folder / name for name in names}
    return wanted


def copy_credentials(files: dict[str, Path], target: Path, uid: int, gid: int) -> None:
    """Make a folder hold copies of these files, readable by one user alone, and nothing else."""
    for file in target.iterdir():
        if file.name not in files:
            file.unlink()
    for name, source in files.items():
        with suppress(OSError):  # renewed this very moment: the next look takes it
            content = source.read_bytes()
            copy = target / name
            if copy.exists() and copy.read_bytes() == content:
                continue
            fresh = target / f"{name}.new"
            fresh.unlink(missing_ok=True)
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
            with os.fdopen(descriptor, "wb") as out:
                out.write(content)
            os.chown(fresh, uid, gid)
            fresh.rename(copy)


def _read(file: Path) -> dict[str, str]:
    with suppress(OSError, UnicodeDecodeError):
        lines = file.read_text("utf-8-sig").splitlines() if file.is_file() else []
        pairs = (line.partition("=") for line in lines if "=" in line)
        return {key.strip(): value.strip() for key, _, value in pairs}
    return {}


def _split(address: str) -> tuple[str, str]:
    """Host and port, which may be left out."""
    host, _, port = address.strip().lower().partition("://")[2].rstrip("/").rpartition(":")
    return (host, port) if port.isdecimal() else (f"{host}:{port}".lstrip(":"), "")


def _is_same(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether both may be one broker: a port that is left out is that of its scheme."""
    return one[0] == other[0] and (one[1] == other[1] or "" in (one[1], other[1]))
