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

from speck.runner.files import open_folder, replace_file
from speck.runner.owners import readable_by

_BESIDE = ("ca", "cert", "key")
_BROKERS = ("--source-broker", "--sink-broker")

Broker = frozenset[tuple[str, str]]
"""Its hosts with their ports, which may be left out; of Kafka there may be several."""


def find_brokers(args: Sequence[str]) -> frozenset[Broker]:
    """The brokers of a job, as the contract's arguments name them."""
    return frozenset(_split(value) for flag, value in itertools.pairwise(args) if flag in _BROKERS)


def list_credentials(folder: Path, brokers: frozenset[Broker]) -> dict[str, Path]:
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


def copy_credentials(files: dict[str, Path], target: Path, owner: tuple[int, int]) -> None:
    """Make a folder hold copies of these files and nothing else. The program of that user and group
    reads them, and cannot write in the folder."""
    mode, readers = readable_by(owner)
    with open_folder(target) as folder:
        for name in set(os.listdir(folder)) - set(files):
            os.unlink(name, dir_fd=folder)
        for name, source in files.items():
            with suppress(OSError):  # renewed this very moment: the next look takes it
                content, copy = source.read_bytes(), target / name
                if not copy.is_file() or copy.read_bytes() != content:
                    replace_file(folder, name, content, mode=mode, owner=readers, durable=False)


def _read(file: Path) -> dict[str, str]:
    with suppress(OSError, UnicodeDecodeError):
        lines = file.read_text("utf-8-sig").splitlines() if file.is_file() else []
        pairs = (line.partition("=") for line in lines if "=" in line)
        return {key.strip(): value.strip() for key, _, value in pairs}
    return {}


def _split(address: str) -> Broker:
    ends = address.strip().lower().partition("://")[2].rstrip("/").split(",")
    return frozenset(_split_end(end.strip()) for end in ends)


def _split_end(end: str) -> tuple[str, str]:
    host, _, port = end.rpartition(":")
    return (host, port) if port.isdecimal() else (end, "")


def _is_same(one: Broker, other: Broker) -> bool:
    """Whether both may be one broker."""
    return len(one) == len(other) and all(
        any(_is_same_end(end, another) for another in other) for end in one
    )


def _is_same_end(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """A port that is left out is that of the scheme."""
    return one[0] == other[0] and (one[1] == other[1] or "" in (one[1], other[1]))
