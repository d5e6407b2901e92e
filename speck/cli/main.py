"""`speck`: the root of all commands, and the handling of their errors."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

import click

from speck.cli.lazy import LazyGroup
from speck.cli.messages import complain, complain_json, complain_unexpected
from speck.cli.options import add_service_options, output_form
from speck.errors import SpeckError

INTERRUPTED = 130
"""The exit status that shells expect of a program interrupted with Ctrl-C."""


class Root(LazyGroup):
    """Turns every error into a message on stderr and exit status 1.

    Wrong usage is 1 as well, not click's 2: 2 means "there are changes" (--detailed-exitcode).
    With `-o json` or `-o yaml` the error is one JSON object on one line.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):
            raise
        except (click.ClickException, SpeckError) as error:
            if output_form(ctx) == "table":
                raise
            _debug(error)
            complain_json(error)
            return 1

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        kwargs["standalone_mode"] = False
        _open_streams()
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # a terminal without UTF-8 shows ? for the arrow
                stream.reconfigure(errors="replace")
        try:
            status = super().main(*args, **kwargs)
        except click.ClickException as error:
            error.show()
            status = 1
        except click.Abort:
            status = INTERRUPTED
        except SpeckError as error:
            _debug(error)
            complain(error)
            status = 1
        except Exception as error:
            _debug(error)
            complain_unexpected(error)
            status = 1
        sys.exit(status if isinstance(status, int) else 0)


def _open_streams() -> None:
    """A shell that closed a stream (`>&-`) leaves none, and the next file would take its number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _debug(error: Exception) -> None:
    if os.environ.get("SPECK_DEBUG", "") not in ("", "0"):
        raise error


_COMMANDS = "speck.cli.commands"
_LAZY = {
    "serve": f"{_COMMANDS}.serve:serve",
    "fog": f"{_COMMANDS}.fog:fog",
    "site": f"{_COMMANDS}.site:site",
    "validate": f"{_COMMANDS}.validate:validate",
    "plan": f"{_COMMANDS}.plan:plan",
    "apply": f"{_COMMANDS}.apply:apply",
    "status": f"{_COMMANDS}.status:status",
    "jobs": f"{_COMMANDS}.jobs:jobs",
    "job": f"{_COMMANDS}.jobs:job",
    "metrics": f"{_COMMANDS}.metrics:metrics",
    "top": f"{_COMMANDS}.top:top",
    "events": f"{_COMMANDS}.events:events",
    "analyze": f"{_COMMANDS}.analyze:analyze",
    "history": f"{_COMMANDS}.history:history",
    "rollback": f"{_COMMANDS}.rollback:rollback",
    "cancel": f"{_COMMANDS}.cancel:cancel",
    "advise": f"{_COMMANDS}.advise:advise",
    "place": f"{_COMMANDS}.place:place",
    "scale": f"{_COMMANDS}.scale:scale",
    "offload": f"{_COMMANDS}.offload:offload",
    "autopilot": f"{_COMMANDS}.autopilot:autopilot",
    "destroy": f"{_COMMANDS}.destroy:destroy",
    "forget": f"{_COMMANDS}.forget:forget",
    "artifacts": f"{_COMMANDS}.artifacts:artifacts",
    "agent": f"{_COMMANDS}.agent:agent",
    "runner": f"{_COMMANDS}.runner:runner",
    "ca": f"{_COMMANDS}.ca:ca",
    "token": f"{_COMMANDS}.token:token",
    "pub": f"{_COMMANDS}.pub:pub",
    "sub": f"{_COMMANDS}.sub:sub",
    "replay": f"{_COMMANDS}.replay:replay",
    "batch": f"{_COMMANDS}.batch:batch",
    "audit": f"{_COMMANDS}.audit:audit",
    "backup": f"{_COMMANDS}.backup:backup",
    "restore": f"{_COMMANDS}.backup:restore",
    "adopt": f"{_COMMANDS}.adopt:adopt",
    "completion": f"{_COMMANDS}.completion:completion",
}


@click.group(cls=Root, lazy=_LAZY, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="speck", message="speck %(version)s")
@add_service_options
def root() -> None:
    """Deploy and adapt stream applications made of many jobs on many sites.

    Data goes to stdout, messages to stderr; the exit status is 0, or 1 on an error.
    """


def main() -> NoReturn:
    """The console script."""
    root.main(prog_name="speck")
