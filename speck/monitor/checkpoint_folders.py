"""Stores where jobs write their checkpoints if their `main` has set a folder of its own: an engine
that was restarted knows neither the job nor that folder, and its newest state lies there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from speck.deploy.changes import Changes
from speck.monitor.health import Key
from speck.monitor.stalls import Progress
from speck.store.records import Records


class CheckpointFolders:
    """Compares the folder that an engine reports with that of its site."""

    def __init__(
        self, records: Records, changes: Changes, site_folder: Callable[[str], str | None]
    ):
        """`site_folder` returns the URI below which a site's engine keeps state; None: not known,
        since the site has no agent that could list any folder."""
        self._records = records
        self._changes = changes
        self._site_folder = site_folder

    def store(self, progress: Mapping[Key, Progress], ids: Mapping[Key, str]) -> None:
        """Store what has been reported of these jobs; `ids` are the incarnations that were asked
        about. One that is being changed is noted at a later poll."""
        incarnations = self._records.incarnations.all()
        for key, reported in progress.items():
            incarnation = incarnations.get(key)
            if (
                incarnation is None
                or incarnation.engine_job_id != ids[key]
                or reported.folder is None
                or reported.folder == incarnation.checkpoints
                or (folder := self._site_folder(incarnation.job.site)) is None
                or _is_below(reported.folder, folder)
            ):
                continue
            scope, name = key
            with self._changes.resting(scope) as resting:
                if resting and self._records.incarnations.get(scope, name) == incarnation:
                    changed = replace(incarnation, checkpoints=reported.folder)
                    self._records.write(self._records.incarnations.put(scope, changed))


def _is_below(uri: str, folder: str) -> bool:
    return _normalise(uri).startswith(_normalise(folder).rstrip("/") + "/")


def _normalise(uri: str) -> str:
    """One form of `file:/a`, `file:///a` and `/a`."""
    path = uri.removeprefix("file:")
    return "file:/" + path.lstrip("/") if path.startswith("/") else uri
