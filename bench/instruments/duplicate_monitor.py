"""Looks at all engines all the time and notes when two incarnations of one job were alive."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_OVER = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})
_EVERY_S = 0.1


@dataclass(slots=True)
class Life:
    """One incarnation on one engine, in seconds of Unix time by the engine's own clock.

    `ended` is None while it was alive at the last poll; `last_at` is the time of that poll.
    """

    job_name: str
    site: str
    began: float
    last_at: float
    ended: float | None = None

    @property
    def end(self) -> float:
        """When it ended; for one that vanished with its engine, the last poll that listed it."""
        return self.ended if self.ended is not None else self.last_at


class DuplicateMonitor:
    """Polls the engines (`site -> http://host:port`) ten times a second until it is closed.

    It must ask them directly, not through anything that an experiment disturbs.
    """

    def __init__(self, engines: Mapping[str, str]) -> None:
        self._lives: dict[tuple[str, str], Life] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, args=(site, address), daemon=True)
            for site, address in engines.items()
        ]
        for thread in self._threads:
            thread.start()

    def lives(self, job_name: str | None = None) -> list[Life]:
        """All incarnations that were seen, in the order of their beginnings."""
        with self._lock:
            lives = [life for life in self._lives.values() if job_name in (None, life.job_name)]
        return sorted(lives, key=lambda life: life.began)

    def most_at_once(self) -> dict[str, int]:
        """For each job name the highest number of incarnations alive at one moment."""
        by_name: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for life in self.lives():
            # Ends come before beginnings of the same millisecond.
            by_name[life.job_name] += [(life.began, 1), (life.end, -1)]
        most = {}
        for name, moments in by_name.items():
            alive = most[name] = 0
            for _, step in sorted(moments):
                alive += step
                most[name] = max(most[name], alive)
        return most

    def two_copies(self) -> list[str]:
        """The jobs that were alive twice at one moment."""
        return sorted(name for name, most in self.most_at_once().items() if most > 1)

    def __enter__(self) -> DuplicateMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, site: str, address: str) -> None:
        parts = urlsplit(address)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=2)
        while not self._over.wait(_EVERY_S):
            try:
                connection.request("GET", "/jobs/overview")
                answer = connection.getresponse()
                jobs = json.loads(answer.read())["jobs"] if answer.status == 200 else []
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                with suppress(OSError):
                    connection.close()
                continue
            self._note(site, jobs)
        connection.close()

    def _note(self, site: str, jobs: list[dict[str, Any]]) -> None:
        now = time.time()
        with self._lock:
            for job in jobs:
                key = (site, str(job["jid"]))
                began = job["start-time"] / 1000
                life = self._lives.setdefault(key, Life(str(job["name"]), site, began, began))
                over = job["state"] in _OVER
                life.ended = job["end-time"] / 1000 if over and job["end-time"] > 0 else None
                if over and life.ended is None:
                    life.ended = life.last_at
                if not over:
                    life.last_at = now
