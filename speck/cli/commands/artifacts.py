"""`speck artifacts`"""

from __future__ import annotations

from pathlib import Path

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.options import client, connected, formatted, output


@click.group(cls=HelpfulGroup)
def artifacts() -> None:
    """List and send jars."""


@artifacts.command("list")
@connected
@formatted
def list_artifacts() -> None:
    """List artifacts."""
    from speck.cli.output import Grid, moment

    found = client().artifacts()
    rows = [(f"artifact:{one['sha256']}", one["bytes"], moment(one["at"])) for one in found]
    output().show(
        {"artifacts": found},
        Grid(("job_path", "bytes", "at"), rows, None, "no artifacts"),
    )


@artifacts.command()
@click.argument("file", type=click.Path(path_type=Path))
@connected
@formatted
def push(file: Path) -> None:
    """Send a jar and print the job_path that names it."""
    import hashlib

    from speck.cli.bars import bytes_bar
    from speck.cli.messages import say
    from speck.errors import NotFoundError

    try:
        with file.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            size = stream.seek(0, 2)
        with bytes_bar(f"sending {file.name}", size) as sent:
            new = client().push(sha256, file, sent)
    except OSError as error:
        raise NotFoundError(f"cannot read {file}: {error.strerror or error}") from error
    say(f"sent {size} bytes" if new else "it was there already")
    output().show({"sha256": sha256, "bytes": size, "new": new}, f"artifact:{sha256}")
