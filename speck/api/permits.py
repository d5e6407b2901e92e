"""Permits: how many requests of one kind there may be at once, and how many of one token."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a permit: a token's name, None without tokens, and whether of an administrator."""

    token: str | None = None
    is_admin: bool = True


class Permits:
    """`most` permits. One token has half of them at most, and the last is kept for administrators:
    nobody can take what others, or those who have to put things right, need.

    Without tokens everybody is the same administrator, who may have all.
    """

    def __init__(self, most: int):
        self._most = most
        self._share = max(1, most // 2)
        self._change = threading.Condition()
        self._taken: Counter[str | None] = Counter()
        self._taken_by_others = 0  # than administrators
        self._waiting = 0

    def acquire(self, holder: Holder, patience_s: float = 0.0) -> bool:
        """Acquire a permit, if there is one within `patience_s` seconds. As many may wait at once
        as there are permits: a wait holds a thread, too."""
        with self._change:
            if not self._is_free(holder) and not self._await_one(holder, patience_s):
                return False
            self._taken[holder.token] += 1
            self._taken_by_others += not holder.is_admin
            return True

    def release(self, holder: Holder) -> None:
        """Release a permit that `holder` has acquired."""
        with self._change:
            self._taken[holder.token] -= 1
            if not self._taken[holder.token]:
                del self._taken[holder.token]
            self._taken_by_others -= not holder.is_admin
            self._change.notify_all()

    @property
    def free(self) -> int:
        """How many nobody has acquired."""
        with self._change:
            return self._most - self._taken.total()

    def _is_free(self, holder: Holder) -> bool:
        if self._taken.total() >= self._most:
            return False
        if holder.token is not None and self._taken[holder.token] >= self._share:
            return False
        return holder.is_admin or self._most == 1 or self._taken_by_others < self._most - 1

    def _await_one(self, holder: Holder, patience_s: float) -> bool:
        if patience_s <= 0 or self._waiting >= self._most:
            return False
        self._waiting += 1
        try:
            return self._change.wait_for(lambda: self._is_free(holder), patience_s)
        finally:
            self._waiting -= 1
