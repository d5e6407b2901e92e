"""Durations as options."""

from __future__ import annotations

import click
import pytest

from speck.cli.durations import Duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5s", 1.5), ("10m", 600), ("2h", 7200), ("1d", 86400)]
)
def test_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["ten", "5x", "-5m", "", "1h30m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration: write 90s, 10m, 2h or 1d"):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("kind", "text", "limits"),
    [
        (Duration(), "0", "at least 1s"),
        (Duration("1m", "12h"), "59", "from 1m to 12h"),
        (Duration("1m", "12h"), "1d", "from 1m to 12h"),
        (Duration("0", "12h"), "13h", "from 0 to 12h"),
    ],
)
def test_its_limits_are_told_in_the_same_words(kind: Duration, text: str, limits: str) -> None:
    with pytest.raises(click.BadParameter, match=f"'{text}' must be {limits}"):
        kind.convert(text, None, None)


def test_its_limits_may_be_reached() -> None:
    limited = Duration("0", "12h")
    assert [limited.convert(text, None, None) for text in ("0", "12h")] == [0, 43_200]
