"""What goes to stderr: errors, notes, questions. Colours on a terminal only, never by NO_COLOR."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from speck.errors import PermanentError, Problem


class CommandFailed(PermanentError):
    """A command that did its work and has to report a failure (exit status 1)."""


def clean(text: object) -> str:
    """`text` without control characters: what a job or site says must not steer the terminal."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in str(text)
    )


def style(text: str, **how: Any) -> str:
    """`text` in colour, unless NO_COLOR is set; `click.echo` drops it where no terminal is."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **how)


def say(text: str, mark: str = "", colour: str | None = None) -> None:
    """A note to the user, behind a coloured `mark`."""
    click.echo((style(mark, fg=colour) if mark else "") + clean(text), err=True)


def warn(text: str) -> None:
    """A warning to the user."""
    click.echo(f"{style('warning:', fg='yellow')} {clean(text)}", err=True)


def complain(error: Exception) -> None:
    """An error, with every problem that it knows: where and why."""
    told, problems = _as_told(error)
    click.echo(f"{style('error:', fg='red')} {clean(told)}", err=True)
    for problem in problems:
        if str(problem) not in told or len(problems) > 1:
            click.echo(f"  {clean(problem)}", err=True)


def complain_json(error: Exception) -> None:
    """The same for a program: `{"error": text, "problems": [{path, message, line?}]}`."""
    import json

    told, problems = _as_told(error)
    listed = [
        {"path": p.path, "message": p.message, **({"line": p.line} if p.line else {})}
        for p in problems
    ]
    click.echo(json.dumps({"error": told, "problems": listed}, ensure_ascii=False), err=True)


def _as_told(error: Exception) -> tuple[str, Sequence[Problem]]:
    """The error's text and problems, in which the service's query parameters are options."""
    if isinstance(error, click.ClickException):
        return error.format_message(), ()
    problems: Sequence[Problem] = getattr(error, "problems", ())
    if not problems or not all(p.path.startswith("?") for p in problems):
        return str(error), problems
    options = [replace(p, path=f"--{p.path[1:].replace('_', '-')}") for p in problems]
    return "; ".join(f"{p.path} {p.message}" for p in options), ()


def confess(error: Exception) -> None:
    """An error that nobody foresaw, without its traceback."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    complain(PermanentError(f"cannot carry on: {what} (SPECK_DEBUG=1 shows where)"))


def interactive() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def ask(question: str, yes: bool) -> None:
    """Return when the user agrees (or has by --yes); end the command with 1 otherwise."""
    if yes:
        return
    if not interactive():
        raise PermanentError("cannot ask whether to go on: stdin is no terminal; give --yes")
    if not click.confirm(question, err=True):
        say("nothing was changed")
        click.get_current_context().exit(1)
