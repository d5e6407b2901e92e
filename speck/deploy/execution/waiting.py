"""Steps that wait for an engine, and when each engine is polled.

Steps are indexed by the site of the engine that they wait for, since there may be thousands. One
poll of an engine serves all steps that wait there. Times are monotonic seconds, passed in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from speck.deploy.execution.bounds import Bounds
from speck.deploy.operations import Waiting
from speck.model.observation import EngineJob

PAUSE_POLLS = 3
"""The pause after a poll is at least as long as the poll took, and so many times as long as it took
beyond the fastest one of the engine: one that is busy is polled less often than one that is far
away."""
GROWTH = 1.2
"""The pause grows by this factor after each poll that ended no wait."""


@dataclass(slots=True)
class _Wait:
    waiting: Waiting
    until: float
    awaited: bool
    silent: bool = False


class WaitingSteps:
    """The steps that wait, each until its limit. Time in which a site is silent, that is, does not
    answer, does not count."""

    def __init__(self) -> None:
        self._waits: dict[int, _Wait] = {}
        self._at: dict[str | None, dict[int, _Wait]] = {}
        self._awaited: Counter[str | None] = Counter()
        self._due = math.inf  # no step is overdue before, except at silent sites

    def __len__(self) -> int:
        return len(self._waits)

    def __contains__(self, step_id: int) -> bool:
        return step_id in self._waits

    @property
    def sites(self) -> list[str]:
        """The sites whose engines have to be polled, in the order in which steps began to wait."""
        return [site for site in self._at if site is not None]

    def has_any_at(self, site: str | None) -> bool:
        """Whether a step waits for a site; None: for no engine."""
        return site in self._at

    def is_awaited(self, site: str) -> bool:
        """Whether other steps wait for the end of one that waits for this site."""
        return self._awaited[site] > 0

    def steps_at(self, site: str) -> list[int]:
        """The steps that wait for a site."""
        return list(self._at.get(site, ()))

    def add(self, step_id: int, waiting: Waiting, now: float, *, awaited: bool) -> None:
        """Add a step that waits; `awaited`: other steps wait for its end."""
        assert step_id not in self._waits
        wait = self._waits[step_id] = _Wait(waiting, now + waiting.limit_s, awaited)
        self._at.setdefault(waiting.site, {})[step_id] = wait
        self._awaited[waiting.site] += awaited
        self._due = min(self._due, wait.until)

    def remove(self, step_id: int) -> Waiting:
        """Remove a step that waits."""
        wait = self._waits.pop(step_id)
        site = wait.waiting.site
        self._awaited[site] -= wait.awaited
        del self._at[site][step_id]
        if not self._at[site]:
            del self._at[site]
        return wait.waiting

    def take_ready(
        self, site: str | None, jobs: Mapping[str, EngineJob]
    ) -> list[tuple[int, Waiting]]:
        """Remove and return the steps whose condition an engine's answer fulfils. Without a `site`:
        those that wait for no engine."""
        ready = [
            step_id for step_id, wait in self._at.get(site, {}).items() if wait.waiting.ready(jobs)
        ]
        return [(step_id, self.remove(step_id)) for step_id in ready]

    def take_overdue(self, now: float) -> list[tuple[int, Waiting]]:
        """Remove and return the steps that have exceeded their limit."""
        if now <= self._due:
            return []
        answering = [(step_id, wait) for step_id, wait in self._waits.items() if not wait.silent]
        overdue = [step_id for step_id, wait in answering if now > wait.until]
        self._due = min(
            (wait.until for _, wait in answering if now <= wait.until), default=math.inf
        )
        return [(step_id, self.remove(step_id)) for step_id in overdue]

    def record_silence(self, site: str) -> list[int]:
        """Mark a site as silent; returns the steps that wait for it."""
        for wait in self._at.get(site, {}).values():
            wait.silent = True
        return self.steps_at(site)

    def record_answer(self, site: str, now: float) -> list[int]:
        """Mark a site as answering; returns the steps for which it was silent. Their time limit
        starts again."""
        step_ids = []
        for step_id, wait in self._at.get(site, {}).items():
            if wait.silent:
                wait.silent, wait.until = False, now + wait.waiting.limit_s
                self._due = min(self._due, wait.until)
                step_ids.append(step_id)
        return step_ids

    def give_up(self, *, everything: bool) -> set[int]:
        """Remove the steps that need not be waited for: those of silent sites, and those that have
        begun nothing; with `everything`, all. Returns them."""
        step_ids = {
            step_id
            for step_id, wait in self._waits.items()
            if everything or wait.silent or wait.waiting.may_be_left
        }
        for step_id in step_ids:
            self.remove(step_id)
        return step_ids


class PollSchedule:
    """When each engine is polled. A poll costs the engine, and the network, as much as other calls.

    The pauses between polls grow from `poll_s` to `poll_most_s`. After a poll that ended a wait
    they are short again, since other waits may end at the same time. While calls are under way, an
    engine for which no other step waits is polled every `poll_calm_s` only.
    """

    def __init__(self, bounds: Bounds):
        self._bounds = bounds
        self._under_way: set[str] = set()
        self._last: dict[str, float] = {}
        self._pause_s: dict[str, float] = {}
        self._fastest_s: dict[str, float] = {}

    def begin(self, site: str, now: float) -> None:
        """Start the schedule of a site for which a first step waits."""
        self._last[site], self._pause_s[site] = now, self._bounds.poll_s

    def take_due(
        self, sites: Iterable[str], calm: Iterable[str], now: float
    ) -> tuple[list[str], float]:
        """Return those of `sites` that are to be polled now, and when the next one is; no site has
        two polls at a time. Sites in `calm` are polled less often."""
        calm, due, next_at = set(calm), [], math.inf
        for site in sites:
            if site in self._under_way:
                continue
            pause_s = self._bounds.poll_calm_s if site in calm else self._pause_s[site]
            due_at = self._last[site] + pause_s
            if due_at <= now:
                due.append(site)
            else:
                next_at = min(next_at, due_at)
        self._under_way.update(due)
        return due, next_at

    def end(
        self, site: str, now: float, *, took_s: float, ended_waits: bool, answered: bool = True
    ) -> None:
        """A poll of a site has ended, with or without an answer; `ended_waits`: it ended the wait
        of a step."""
        self._under_way.discard(site)
        self._last[site] = now
        fastest_s = min(took_s, self._fastest_s.get(site, took_s))
        if answered:
            self._fastest_s[site] = fastest_s
        soon_s = max(self._bounds.poll_s, took_s, PAUSE_POLLS * (took_s - fastest_s))
        longer_s = GROWTH * self._pause_s.get(site, self._bounds.poll_s)
        pause_s = soon_s if ended_waits else max(soon_s, longer_s)
        self._pause_s[site] = min(pause_s, self._bounds.poll_most_s)
