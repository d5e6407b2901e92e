"""Flink's settings as `/jobmanager/config` returns them: only those that are set, as written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_DURATION = re.compile(r"^(\d+)\s*([a-zµ]*)$")
_ISO_DURATION = re.compile(r"^p(?:(\d+)d)?(?:t(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?)?$")
_MS = {
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1e3),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60e3),
    **dict.fromkeys(("h", "hour", "hours"), 3600e3),
    **dict.fromkeys(("d", "day", "days"), 86400e3),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1e-6),
    **dict.fromkeys(("µs", "micro", "micros", "microsecond", "microseconds"), 1e-3),
}
_SIZE = re.compile(r"^(\d+)\s*([a-z]*)$")
_BYTES = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}


def milliseconds(text: str) -> float | None:
    """A Flink duration (`10 s`, `5min`, `2000`, `PT1H`) in milliseconds; None: unreadable."""
    word = text.strip().lower()
    if match := _DURATION.match(word):
        unit = _MS.get(match[2])
        return int(match[1]) * unit if unit is not None else None
    if (iso := _ISO_DURATION.match(word)) and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1e3
    return None


def size_bytes(text: str) -> int | None:
    """A Flink memory size (`20kb`, `1 mb`, `4096`) in bytes; None: unreadable."""
    match = _SIZE.match(text.strip().lower())
    unit = _BYTES.get(match[2]) if match else None
    return int(match[1]) * unit if match and unit is not None else None


DEFAULT_VIEW_AGE = "3 s"
"""The default of `web.refresh-interval`, from which the REST caches derive their own defaults."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings by key. A setting may have one name in Flink 2 and another in Flink 1."""

    values: Mapping[str, str]

    @classmethod
    def of(cls, config: Iterable[Mapping[str, Any]]) -> Settings:
        """From the answer of `/jobmanager/config`."""
        return cls({str(each["key"]): str(each["value"]) for each in config})

    def get(self, *names: str) -> str | None:
        """Return the value of the first of `names` that is set."""
        return next((self.values[name] for name in names if self.values.get(name)), None)

    @property
    def checkpoint_cache_ms(self) -> float:
        """The greatest age of the engine's answers about checkpoints, in ms."""
        return self._cache_ms("rest.cache.checkpoint-statistics.timeout")

    def _cache_ms(self, name: str) -> float:
        text = self.get(name, "web.refresh-interval") or DEFAULT_VIEW_AGE
        age = milliseconds(text)
        return age if age is not None else 3000.0
