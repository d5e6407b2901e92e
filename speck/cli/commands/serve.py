"""`speck serve`"""

from __future__ import annotations

import os

import click


@click.command()
@click.option("--host", help="Address to listen on (default: SPECK_HOST or 127.0.0.1).")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on (default: SPECK_PORT or 8080).",
)
@click.option(
    "--home",
    type=click.Path(file_okay=False),
    help="The service's folder (default: SPECK_HOME or .speck).",
)
@click.option(
    "--jars",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="Folder in which a job_path may lie; may be repeated (default: SPECK_JARS).",
)
@click.option(
    "--tls-cert",
    type=click.Path(dir_okay=False),
    help="Serve HTTPS with this certificate chain, a PEM file (default: SPECK_TLS_CERT). It is"
    " loaded again when it changes.",
)
@click.option(
    "--tls-key",
    type=click.Path(dir_okay=False),
    help="The certificate's private key, a PEM file (default: SPECK_TLS_KEY).",
)
@click.option(
    "--client-ca",
    type=click.Path(dir_okay=False),
    help="Serve only clients with a certificate of these authorities, a PEM file; they need a"
    " token as well (default: SPECK_CLIENT_CA).",
)
def serve(
    host: str | None,
    port: int | None,
    home: str | None,
    jars: tuple[str, ...],
    **files: str | None,
) -> None:
    """Run the service until SIGTERM or Ctrl-C."""
    from speck.api.server import serve as run
    from speck.config import Config
    from speck.errors import InvalidError

    options = {
        "SPECK_HOST": host,
        "SPECK_PORT": None if port is None else str(port),
        "SPECK_HOME": home,
        "SPECK_JARS": ":".join(jars) or None,
        **{f"SPECK_{name.upper()}": path for name, path in files.items()},
    }
    overrides = {name: value for name, value in options.items() if value is not None}
    try:
        config = Config.from_env({**os.environ, **overrides})
    except ValueError as error:
        raise InvalidError(str(error)) from error
    run(config)
