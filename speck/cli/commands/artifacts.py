"""`speck artifacts`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.messages import say, warn
from speck.cli.options import (
    add_service_options,
    client,
    names_of,
    output,
)

if TYPE_CHECKING:
    from speck.model.values import JsonObject


@click.group(cls=HelpfulGroup)
def artifacts() -> None:
    """List, send and delete programs of jobs: jars, archives, Python."""


@artifacts.command("list")
@add_service_options
def list_artifacts() -> None:
    """List artifacts."""
    from speck.cli.output import Grid, moment

    records = client().artifacts()
    rows = [
        (
            f"artifact:{one['sha256']}",
            one["bytes"],
            moment(one["at"]),
            one["by"] or "-",
            ", ".join(dict.fromkeys(map(_describe_use, one["uses"]))) or "-",
        )
        for one in records
    ]
    output().show(
        {"artifacts": records},
        Grid(("job_path", "bytes", "at", "by", "used by"), rows, None, "no artifacts"),
    )


def _describe_use(use: JsonObject) -> str:
    if use["composition"] is None:
        return str(use["job_name"])
    return f"{use['composition']}/{use['revision'] or use['job_name']}"


@artifacts.command()
@click.argument("file", type=click.Path(path_type=Path))
@add_service_options
def push(file: Path) -> None:
    """Send an artifact and print the job_path that names it."""
    import hashlib

    from speck.cli.bars import bytes_bar
    from speck.cli.messages import say
    from speck.errors import InvalidError, NotFoundError

    if file.exists() and not file.is_file() and not file.is_dir():
        raise InvalidError(f"cannot send {file}: it is no file, but a device or a pipe")
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


@artifacts.command("remove")
@click.argument("sha256", nargs=-1, required=True, shell_complete=names_of("artifacts"))
@add_service_options
def remove_artifacts(sha256: tuple[str, ...]) -> None:
    """Delete artifacts that nothing uses.

    SHA256 may also be written as `artifact:<sha256>`, as `speck artifacts list` shows it. Without
    the role admin, only those that this token has sent.
    """
    names = [name.removeprefix("artifact:") for name in sha256]
    for name in names:
        client().delete_artifact(name)
    output().show({"deleted": names}, "\n".join(f"artifact:{name}" for name in names))


@artifacts.command()
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@add_service_options
def gc(dry_run: bool) -> None:
    """Delete all artifacts that no revision and no job names, also at the engines.

    Those that were sent less than a day ago (SPECK_ARTIFACT_GRACE_S) are kept: an apply may be
    about to use them. The service does the same every hour.
    """
    from speck.cli.output import Grid, moment

    answer = client().collect_artifacts(dry_run=dry_run)
    rows = [
        ("service", f"artifact:{one['sha256']}", one["bytes"], moment(one["at"]))
        for one in answer["artifacts"]
    ]
    for site in answer["uploads"]:
        rows += [(site["site"], f"artifact:{sha256}", "", "") for sha256 in site["sha256s"]]
        if site["error"]:
            warn(f"{site['site']}: {site['error']}")
    if kept := answer["kept"]:
        size = sum(one["bytes"] for one in kept)
        say(
            f"kept: {len(kept)} artifacts with {size} bytes that nothing uses, but that are within"
            " the grace period (SPECK_ARTIFACT_GRACE_S); delete them with `speck artifacts remove`"
        )
    output().show(
        {**answer, "dry_run": dry_run},
        Grid(("where", "job_path", "bytes", "at"), rows, None, "nothing to delete"),
    )
