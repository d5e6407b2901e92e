"""A queue that a plan drops: messages in a reader's session that nobody will take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from speck.model.values import cut


class Count(StrEnum):
    """What is known about the number of messages in a queue."""

    ABOUT = "about"  # sent to it, less what its reader reports as taken
    AT_MOST = "at_most"  # sent to it; its reader does not report what it has taken
    UNKNOWN = "unknown"  # publishers outside speck write to the link, and report nothing


@dataclass(frozen=True, slots=True)
class DroppedQueue:
    """The queue of a session that a plan releases.

    `job_name` is None for a reader outside speck. `messages` is None if nothing is known of the
    number. `why` says why nobody takes the messages first.
    """

    client_id: str
    job_name: str | None
    site: str
    topic: str
    messages: int | None
    count: Count
    why: str

    @property
    def reader(self) -> str:
        return self.job_name or self.client_id

    @property
    def size(self) -> str:
        """The number of messages in words."""
        if self.messages is None:
            return "number not known"
        unit = "message" if self.messages == 1 else "messages"
        if self.count is Count.ABOUT:
            return f"about {self.messages} {unit}"
        return f"at most {self.messages} {unit}, sent since the session was made"

    @property
    def outcome(self) -> str:
        """The text once it has been dropped."""
        return f"dropped {self._subject}"

    def __str__(self) -> str:
        return f"drops {self._subject}"

    @property
    def _subject(self) -> str:
        return (
            f"the queue of {self.reader} at {self.site}/{cut(self.topic)} ({self.size}): {self.why}"
        )
