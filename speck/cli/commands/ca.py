"""`speck ca`: certificates for small fogs. It needs no service."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.options import add_output_option, output
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from speck.tls.authority import Issued

_folder = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the authority (default: ca in SPECK_HOME).",
)


@click.group(cls=HelpfulGroup)
def ca() -> None:
    """Issue and list certificates.

    Keep its folder on one machine, and copy to the others only ca.crt and their own NAME.crt and
    NAME.key.
    """


@ca.command()
@click.option("--name", default="speck", show_default=True, help="Name of the authority.")
@click.option("--force", is_flag=True, help="Replace an authority that is there.")
@_folder
@add_output_option
def init(name: str, force: bool, folder: Path | None) -> None:
    """Make the authority: ca.crt for everybody, ca.key for nobody else."""
    from speck.cli.messages import say
    from speck.tls.authority import Authority

    authority = Authority.create(_folder_of(folder), _now(), name=name, force=force)
    say(f"made {authority.cert}; issue certificates with `speck ca issue NAME --host ADDRESS`")
    _show(authority.list(), folder)


@ca.command()
@click.argument("name")
@click.option(
    "--host",
    "hosts",
    metavar="HOST",
    multiple=True,
    help="Host name or IP address of the server (default: NAME); may be repeated.",
)
@click.option("--client", is_flag=True, help="For a client that is no server, e.g. the CLI.")
@click.option(
    "--days", type=click.IntRange(1, 3650), default=730, show_default=True, help="Validity."
)
@click.option("--keystore", is_flag=True, help="Also write NAME.p12, which Flink reads.")
@click.option("--force", is_flag=True, help="Replace a certificate of this name: renew it.")
@_folder
@add_output_option
def issue(
    name: str,
    hosts: tuple[str, ...],
    client: bool,
    days: int,
    keystore: bool,
    force: bool,
    folder: Path | None,
) -> None:
    """Issue NAME.crt and NAME.key, for a server and client, or a client only.

    NAME becomes the certificate's common name, which Mosquitto can take for the user
    (use_identity_as_username).
    """
    from speck.cli.messages import say
    from speck.tls.authority import Authority

    authority = Authority(_folder_of(folder))
    issued = authority.issue(
        name, _now(), hosts=hosts, client=client, days=days, keystore=keystore, force=force
    )
    say(f"issued {issued.cert}, valid until {issued.ends:%Y-%m-%d}")
    _show([issued], folder)


@ca.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("certs", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
def truststore(file: Path, certs: tuple[Path, ...]) -> None:
    """Write a truststore FILE for Flink that trusts CERTS only.

    With ca.p12 an engine obeys everybody with a certificate of the authority, jobs of other sites
    included. With a truststore of two certificates it obeys these two:

        speck ca truststore edge-a-clients.p12 service.crt edge-a.crt
    """
    from speck.cli.messages import say
    from speck.tls.authority import write_truststore

    write_truststore(file, *certs)
    say(f"wrote {file}")


@ca.command("list")
@_folder
@add_output_option
def list_certificates(folder: Path | None) -> None:
    """List the authority and what it issued, with a warning 30 days before the end."""
    from speck.tls.authority import Authority

    _show(Authority(_folder_of(folder)).list(), folder)


def _show(issued: list[Issued], folder: Path | None) -> None:
    from speck.cli.messages import warn
    from speck.cli.output import Grid
    from speck.tls.certificates import describe_expiry

    now = _now()
    for one in issued:
        if note := describe_expiry(one.ends, now):
            where = f" --folder {quote(str(folder))}" if folder else ""
            warn(f"{one.cert} {note}; renew it: speck ca {_renewal(one)} --force{where}")
    rows = [(one.name, " ".join(one.hosts), f"{one.ends:%Y-%m-%d}", one.cert) for one in issued]
    output().show(
        {"certificates": [_data(one, now) for one in issued]},
        Grid(("name", "hosts", "ends", "file"), rows, None, "no certificates"),
    )


def _renewal(one: Issued) -> str:
    if one.name == "ca":
        return "init"
    return f"issue {one.name}" + ("".join(f" --host {h}" for h in one.hosts) or " --client")


def _data(one: Issued, now: datetime) -> JsonObject:
    from speck.tls.certificates import describe_expiry

    return {
        "name": one.name,
        "hosts": list(one.hosts),
        "ends": one.ends.isoformat().replace("+00:00", "Z"),
        "file": str(one.cert),
        "warning": describe_expiry(one.ends, now),
    }


def _folder_of(folder: Path | None) -> Path:
    from speck.cli.offline import config_at

    return folder or config_at(None).home / "ca"


def _now() -> datetime:
    return datetime.now(UTC)
