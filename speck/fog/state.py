"""The recorded state of a fog, `fog.json`: sites, ports, and every process that it started."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from speck.errors import PermanentError
from speck.fog.flink_conf import Runtime
from speck.fog.process import Process, boot_id, find_by_token
from speck.fog.site_record import SiteRecord
from speck.fog.wan.model import WanState, parse_wan_state

_VERSION = 1
_LOCK_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process: recorded with its token before it starts, and with its pid afterwards."""

    site: str
    what: str
    token: str
    process: Process | None = None


@dataclass(frozen=True, slots=True)
class FogState:
    """A fog as it was brought up, and its processes so far.

    With `shared`, all sites keep state in one folder. Otherwise each has its own, and an agent that
    calls the service at `service` (None: not set yet) with the token in the agent's folder.
    `authority` is the folder of the certificate authority of a fog with TLS. With `programs`, a
    runner beside each agent runs jobs that are programs; with `spark`, one at each cloud runs jobs
    in PySpark.
    """

    runtime: Runtime
    checkpoint_interval_s: float
    credentials: str | None
    sites: tuple[SiteRecord, ...]
    boot: str = field(default_factory=boot_id)
    processes: tuple[ProcessRecord, ...] = ()
    shared: bool = True
    service: str | None = None
    wan: WanState | None = None
    authority: str | None = None
    programs: bool = False
    spark: bool = False

    def runs_spark(self, site: SiteRecord) -> bool:
        """Whether jobs in PySpark run at a site."""
        return self.spark and site.tier == "cloud"

    def has_runner(self, site: SiteRecord) -> bool:
        """Whether a runner beside the site's agent runs jobs."""
        return not self.shared and (self.programs or self.runs_spark(site))

    def site(self, name: str) -> SiteRecord:
        """The record of a site. Raises PermanentError for an unknown name."""
        for site in self.sites:
            if site.name == name:
                return site
        known = ", ".join(site.name for site in self.sites)
        raise PermanentError(f"cannot find site {name!r} in this fog: it has {known}")

    def of(self, site: str) -> dict[str, Process]:
        """The running processes of a site by their kind."""
        return {
            record.what: record.process
            for record in self.processes
            if record.site == site and record.process is not None and record.process.running
        }

    def with_process(self, record: ProcessRecord) -> FogState:
        """The state with a process that replaces an earlier one of the same site and kind."""
        others = tuple(
            other
            for other in self.processes
            if (other.site, other.what) != (record.site, record.what)
        )
        return replace(self, processes=(*others, record))

    def find_processes(self) -> FogState:
        """The state with the pids of processes whose launcher died before it recorded them."""
        if self.boot != boot_id():
            return replace(self, boot=boot_id(), processes=())
        records = (
            replace(record, process=record.process or find_by_token(record.token))
            for record in self.processes
        )
        return replace(self, processes=tuple(records))


class StateFile:
    """`fog.json`, replaced atomically, so that it is readable after a crash at any instant."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "fog.json"
        self._lock = folder / "fog.lock"

    def load(self) -> FogState | None:
        """Load the state; None when there is no fog. Raises PermanentError when the file cannot be
        read."""
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return None
        try:
            return _parse(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise PermanentError(f"cannot read {self.path}: {error!r}; was it edited?") from error

    def save(self, state: FogState) -> None:
        """Save the state and sync it, so that no process runs that is not recorded."""
        fresh = self.path.with_suffix(".new")
        with fresh.open("w") as file:
            json.dump({"v": _VERSION, **asdict(state)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    @contextmanager
    def lock(self, timeout_s: float = 0.0) -> Iterator[None]:
        """Hold a lock across processes; a crash releases it.

        Raises PermanentError when another process still holds it after `timeout_s`.
        """
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + timeout_s
        with self._lock.open("w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if time.monotonic() >= deadline:
                        raise PermanentError(
                            f"cannot change the fog in {self._lock.parent}: another process is"
                            " changing it; wait until it has ended"
                        ) from error
                    time.sleep(_LOCK_POLL_S)
            yield


def _parse(data: dict[str, Any]) -> FogState:
    if data["v"] != _VERSION:
        raise ValueError(f"version {data['v']}, expected {_VERSION}")
    return FogState(
        runtime=data["runtime"],
        checkpoint_interval_s=float(data["checkpoint_interval_s"]),
        credentials=data["credentials"],
        sites=tuple(SiteRecord(**site) for site in data["sites"]),
        boot=data["boot"],
        processes=tuple(
            ProcessRecord(
                record["site"],
                record["what"],
                record["token"],
                Process(**record["process"]) if record["process"] else None,
            )
            for record in data["processes"]
        ),
        shared=data.get("shared", True),
        service=data.get("service"),
        wan=parse_wan_state(data["wan"]) if data.get("wan") else None,
        authority=data.get("authority"),
        programs=data.get("programs", False),
        spark=data.get("spark", False),
    )
