"""Follows a change to its end: a bar on a terminal, a line for each operation elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from speck.cli.messages import CommandFailed, clean, say, warn
from speck.client import Client, NoAnswerInTimeError, NoServerError
from speck.model.values import JsonObject

_LOOK_EVERY_S = 0.25
_AWAY_S = 60.0
"""How long a service that does not answer is asked again: it may be restarting."""

_OVER = ("done", "failed", "cancelled")
_TOLD = ("done", "failed", "blocked", "skipped", "cancelled")
_COLOURS = {"failed": "red", "blocked": "yellow"}


class _View(Protocol):
    def update(self, change: JsonObject) -> None:
        """Show where the change is now."""


def follow(client: Client, change_id: str) -> JsonObject:
    """The change once it is over, or as it is when the client's time limit ends.

    A blocked change is waited for: it goes on when its site answers again. Ctrl-C ends the
    watching alone. Raises NoServerError when the service stays away.
    """
    change: JsonObject | None = None
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
                if change["state"] in _OVER or client.is_late:
                    return change
                time.sleep(_LOOK_EVERY_S)
    except KeyboardInterrupt:
        say(f"\nchange {change_id} goes on; `speck cancel {change_id}` would end it early")
        raise


def _poll(client: Client, change_id: str) -> JsonObject:
    until = time.monotonic() + _AWAY_S
    while True:
        try:
            return client.change(change_id)
        except NoServerError:
            if time.monotonic() >= until or client.is_late:
                raise
            time.sleep(4 * _LOOK_EVERY_S)


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
    """One line on stderr for each outcome."""

    def __init__(self) -> None:
        self._told: dict[int, str] = {}

    def update(self, change: JsonObject) -> None:
        for operation in change["operations"]:
            state = operation["state"]
            if state in _TOLD and self._told.get(operation["id"]) != state:
                self._told[operation["id"]] = state
                say(f"{name_of(operation)}: {state}{_why_now(operation)}")


class _Bar:
    """A bar of the operations that are over, and what runs now; bad outcomes as lines above."""

    def __init__(self, progress: object):
        from rich.progress import Progress

        assert isinstance(progress, Progress)
        self._progress = progress
        self._task = progress.add_task("starting", total=None)
        self._told: set[tuple[int, str]] = set()

    def update(self, change: JsonObject) -> None:
        operations = change["operations"]
        for operation in operations:
            seen = (operation["id"], operation["state"])
            if operation["state"] in ("failed", "blocked") and seen not in self._told:
                self._told.add(seen)
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
    """`start A on edge-a`, as a plan says it."""
    about = f" {operation['job_name']}" if operation["job_name"] else ""
    return clean(f"{operation['kind']}{about} on {operation['site']}")


def _why(operation: JsonObject) -> str:
    return f": {operation['error']}" if operation["error"] else ""


def _why_now(operation: JsonObject) -> str:
    """Why it waits; why it failed is told once, at the end."""
    return "" if operation["state"] == "failed" else _why(operation)


def require_done(change: JsonObject, about: str) -> None:
    """Raises CommandFailed, after telling each operation that did not succeed.

    A change that is not over yet (--timeout) is a failure to have it done in time.
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
    raise CommandFailed(_verdict(change, about))


def _verdict(change: JsonObject, about: str) -> str:
    state, identity = change["state"], change["id"]
    if state == "running":
        over = sum(o["state"] in _TOLD and o["state"] != "blocked" for o in change["operations"])
        steps = f"{over} of {len(change['operations'])} steps are over"
        return (
            f"{about} is still being changed ({steps});"
            f" follow it: `speck events --change {identity} -f`"
        )
    if state == "blocked":
        return (
            f"cannot finish change {identity} of {about} yet: a site does not answer;"
            " it goes on when the site is back"
        )
    if state == "cancelled":
        by = f" by change {change['superseded_by']}" if change.get("superseded_by") else ""
        return f"cannot finish change {identity} of {about}: it was cancelled{by}"
    told = any(operation["state"] == "failed" for operation in change["operations"])
    why = f": {change['error']}" if change.get("error") and not told else ""
    return (
        f"cannot finish change {identity} of {about}{why}; mend the cause and apply again,"
        " which goes on from there"
    )


def note_warnings(answer: JsonObject) -> None:
    """Tell the warnings of an accepted composition."""
    for warning in answer.get("warnings", ()):
        warn(warning)
