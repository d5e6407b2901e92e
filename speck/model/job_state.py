"""The states of a job, as users see them."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """Said by one function, `speck.monitor.judge.judge`."""

    PENDING = "pending"  # accepted, and nothing has been done for it yet
    DEPLOYING = "deploying"
    RUNNING = "running"
    RESTARTING = "restarting"  # in a crash loop, or its engine brings it back now
    STALLED = "stalled"  # it runs without progress
    UPDATING = "updating"
    MOVING = "moving"
    STOPPING = "stopping"
    STOPPED = "stopped"  # by a person: with speck, or at its engine
    FINISHED = "finished"  # its sources have ended
    FAILED = "failed"
    UNREACHABLE = "unreachable"  # its site does not answer: nothing is known of the job
    LOST = "lost"  # its engine answers and does not know the job
    UNKNOWN = "unknown"  # its engine has not been polled since the job was started, or speck

    @property
    def broken(self) -> bool:
        """Whether a job that should run will not run again by itself."""
        return self in (JobState.STOPPED, JobState.FAILED, JobState.LOST)
