"""`speck runner`"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click

_folder = click.Path(file_okay=False, path_type=Path)
_ROOT = "root"


@click.command()
@click.option(
    "--state-folder",
    required=True,
    type=_folder,
    help="The state folder of the site's agent, under the same path.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, 10_000),
    default=16,
    show_default=True,
    help="How many programs run at a time; a job takes as many as its parallelism.",
)
@click.option(
    "--memory-mb",
    type=click.IntRange(0),
    default=512,
    show_default=True,
    help="Memory of a program whose job does not set memory_mb (0: no limit).",
)
@click.option(
    "--spark-jar",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path),
    help="speck-spark-connector.jar: jobs of engines of kind spark run, too (--python needs"
    " pyspark, and Java 17 or later has to be there).",
)
@click.option(
    "--spark-memory-mb",
    type=click.IntRange(512),
    default=2048,
    show_default=True,
    help="Memory of a job with Spark that does not set memory_mb.",
)
@click.option(
    "--spark-master",
    metavar="URL",
    help="Master of a standalone cluster, spark://host:port, at whose workers jobs run; they have"
    " to see the state folder under the same path. Default: each job has a Spark of its own.",
)
@click.option(
    "--spark-secret-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with that cluster's spark.authenticate.secret and nothing else.",
)
@click.option(
    "--python", metavar="PATH", help="Python 3.11 or later for programs; default: its own."
)
@click.option(
    "--as",
    "users",
    metavar="UIDS",
    help="As root: a range of user ids that nobody else has, such as 61000-61099, of which each"
    " program gets one of its own; or `root`, to run all of them as root.",
)
@click.option(
    "--group",
    "shared",
    metavar="NAME",
    help="With a range in --as: a group that all programs have besides their own, for folders that"
    " they share, such as a local archive.",
)
@click.option(
    "--credentials",
    envvar="SPECK_CREDENTIALS_DIR",
    type=_folder,
    help="The site's credentials; a program gets those of its own two brokers.",
)
@click.option(
    "--cgroup",
    "groups",
    type=_folder,
    help="Folder for control groups of programs; default: below a delegated one of its own.",
)
def runner(
    users: str | None, shared: str | None, memory_mb: int, python: str | None, **options: Any
) -> None:
    """Run a site's runner of programs, which go on without it.

    It runs beside the site's agent, as a process of its own, and runs jobs whose artifact is a
    Python program, a zipapp, a wheel or a tar archive: each is one process. It starts one again
    that has crashed, and all after a restart of the machine.
    """
    import signal
    import sys

    from speck.runner.runner import Runner
    from speck.runner.settings import Settings

    settings = Settings(
        memory_mb=memory_mb or None,
        python=python or sys.executable,
        uids=_choose_users(users),
        shared_gid=_find_group(shared),
        **options,
    )
    site_runner = Runner(settings)
    for what in (signal.SIGTERM, signal.SIGINT):
        signal.signal(what, lambda *_: site_runner.stop())
    site_runner.run()


def _find_group(name: str | None) -> int | None:
    import grp

    if name is None:
        return None
    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except (KeyError, OverflowError) as error:
        raise click.UsageError(f"cannot use --group {name}: there is no such group") from error


def _choose_users(text: str | None) -> tuple[int, int] | None:
    if text is None or text == _ROOT:
        if text is None and os.geteuid() == 0:
            raise click.UsageError(
                "programs would run as root: give --as with a range of user ids that nobody has,"
                " such as 61000-61099; or --as root"
            )
        return None
    match = re.fullmatch(r"([1-9]\d{0,9})-([1-9]\d{0,9})", text)
    if match is None or int(match[1]) > int(match[2]):
        raise click.UsageError("write --as as FIRST-LAST, e.g. 61000-61099, or as root")
    return int(match[1]), int(match[2])
