"""Output on stderr: errors, notes and questions, in colour on a terminal unless NO_COLOR is set."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from speck.errors import PermanentError, Problem

_ODD = (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError)
"""What an answer raises that lacks a field, or has another type or depth than a service's."""


class CommandFailed(PermanentError):
    """A command completed its work and reports a failure (exit status 1)."""


def clean(text: object) -> str:
    """`text` without control characters: output of jobs and sites must not control the terminal."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in str(text)
    )


def to_json(data: object, indent: int | None = None) -> str:
    """`data` as JSON in which what could control the terminal is an escape: the same data."""
    import json

    text = json.dumps(data, indent=indent, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def style(text: str, **how: Any) -> str:
    """`text` in colour, unless NO_COLOR is set; `click.echo` drops it without a terminal."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **how)


def say(text: str, mark: str = "", colour: str | None = None) -> None:
    """Print a note to the user after a coloured `mark`."""
    click.echo((style(mark, fg=colour) if mark else "") + clean(text), err=True)


def warn(text: str) -> None:
    """Print a warning to the user."""
    click.echo(f"{style('warning:', fg='yellow')} {clean(text)}", err=True)


def complain(error: Exception) -> None:
    """Print an error with all its problems: where and why."""
    text, problems = _describe(error)
    click.echo(f"{style('error:', fg='red')} {clean(text)}", err=True)
    for problem in problems:
        if str(problem) not in text or len(problems) > 1:
            click.echo(f"  {clean(problem)}", err=True)


def complain_json(error: Exception) -> None:
    """Print an error as JSON: `{"error": text, "problems": [{path, message, line?}]}`."""
    text, problems = _describe(error)
    entries = [
        {"path": p.path, "message": p.message, **({"line": p.line} if p.line else {})}
        for p in problems
    ]
    click.echo(to_json({"error": text, "problems": entries}), err=True)


def _describe(error: Exception) -> tuple[str, Sequence[Problem]]:
    """The text and problems of an error, with query parameters renamed to options."""
    if isinstance(error, click.ClickException):
        return error.format_message(), ()
    problems: Sequence[Problem] = getattr(error, "problems", ())
    if not problems or not all(p.path.startswith("?") for p in problems):
        return str(error), problems
    options = [replace(p, path=f"--{p.path[1:].replace('_', '-')}") for p in problems]
    return "; ".join(f"{p.path} {p.message}" for p in options), ()


def complain_unexpected(error: Exception) -> None:
    """Print an unexpected error without its traceback."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    doing = "continue"
    if isinstance(error, OSError) and error.strerror:
        what = error.strerror
    elif isinstance(error, UnicodeEncodeError):  # of an argument of the command line
        doing, what = f"use {error.object!r}", "it is no text in this terminal's encoding"
    elif isinstance(error, _ODD) and "speck.client" in sys.modules:
        doing = "use what the service answered; is it a speck of this version"
    complain(PermanentError(f"cannot {doing}: {what} (SPECK_DEBUG=1 shows where)"))


def interactive() -> bool:
    """Whether the user can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def ask(question: str, yes: bool) -> None:
    """Return when the user agrees (or gave --yes); otherwise end the command with status 1."""
    if yes:
        return
    if not interactive():
        raise PermanentError("cannot ask for confirmation: stdin is not a terminal; give --yes")
    if not click.confirm(question, err=True):
        say("nothing was changed")
        click.get_current_context().exit(1)
