"""`speck artifacts`"""

from __future__ import annotations

from pathlib import Path

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.options import add_connection_options, add_output_option, client, output


@click.group(cls=HelpfulGroup)
def artifacts() -> None:
    """List and send jars."""


@artifacts.command("list")
@add_connection_options
@add_output_option
def list_artifacts() -> None:
    """List artifacts."""
    from speck.cli.output import Grid, moment

    records = client().artifacts()
    rows = [(f"artifact:{one['sha256']}", one["bytes"], moment(one["at"])) for one in records]
    output().show(
        {"artifacts": records},
        Grid(("job_path", "bytes", "at"), rows, None, "no artifacts"),
    )


@artifacts.command()
@click.argument("file", type=click.Path(path_type=Path))
@add_connection_options
@add_output_option
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
        with bytes_bar(f"sending {file.name}", size) as advance:
            created = client().push(sha256, file, advance)
    except OSError as error:
        raise NotFoundError(f"cannot read {file}: {error.strerror or error}") from error
    say(f"sent {size} bytes" if created else "the service has it already")
    output().show({"sha256": sha256, "bytes": size, "new": created}, f"artifact:{sha256}")
