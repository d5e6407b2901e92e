"""Restarts dead processes of a fog; `Fog.up(restart=True)` starts this program beside the sites.

It runs as `python -m speck.fog.supervisor FOLDER`. It reads `fog.json`, so it knows every process
of the fog, no matter which program started it, and ends when the fog is taken down.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from speck.errors import SpeckError
from speck.fog.sites import Fog
from speck.fog.supervision import POLL_S, RestartPolicy

_log = logging.getLogger("speck.fog.supervisor")


def supervise(
    fog: Fog,
    policy: RestartPolicy,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Restart dead processes of `fog` until the fog is taken down."""
    while fog.sites():
        _restart_once(fog, policy, clock)
        pause(POLL_S)
    _log.info("the fog is down")


def _restart_once(fog: Fog, policy: RestartPolicy, clock: Callable[[], float]) -> None:
    for site in policy.sites_to_restart(_dead_processes(fog), clock()):
        try:
            fog.start(site)
            _log.info("restarted %s", site)
        except (
            SpeckError,
            OSError,
        ) as error:  # another command holds the lock, or the start failed: try again
            _log.warning("cannot restart %s yet: %s", site, error)


def _dead_processes(fog: Fog) -> Iterable[tuple[str, str]]:
    return [
        (record.site, record.what)
        for record in fog.processes()
        if record.process is not None and not record.process.running
    ]


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    supervise(Fog(Path(sys.argv[1])), RestartPolicy())


if __name__ == "__main__":
    main()
