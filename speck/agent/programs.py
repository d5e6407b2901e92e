"""What runs beside the agent: an engine that has no address of its own.

Its runner and the agent share the folder `engine` in the site's state folder. The runner writes
what it knows to `status.json` and takes orders from `orders/`, each of which it answers under its
name in `answers/`; artifacts lie in `artifacts/` under their SHA-256. All files are renamed into
place. The agent understands none of them: it carries words between the runner and the service.

An order is a file `{"until": Unix seconds, "order": ...}`. The runner takes them in the order of
`until`, none after it, and none that has an answer: whoever has given an order may have died since,
and what waits for a runner that comes back tomorrow is not wanted any more.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from speck.agent.web import Json
from speck.errors import PermanentError, TransientError

FOLDER = "engine"
_LARGEST = 1 << 20
"""Of a status or an answer, in bytes."""
_LOOK_S = 0.1
_ORDER_S = 30.0
"""An order that has not been taken by then is void."""
_KEPT_S = 3600.0
"""An answer is kept for so long: the same order may come again, since its answer got lost."""
_PASSING = ("answers/*", "orders/*", "artifacts/*.part")
_TELL_S = 5.0
"""A status that has not changed is reported again after so long."""
_NAME = re.compile(r"[0-9a-z][0-9a-z-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")

Report = Callable[[Json], None]


class Programs:
    """The commands `watch`, `order` and `store` on the folder of an engine."""

    def __init__(self, state_folder: Path):
        self._folder = state_folder / FOLDER
        self._storing = threading.Lock()
        self._seen = (0.0, 0.0, 0.0)

    def watch(
        self, command: Mapping[str, Any], report: Report, cancellation: threading.Event
    ) -> Json:
        """Report the status whenever it has changed, until the command is withdrawn. A status that
        the runner has not renewed is reported with its age: the runner may be gone."""
        before, reported_at = None, float("-inf")
        while not cancellation.is_set():
            try:
                status, at_s = self._read_status()
            except PermanentError as error:  # it may be smaller later
                report({"state": "working", "status": None, "age_s": 0, "problem": str(error)})
                cancellation.wait(_TELL_S)
                continue
            now = time.monotonic()
            if at_s is not None and (at_s != before or now - reported_at >= _TELL_S):
                before, reported_at = at_s, now
                age_s = self._find_age_s(at_s)
                report({"state": "working", "status": status, "age_s": age_s})
            cancellation.wait(_LOOK_S)
        return {}

    def _find_age_s(self, at_s: float) -> float:
        """How old a status is that was written at `at_s`: from the moment it is first seen by a
        clock that nobody sets."""
        now = time.monotonic()
        if at_s != self._seen[0]:
            self._seen = at_s, now, max(0.0, time.time() - at_s)
        _, seen_at, age_s = self._seen
        return age_s + now - seen_at

    def order(self, command: Mapping[str, Any], _: Report, cancellation: threading.Event) -> Json:
        """Hand an order to the runner and wait for its answer. The same order again gets the same
        answer, without being carried out twice."""
        name = str(command["id"])
        if not _NAME.fullmatch(name):
            raise PermanentError(f"cannot give the order {name!r}: invalid name")
        order, answer = self._folder / "orders" / name, self._folder / "answers" / name
        self._sweep()
        deadline = time.monotonic() + _ORDER_S
        if not (order.exists() or answer.exists()):
            until = time.time() + _ORDER_S
            _write(order, json.dumps({"until": until, "order": command["order"]}).encode())
        while (content := _read(answer)) is None:
            if cancellation.is_set() or time.monotonic() > deadline:
                order.unlink(missing_ok=True)
                why = "it was withdrawn" if cancellation.is_set() else "nobody takes the order"
                raise TransientError(f"cannot wait for the engine's answer: {why}")
            cancellation.wait(_LOOK_S)
        order.unlink(missing_ok=True)
        return {"answer": json.loads(content)}

    def _sweep(self) -> None:
        """Delete old answers, the orders of an earlier life of the agent, and pieces of artifacts
        that nobody goes on with."""
        old = time.time() - _KEPT_S
        for file in itertools.chain.from_iterable(map(self._folder.glob, _PASSING)):
            with suppress(OSError):
                if file.stat().st_mtime < old:
                    file.unlink()

    def store(self, command: Mapping[str, Any], _: Report, __: threading.Event) -> Json:
        """Append a piece of an artifact; once it is whole, its hash is verified. Returns how many
        bytes are there: the next piece begins behind them."""
        sha256, total = str(command["sha256"]), int(command["total"])
        if not _SHA256.fullmatch(sha256):
            raise PermanentError(f"cannot store the artifact {sha256!r}: it is no SHA-256")
        final = self._folder / "artifacts" / sha256
        with self._storing:  # the same piece may arrive twice at a time
            return self._append(command, total, final)

    def _append(self, command: Mapping[str, Any], total: int, final: Path) -> Json:
        if final.exists():
            return {"bytes": total}
        part = final.with_suffix(".part")
        part.parent.mkdir(parents=True, exist_ok=True)
        present = part.stat().st_size if part.exists() else 0
        if int(command["offset"]) != present:
            return {"bytes": present}
        with part.open("ab") as out:
            out.write(b64decode(command["piece"]))
            out.flush()
            os.fsync(out.fileno())
            size = out.tell()
        if size < total:
            return {"bytes": size}
        with part.open("rb") as stream:  # not all at once: an agent has little memory
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != final.name:
            part.unlink()
            raise TransientError(f"cannot store the artifact {final.name}: it arrived damaged")
        part.rename(final)
        return {"bytes": total}

    def _read_status(self) -> tuple[Any, float | None]:
        """The status, and when it was written (Unix s); None: there is none."""
        file = self._folder / "status.json"
        content = _read(file)
        if content is None:
            return None, None
        try:
            return json.loads(content), file.stat().st_mtime
        except (OSError, ValueError):  # replaced meanwhile
            return None, None


def _read(file: Path) -> bytes | None:
    try:
        with file.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        return None
    if len(content) > _LARGEST:
        raise PermanentError(f"cannot read {file}: it has more than {_LARGEST} bytes")
    return content


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    with fresh.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    fresh.rename(file)
