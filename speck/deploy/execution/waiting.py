"""Steps that wait for an engine, and when each engine is polled.

Steps are indexed by the engine that they wait for, since there may be thousands. One
poll of an engine serves all steps that wait there. Times are monotonic seconds, passed in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from speck.deploy.execution.bounds import Bounds
from speck.deploy.operations import Waiting
from speck.model.engines import EngineAt
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
    """The steps that wait, each until its limit. Time in which an engine is silent, that is, does
    not answer, does not count."""

    def __init__(self) -> None:
        self._waits: dict[int, _Wait] = {}
        self._at: dict[EngineAt | None, dict[int, _Wait]] = {}
        self._awaited: Counter[EngineAt | None] = Counter()
        self._due = math.inf  # no step is overdue before, except at silent engines

    def __len__(self) -> int:
        return len(self._waits)

    def __contains__(self, step_id: int) -> bool:
        return step_id in self._waits

    @property
    def engines(self) -> list[EngineAt]:
        """The engines that have to be polled, in the order in which steps began to wait."""
        return [engine for engine in self._at if engine is not None]

    def has_any_at(self, engine: EngineAt | None) -> bool:
        """Whether a step waits for an engine; None: for none."""
        return engine in self._at

    def is_awaited(self, engine: EngineAt) -> bool:
        """Whether other steps wait for the end of one that waits for this one."""
        return self._awaited[engine] > 0

    def steps_at(self, engine: EngineAt) -> list[int]:
        """The steps that wait for an engine."""
        return list(self._at.get(engine, ()))

    def add(self, step_id: int, waiting: Waiting, now: float, *, awaited: bool) -> None:
        """Add a step that waits; `awaited`: other steps wait for its end."""
        assert step_id not in self._waits
        wait = self._waits[step_id] = _Wait(waiting, now + waiting.limit_s, awaited)
        self._at.setdefault(waiting.engine, {})[step_id] = wait
        self._awaited[waiting.engine] += awaited
        self._due = min(self._due, wait.until)

    def remove(self, step_id: int) -> Waiting:
        """Remove a step that waits."""
        wait = self._waits.pop(step_id)
        engine = wait.waiting.engine
        self._awaited[engine] -= wait.awaited
        del self._at[engine][step_id]
        if not self._at[engine]:
            del self._at[engine]
        return wait.waiting

    def take_ready(
        self, engine: EngineAt | None, jobs: Mapping[str, EngineJob]
    ) -> list[tuple[int, Waiting]]:
        """Remove and return the steps whose condition an engine's answer fulfils. Without an
        `engine`: those that wait for none."""
        ready = [
            step_id
            for step_id, wait in self._at.get(engine, {}).items()
            if wait.waiting.ready(jobs)
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

    def record_silence(self, engine: EngineAt) -> list[int]:
        """Mark an engine as silent; returns the steps that wait for it."""
        for wait in self._at.get(engine, {}).values():
            wait.silent = True
        return self.steps_at(engine)

    def record_answer(self, engine: EngineAt, now: float) -> list[int]:
        """Mark an engine as answering; returns the steps for which it was silent. Their time limit
        starts again."""
        step_ids = []
        for step_id, wait in self._at.get(engine, {}).items():
            if wait.silent:
                wait.silent, wait.until = False, now + wait.waiting.limit_s
                self._due = min(self._due, wait.until)
                step_ids.append(step_id)
        return step_ids

    def give_up(self, *, everything: bool) -> set[int]:
        """Remove the steps that need not be waited for: those of silent engines, and those that
        have begun nothing; with `everything`, all. Returns them."""
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
        self._under_way: set[EngineAt] = set()
        self._last: dict[EngineAt, float] = {}
        self._pause_s: dict[EngineAt, float] = {}
        self._fastest_s: dict[EngineAt, float] = {}

    def begin(self, engine: EngineAt, now: float) -> None:
        """Start the schedule of an engine for which a first step waits."""
        self._last[engine], self._pause_s[engine] = now, self._bounds.poll_s

    def take_due(
        self, engines: Iterable[EngineAt], calm: Iterable[EngineAt], now: float
    ) -> tuple[list[EngineAt], float]:
        """Return those of `engines` that are to be polled now, and when the next one is; no engine
        has two polls at a time. Those in `calm` are polled less often."""
        calm, due, next_at = set(calm), [], math.inf
        for engine in engines:
            if engine in self._under_way:
                continue
            pause_s = self._bounds.poll_calm_s if engine in calm else self._pause_s[engine]
            due_at = self._last[engine] + pause_s
            if due_at <= now:
                due.append(engine)
            else:
                next_at = min(next_at, due_at)
        self._under_way.update(due)
        return due, next_at

    def end(
        self,
        engine: EngineAt,
        now: float,
        *,
        took_s: float,
        ended_waits: bool,
        answered: bool = True,
    ) -> None:
        """A poll of an engine has ended, with or without an answer; `ended_waits`: it ended the
        wait of a step."""
        self._under_way.discard(engine)
        self._last[engine] = now
        fastest_s = min(took_s, self._fastest_s.get(engine, took_s))
        if answered:
            self._fastest_s[engine] = fastest_s
        soon_s = max(self._bounds.poll_s, took_s, PAUSE_POLLS * (took_s - fastest_s))
        longer_s = GROWTH * self._pause_s.get(engine, self._bounds.poll_s)
        pause_s = soon_s if ended_waits else max(soon_s, longer_s)
        self._pause_s[engine] = min(pause_s, self._bounds.poll_most_s)
