"""The arguments of a job; the connector reads those of the contract itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

CONTRACT = frozenset(
    (
        *("job-name", "source-broker", "source-topic", "sink-broker", "sink-topic", "client-id"),
        *("sink-client-id", "epoch", "delivery", "sink-readers", "taken", "until", "port"),
        *("batch-records", "linger-ms", "compression", "receive-maximum", "sink-window"),
        *("max-record-bytes", "resend-window", "resend-bytes", "resend-state-bytes"),
    )
)
"""The names of the job contract's arguments."""

_DURATION = re.compile(r"(\d{1,9})\s*(ms|s|m|min|h|d)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class ArgumentFaultError(ValueError):
    """An argument is missing or wrong; the message begins with "cannot"."""


class Arguments:
    """Pairs `--name value` or `--name=value`; a name without a value is a flag. The last counts."""

    def __init__(self, words: Sequence[str]) -> None:
        self.values: dict[str, str] = {}
        words = list(words)
        while words:
            word = words.pop(0)
            if not word.startswith("--") or len(word) == 2:
                raise ArgumentFaultError(
                    f'cannot read the arguments: expected --name, got "{word}"'
                )
            name, equals, value = word[2:].partition("=")
            if not equals:
                value = words.pop(0) if words and not words[0].startswith("--") else "true"
            self.values[name] = value

    @property
    def contract(self) -> dict[str, str]:
        """Those of the contract: the options of the data source."""
        return {name: value for name, value in self.values.items() if name in CONTRACT}

    def get(self, name: str, otherwise: str | None = None) -> str:
        value = self.values.get(name, otherwise)
        if value is None:
            raise ArgumentFaultError(f"cannot start the job: argument --{name} is missing")
        return value

    def get_ms(self, name: str, otherwise: int) -> int:
        """A time span such as 250ms, 10s, 5m (or 5min), 1h, 1d, in milliseconds; above 0."""
        text = self.values.get(name)
        if text is None:
            return otherwise
        match = _DURATION.fullmatch(text.strip())
        span_ms = int(match[1]) * _UNITS_MS[match[2]] if match else 0
        if not span_ms:
            raise ArgumentFaultError(
                f'cannot use --{name} "{text}": it must be a duration such as 250ms, 10s, 5m or 1h'
            )
        return span_ms
