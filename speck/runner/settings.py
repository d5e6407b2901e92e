"""The settings of a runner."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """`state_folder` is the agent's. Programs of Python run in `python`. Up to `slots` run at a
    time, each with the memory that its job says, or `memory_mb` (None: no limit).

    With `uids` (first, last) each program has a user of its own out of these, and the group
    `shared_gid` besides; otherwise all run as the runner's user. `credentials` is the folder of the
    site's files; `groups` one for control groups, if not found by itself. A program may take
    `stop_s` seconds to end, and counts as running once it reports so, or, if it reports nothing,
    after `quiet_s`. After a crash it is started again after `retry_first_s`, doubled each time up
    to `retry_most_s`. Figures in the status are renewed after `renew_s`, those of a large one after
    up to five seconds; anything else is written at once.

    `spark_jar` is the connector for Spark: with it jobs of engines of kind `spark` run, too, each
    with `spark_memory_mb` unless the job says otherwise, and at `spark_master`, a standalone
    cluster (None: each in a Spark of its own), whose secret is in `spark_secret_file`. These may
    take `spark_stop_s` to end: a batch under way ends first, and a session takes long to close.
    """

    state_folder: Path
    slots: int = 16
    memory_mb: int | None = 512
    python: str = sys.executable
    uids: tuple[int, int] | None = None
    shared_gid: int | None = None
    credentials: Path | None = None
    groups: Path | None = None
    stop_s: float = 60.0
    quiet_s: float = 3.0
    retry_first_s: float = 1.0
    retry_most_s: float = 60.0
    renew_s: float = 1.0
    spark_jar: Path | None = None
    spark_memory_mb: int = 2048
    spark_master: str | None = None
    spark_secret_file: Path | None = None
    spark_stop_s: float = 110.0
