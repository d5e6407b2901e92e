"""How an engine lays out its states below a site's state folder: plain data of the engine's binder,
which the service sends with each command. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speck.errors import PermanentError

JOB = "{job}"
_DEEP = 4
"""How many levels `**` stands for, at most."""
_NUMBER_BYTES = 8


@dataclass(frozen=True, slots=True)
class StatePlace:
    """Folders that hold one state each, by a pattern relative to the state folder.

    Its parts between slashes: `{job}` is the id of the incarnation, `#` a number, `*` any name, and
    `**` up to four folders that are no states. `on_request`: states there were asked for.
    """

    pattern: str
    on_request: bool = False


@dataclass(frozen=True, slots=True)
class StateLayout:
    """Where states lie, and when one is complete.

    A state is complete once one of the files `proofs` (patterns relative to the state) is there and
    begins with `magic` (hex), and a file of each of the patterns `needed`. Its number is the 8
    bytes at `number_at` of that file or, without that, the highest `#` among them: so a state may
    be a folder that goes on in place, with a file for each step; one that begins as a copy needs a
    file that is written when all is copied. `requested` is the folder for states that are asked
    for, with the job's `{name}` and `{job}` in it; None: the engine chooses. `own` are the names of
    states in a folder that a job has chosen for itself. What matches `foreign` in a proof is a file
    outside the state, which cannot be sent without it; `hint` says what to do then.
    """

    places: tuple[StatePlace, ...]
    proofs: tuple[str, ...]
    needed: tuple[str, ...] = ()
    requested: str | None = None
    magic: str = ""
    number_at: int | None = None
    own: str | None = None
    foreign: str | None = None
    hint: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> StateLayout:
        """Raises PermanentError unless it describes folders below the state folder."""
        try:
            layout = cls(
                **{
                    **(data or {}),
                    "places": tuple(StatePlace(**place) for place in (data or {})["places"]),
                    "proofs": tuple((data or {})["proofs"]),
                    "needed": tuple((data or {}).get("needed", ())),
                }
            )
            files = [*layout.proofs, *layout.needed]
            patterns = [*(place.pattern for place in layout.places), *files]
            if not layout.places or not layout.proofs or not all(map(_is_relative, patterns)):
                raise ValueError(f"places {patterns}")
            bytes.fromhex(layout.magic)
            re.compile(layout.foreign or "")
        except (LookupError, TypeError, ValueError, AttributeError, re.error) as error:
            raise PermanentError(
                f"cannot use this description of an engine's states: {error!r:.200}; update the"
                " agent"
            ) from error
        return layout

    @property
    def roots(self) -> frozenset[str]:
        """The folders directly below the state folder in which states lie."""
        return frozenset(place.pattern.partition("/")[0] for place in self.places)

    @property
    def automatic_root(self) -> str:
        """That of the states which the engine takes by itself."""
        automatic = [place for place in self.places if not place.on_request]
        return (automatic or self.places)[0].pattern.partition("/")[0]

    def find(self, root: Path, job: str) -> Iterator[tuple[Path, bool]]:
        """The folders that may hold a state of an incarnation, with whether it was asked for."""
        for place in self.places:
            for folder in self._expand(root, place.pattern.split("/"), job):
                yield folder, place.on_request

    def is_on_request(self, relative: str) -> bool:
        """Whether the state at a path relative to the state folder was asked for; also one that was
        carried there."""
        for place in self.places:
            if re.fullmatch(_to_regex(place.pattern), relative):
                return place.on_request
        return True

    def find_requested(self, name: str, job: str) -> str | None:
        """The folder, relative to the state folder, for a state of a job that is asked for."""
        if self.requested is None:
            return None
        return self.requested.replace("{name}", name).replace(JOB, job)

    def is_own(self, name: str) -> bool:
        """Whether a folder of this name in a job's own folder is a state of it."""
        return self.own is not None and re.fullmatch(_to_regex(self.own), name) is not None

    def find_proofs(self, state: Path) -> list[tuple[int, Path]]:
        """The files that make a state complete, with their numbers, in rising order; none if it is
        not."""
        if not all(_glob(state, pattern) for pattern in self.needed):
            return []
        numbered = []
        for pattern in self.proofs:
            for file in _glob(state, pattern):
                number = self._number_of(file, pattern, file.relative_to(state).as_posix())
                if number is not None:
                    numbered.append((number, file))
        return sorted(numbered)

    def _number_of(self, file: Path, pattern: str, relative: str) -> int | None:
        magic = bytes.fromhex(self.magic)
        try:
            with file.open("rb") as stream:
                head = stream.read(max(len(magic), (self.number_at or 0) + _NUMBER_BYTES))
        except OSError:  # deleted meanwhile
            return None
        if not head.startswith(magic):
            return None
        if self.number_at is None:
            match = re.fullmatch(_to_regex(pattern, r"(\d+)"), relative)
            return int(match[1]) if match and match.groups() else 0
        number = head[self.number_at : self.number_at + _NUMBER_BYTES]
        return int.from_bytes(number, "big") if len(number) == _NUMBER_BYTES else None

    def _expand(self, folder: Path, parts: list[str], job: str) -> Iterator[Path]:
        if not parts:
            yield folder
            return
        first, rest = parts[0], parts[1:]
        if first == "**":
            yield from self._descend(folder, rest, job, _DEEP)
        elif first == JOB or not re.search(r"[*#]", first):
            inner = folder / first.replace(JOB, job)
            if inner.is_dir():
                yield from self._expand(inner, rest, job)
        else:
            for inner in list_folders(folder):
                if re.fullmatch(_to_regex(first), inner.name):
                    yield from self._expand(inner, rest, job)

    def _descend(self, folder: Path, parts: list[str], job: str, deep: int) -> Iterator[Path]:
        """Complete states are not searched: the ways to a job's folder lead around them."""
        yield from self._expand(folder, parts, job)
        for inner in list_folders(folder) if deep else ():
            if inner.name != job and not self.find_proofs(inner):
                yield from self._descend(inner, parts, job, deep - 1)


def list_folders(folder: Path) -> list[Path]:
    """The folders in a folder, without links to some; none if it cannot be read."""
    try:
        return sorted(f for f in folder.iterdir() if f.is_dir() and not f.is_symlink())
    except OSError:
        return []


def _glob(state: Path, pattern: str) -> list[Path]:
    files: list[Path] = []
    with suppress(OSError):
        files = [f for f in state.glob(pattern.replace("#", "*")) if f.is_file()]
    return [f for f in files if re.fullmatch(_to_regex(pattern), f.relative_to(state).as_posix())]


def _to_regex(pattern: str, number: str = r"\d+") -> str:
    parts = []
    for part in pattern.split("/"):
        text = re.escape(part.replace(JOB, "\0"))
        parts.append(text.replace(r"\*\*", ".+").replace(r"\*", "[^/]+").replace(r"\#", number))
    return "/".join(parts).replace("\0", "[^/]+")


def _is_relative(pattern: object) -> bool:
    if not isinstance(pattern, str) or not pattern:
        return False
    return not any(part in ("", ".", "..") or "\0" in part for part in pattern.split("/"))
