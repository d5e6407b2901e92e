"""`speck backup` and `speck restore`"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, BinaryIO

import click

from speck.cli.options import add_connection_options, client
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from speck.store.backup import HeaderReader


@click.command()
@click.argument("file")
@click.option(
    "--verify",
    is_flag=True,
    help="Read all of FILE instead of writing it; fail with its first fault.",
)
@add_connection_options
def backup(file: str, verify: bool) -> None:
    """Save the state of a running service.

    FILE (`-`: stdout) is written completely or not at all. It may be taken while changes run, and
    names these. It contains no artifacts: keep the folder `artifacts` of the service's home as
    well.
    """
    from speck.cli.bars import bytes_bar
    from speck.cli.documents import STDIN
    from speck.cli.messages import say
    from speck.cli.writing import write_whole
    from speck.store.backup import HeaderReader

    if verify:
        _verify(Path(file))
        return
    reader = HeaderReader()
    content = client().backup()
    pieces = _pass_by(content.pieces, reader)
    with bytes_bar("saving", content.size) as advance:
        if file == STDIN:
            size = _write(sys.stdout.buffer, pieces, advance)
        else:
            size = write_whole(Path(file), pieces, content.size, advance)
    say(f"saved {size} bytes to {file}")
    _name_changes(reader.header.get("under_way", []))


def _pass_by(pieces: Iterable[bytes], reader: HeaderReader) -> Iterator[bytes]:
    for piece in pieces:
        reader.add(piece)
        yield piece


def _verify(file: Path) -> None:
    from speck.cli.messages import say
    from speck.store.backup import read_backup

    saved = read_backup(file)
    tables = ", ".join(f"{count} {table}" for table, count in sorted(saved.tables.items()))
    say(
        f"{file} is complete: {len(saved.records)} records ({tables}), taken at"
        f" {saved.header.get('at')} from generation {saved.header.get('generation')} of"
        f" installation {saved.header.get('installation')}"
    )
    _name_changes(saved.under_way)


def _name_changes(changes: Iterable[JsonObject]) -> None:
    from speck.cli.messages import warn

    for change in changes:
        warn(
            f"change {change['id']} of {change['composition'] or change['job_name']}"
            f" ({change['cause']}) was under way when the backup was taken: a restored service"
            " does not continue it"
        )


def _write(out: BinaryIO, pieces: Iterable[bytes], advance: Callable[[int], None]) -> int:
    size = 0
    for piece in pieces:
        out.write(piece)
        advance(len(piece))
        size += len(piece)
    return size


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--home",
    type=click.Path(file_okay=False),
    help="The service's home, without a store (default: SPECK_HOME or .speck).",
)
def restore(file: Path, home: str | None) -> None:
    """Create a store from a backup.

    FILE was saved by `speck backup`. No service may run in the home. A service that is started
    with this store starts nothing until `speck adopt`: what has been started, moved or removed
    since the backup is unknown to it.
    """
    from speck.cli.messages import say, warn
    from speck.cli.offline import config_at, restore_store
    from speck.errors import NotFoundError

    if not file.is_file():
        reason = "it is no file" if file.exists() else "no such file"
        raise NotFoundError(f"cannot restore {file}: {reason}")
    config = config_at(home)
    saved = restore_store(config, file)
    say(f"restored {len(saved.records)} records to {config.store}")
    _name_changes(saved.under_way)
    if tokens := saved.tables["token"]:
        at, where = saved.header.get("at"), quote(str(config.home))
        warn(
            f"the tokens ({tokens}) are as they were at {at}: what was removed or rotated since is"
            f" valid again; see `speck token list --home {where}`"
        )
    say("next: `speck serve`, then `speck status` shows what runs and `speck adopt` takes it over")
