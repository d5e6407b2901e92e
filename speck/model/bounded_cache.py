"""A cache bounded by the bytes it holds: strangers decide how large a value is."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keeps the values that were used last, of at most `most_bytes` together. Thread-safe.

    `weigh` estimates the bytes of a key with its value. What alone is larger is not kept.
    """

    def __init__(self, most_bytes: int, weigh: Callable[[K, V], int]):
        self._most_bytes = most_bytes
        self._weigh = weigh
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.bytes = 0

    def get(
        self,
        key: K,
        make: Callable[[], V],
        making: AbstractContextManager[object] | None = None,
    ) -> V:
        """The value of `key`, made if it is not there. Several threads may make the same one,
        unless `making` is a lock, which is held meanwhile."""
        kept = self._find(key)
        if kept is not None:
            return kept[0]
        if making is None:
            return self._keep(key, make())
        with making:
            kept = self._find(key)  # another thread may have made it
            return kept[0] if kept is not None else self._keep(key, make())

    def _find(self, key: K) -> tuple[V, int] | None:
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
            return kept

    def _keep(self, key: K, value: V) -> V:
        size = self._weigh(key, value)
        if size > self._most_bytes:
            return value
        with self._lock:
            self._drop(self._kept.pop(key, None))
            self._kept[key] = value, size
            self.bytes += size
            while self.bytes > self._most_bytes:
                self._drop(self._kept.popitem(last=False)[1])
        return value

    def _drop(self, kept: tuple[V, int] | None) -> None:
        if kept is not None:
            self.bytes -= kept[1]
