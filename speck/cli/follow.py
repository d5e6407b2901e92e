"""Follows a change to its end, with a bar on a terminal and a line for each operation elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from speck.cli.messages import CommandFailed, clean, say, warn
from speck.cli.pauses import growing
from speck.client import Client, NoAnswerInTimeError, NoServerError
from speck.model.values import JsonObject

_RECONNECT_S = 1.0
_MAX_OUTAGE_S = 60.0
"""How long to poll a service that does not answer, since it may be restarting."""

RESULT = ("state", "operations", "dropped")
"""What a command returns of a change that it has followed."""

_FINAL = ("done", "failed", "cancelled")
_REPORTED = ("done", "failed", "blocked", "skipped", "cancelled")
_COLOURS = {"failed": "red", "blocked": "yellow"}


class _View(Protocol):
    def update(self, change: JsonObject) -> None:
        """Show the change's current state."""


def follow(client: Client, change_id: str) -> JsonObject:
    """Wait until the change has ended, or the client's time limit is over, and return it.

    A blocked change is waited for: it continues when its site answers again. Ctrl-C stops only the
    waiting. Raises NoServerError when the service does not come back.
    """
    change: JsonObject | None = None
    pauses = growing()
    try:
        with _view() as view:
            while True:
                try:
                    change = _poll(client, change_id)
                except NoAnswerInTimeError:
                    if change is None:
                        raise
                    return change
                view.update(change)
                if change["state"] in _FINAL or client.is_late:
                    return change
                time.sleep(next(pauses))
    except KeyboardInterrupt:
        say(f"\nchange {change_id} continues; cancel it with `speck cancel {change_id}`")
        raise


def _poll(client: Client, change_id: str) -> JsonObject:
    until = time.monotonic() + _MAX_OUTAGE_S
    while True:
        try:
            return client.change(change_id)
        except NoServerError:
            if time.monotonic() >= until or client.is_late:
                raise
            time.sleep(_RECONNECT_S)


@contextmanager
def _view() -> Iterator[_View]:
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        yield _Bar(progress)


class _Lines:
    """Prints one line on stderr for each outcome."""

    def __init__(self) -> None:
        self._reported: dict[int, str] = {}

    def update(self, change: JsonObject) -> None:
        for operation in change["operations"]:
            state = operation["state"]
            if state in _REPORTED and self._reported.get(operation["id"]) != state:
                self._reported[operation["id"]] = state
                say(f"{name_of(operation)}: {state}{_why_now(operation)}")


class _Bar:
    """A bar of completed operations with those that run now; failures are printed above it."""

    def __init__(self, progress: object):
        from rich.progress import Progress

        assert isinstance(progress, Progress)
        self._progress = progress
        self._task = progress.add_task("starting", total=None)
        self._reported: set[tuple[int, str]] = set()

    def update(self, change: JsonObject) -> None:
        operations = change["operations"]
        for operation in operations:
            seen = (operation["id"], operation["state"])
            if operation["state"] in ("failed", "blocked") and seen not in self._reported:
                self._reported.add(seen)
                self._progress.console.print(
                    f"{name_of(operation)}: {operation['state']}{clean(_why_now(operation))}",
                    markup=False,
                    highlight=False,
                )
        now = [name_of(o) for o in operations if o["state"] in ("running", "blocked")]
        more = f" and {len(now) - 2} more" if len(now) > 2 else ""
        over = sum(o["state"] in ("done", "failed", "skipped", "cancelled") for o in operations)
        self._progress.update(
            self._task,
            description=", ".join(now[:2]) + more or change["state"],
            completed=over,
            total=len(operations),
        )


def name_of(operation: JsonObject) -> str:
    """`start A on edge-a`, as in a plan."""
    job = f" {operation['job_name']}" if operation["job_name"] else ""
    return clean(f"{operation['kind']}{job} on {operation['site']}")


def _why(operation: JsonObject) -> str:
    return f": {operation['error']}" if operation["error"] else ""


def _why_now(operation: JsonObject) -> str:
    """Why the operation waits; `require_done` reports failures at the end."""
    return "" if operation["state"] == "failed" else _why(operation)


def require_done(change: JsonObject, subject: str) -> None:
    """Raises CommandFailed unless the change is done, after printing each operation that did not
    succeed.

    A change that still runs after --timeout counts as a failure, too.
    """
    if change["state"] == "done":
        return
    operations = change["operations"]
    for operation in operations:
        if operation["state"] in ("failed", "blocked"):
            state = operation["state"]
            say(f"  {name_of(operation)}{_why(operation)}", f"  {state}", _COLOURS[state])
    for operation in operations:
        if operation["state"] in ("skipped", "cancelled"):
            say(f"  {operation['state']}  {name_of(operation)}")
    raise CommandFailed(_verdict(change, subject))


def _verdict(change: JsonObject, subject: str) -> str:
    state, identity = change["state"], change["id"]
    if state == "running":
        over = sum(
            o["state"] in _REPORTED and o["state"] != "blocked" for o in change["operations"]
        )
        steps = f"{over} of {len(change['operations'])} operations have ended"
        return (
            f"{subject} is still being changed ({steps});"
            f" follow it with `speck events --change {identity} -f`"
        )
    if state == "blocked":
        return (
            f"cannot finish change {identity} of {subject} yet: a site does not answer;"
            " it continues when the site answers again (`speck forget` gives up what is there)"
        )
    if state == "cancelled":
        by = f" by change {change['superseded_by']}" if change.get("superseded_by") else ""
        return f"cannot finish change {identity} of {subject}: it was cancelled{by}"
    failure_reported = any(operation["state"] == "failed" for operation in change["operations"])
    why = f": {change['error']}" if change.get("error") and not failure_reported else ""
    return (
        f"cannot finish change {identity} of {subject}{why}; fix the cause and apply again,"
        " which continues from there"
    )


def show_warnings(answer: JsonObject) -> None:
    """Print the warnings about an accepted composition."""
    for warning in answer.get("warnings", ()):
        warn(warning)
