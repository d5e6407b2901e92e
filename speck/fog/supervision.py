"""Decides when a dead process of a fog is restarted (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

POLL_S = 0.25
"""The interval at which processes are checked, in seconds."""

RESTART_DELAY_S = 2.0
"""How long a process stays dead before its site is restarted, in seconds."""

_MAX_DELAY_S = 60.0
_STABLE_S = 60.0  # after running for so long, a process has the short delay again


@dataclass(slots=True)
class _Deaths:
    """The deaths of one process: since when it is dead (None: it runs), and the next delay."""

    since: float | None = None
    restarted: float = 0.0
    delay_s: float = RESTART_DELAY_S


@dataclass(slots=True)
class RestartPolicy:
    """A dead process is restarted after 2 s. The delay doubles, up to a minute, for one that keeps
    dying."""

    _deaths: dict[tuple[str, str], _Deaths] = field(default_factory=dict)

    def sites_to_restart(self, dead: Iterable[tuple[str, str]], now: float) -> list[str]:
        """The sites to restart now. `dead` holds (site, kind of process); `now` is in seconds."""
        dead = set(dead)
        for key, deaths in self._deaths.items():
            if key not in dead:
                deaths.since = None
        due = []
        for key in sorted(dead):
            deaths = self._deaths.setdefault(key, _Deaths(restarted=-_STABLE_S))
            if deaths.since is None:
                deaths.since = now
                if now - deaths.restarted >= _STABLE_S:
                    deaths.delay_s = RESTART_DELAY_S
            if now - deaths.since >= deaths.delay_s:
                deaths.restarted = deaths.since = now
                deaths.delay_s = min(2 * deaths.delay_s, _MAX_DELAY_S)
                due.append(key[0])
        return list(dict.fromkeys(due))
