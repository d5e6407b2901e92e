"""`speck batch`: what needs the archives of jobs, and no service.

Other packages add commands as entry points of group `speck.batches`.
"""

from __future__ import annotations

from importlib.metadata import entry_points

import click

from speck.cli.lazy import LazyGroup
from speck.cli.options import add_output_option, output

GROUP = "speck.batches"


def _list_commands() -> dict[str, str]:
    own = {"compact": f"{__name__}:compact"}
    return {each.name: each.value for each in entry_points(group=GROUP)} | own


@click.group(cls=LazyGroup, lazy=_list_commands())
def batch() -> None:
    """Work on archives: what jobs have stored for later.

    An archive is named by its URI (file:, s3a:, hdfs:), or by a folder.
    """


@click.command()
@click.argument("archive", metavar="URI")
@add_output_option
def compact(archive: str) -> None:
    """Join the small files of past days (UTC) of the archive at URI.

    Jobs may write meanwhile, but only one compaction at a time may run. A run that is interrupted
    loses and repeats nothing; the next one does the rest.
    """
    from datetime import UTC, datetime

    from speck.archive.compaction import compact as join_files
    from speck.archive.files import open_archive
    from speck.cli.messages import say
    from speck.errors import ConflictError

    storage = open_archive(archive)
    report = join_files(storage, datetime.now(UTC).date())
    if report.busy:
        raise ConflictError(
            f"cannot compact the archive {storage}: it is being read, or compacted; run it again"
        )
    for damaged in report.damaged:
        say(f"cannot read {damaged.path}: {damaged.why}; it is left as it is")
    data = {
        "joined": report.joined,
        "written": report.written,
        "damaged": [damaged.path for damaged in report.damaged],
    }
    output().show(data, f"joined {report.joined} files into {report.written}")
