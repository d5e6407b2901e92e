"""`speck serve`"""

from __future__ import annotations

import os

import click


@click.command()
@click.option("--host", help="Address to listen at (else SPECK_HOST, else 127.0.0.1).")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port to listen at (else SPECK_PORT, else 8080)."
)
@click.option(
    "--home",
    type=click.Path(file_okay=False),
    help="Folder of the store (else SPECK_HOME, .speck).",
)
@click.option(
    "--jars",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="Folder that a job_path may lie in; may be repeated (else SPECK_JARS).",
)
def serve(host: str | None, port: int | None, home: str | None, jars: tuple[str, ...]) -> None:
    """Run the service until SIGTERM or Ctrl-C."""
    from speck.api.server import serve as run
    from speck.config import Config
    from speck.errors import InvalidError

    given = {
        "SPECK_HOST": host,
        "SPECK_PORT": None if port is None else str(port),
        "SPECK_HOME": home,
        "SPECK_JARS": ":".join(jars) or None,
    }
    overrides = {name: value for name, value in given.items() if value is not None}
    try:
        config = Config.from_env({**os.environ, **overrides})
    except ValueError as error:
        raise InvalidError(str(error)) from error
    run(config)
