"""Decides whether a running job makes progress. Pure: no I/O, the time is passed in."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a running job. `completed` is the id of its newest checkpoint; `taken` counts
    the messages that it has acknowledged, `sent` those that its producers sent, `lag` those sent
    but not taken. `folder` is that of its checkpoints. None: unknown."""

    interval_s: float | None
    completed: int | None = None
    taken: int | None = None
    sent: int | None = None
    lag: int | None = None
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class StallLimits:
    """A job without progress for `intervals` checkpoint intervals, at least `least_s` seconds and
    `polls` polls, is stalled."""

    intervals: int = 3
    least_s: float = 30.0
    polls: int = 3


STALL_LIMITS = StallLimits()


@dataclass(frozen=True, slots=True)
class _Standstill:
    """A value that does not change: since when, and for how many polls."""

    value: int | None
    since: float
    polls: int = 0

    def update(self, value: int | None, now: float) -> _Standstill:
        if value != self.value:
            return _Standstill(value, now, 1)
        return _Standstill(value, self.since, self.polls + 1)


@dataclass(frozen=True, slots=True)
class _Feed:
    """Messages sent while the job took none: `rises` counts increases, `first` is the time of the
    first."""

    sent: int
    rises: int = 0
    first: float = 0.0


@dataclass(frozen=True, slots=True)
class Course:
    """What polls have shown of the progress of one incarnation while it ran without a break."""

    interval_s: float | None
    checkpoint: _Standstill
    taken: _Standstill
    feed: _Feed | None = None

    def is_due(self, now: float, intervals: float) -> bool:
        """Whether no checkpoint has completed for so many intervals."""
        if self.interval_s is None:
            return True
        return now - self.checkpoint.since >= intervals * self.interval_s

    def explain_stall(self, now: float, limits: StallLimits) -> str | None:
        """Explain why the job counts as stalled; None if it makes progress, or if that is
        unknown."""
        if self.interval_s is None:
            return None
        long = max(limits.intervals * self.interval_s, limits.least_s)
        idle = self.checkpoint
        if idle.polls >= limits.polls and now - idle.since > long:
            return f"no checkpoint completed for {now - idle.since:.0f} s"
        # One rise proves nothing: its messages may have been taken before the producer reported
        # them.
        taken, feed = self.taken, self.feed
        if feed is None or feed.rises < 2 or taken.polls < limits.polls:
            return None
        if now - feed.first > long:
            return f"took nothing of its input for {now - taken.since:.0f} s while more was sent"
        return None


def follow(course: Course | None, progress: Progress, now: float) -> Course:
    """The course with the progress that was read at `now` (monotonic seconds)."""
    if course is None:
        checkpoint = _Standstill(progress.completed, now)
        taken, feed = _Standstill(progress.taken, now), None
    else:
        checkpoint, taken, feed = course.checkpoint, course.taken, course.feed
    has_moved = progress.taken != taken.value
    if progress.sent is None or progress.taken is None or not progress.lag:
        feed = None  # no messages are known to wait
    elif feed is None or has_moved:
        feed = _Feed(progress.sent)
    elif progress.sent > feed.sent:
        feed = _Feed(progress.sent, feed.rises + 1, feed.first if feed.rises else now)
    elif progress.sent < feed.sent:  # a producer begins to count again in a new epoch
        feed = replace(feed, sent=progress.sent)
    return Course(
        progress.interval_s,
        checkpoint.update(progress.completed, now),
        taken.update(progress.taken, now),
        feed,
    )
