"""What is logged of others' texts cannot control the terminal that shows the log."""

from __future__ import annotations

import io
import logging

import pytest

from speck.model.plain_text import PlainFormatter, escape_controls

HOSTILE = "a\x1b]0;t\x07b\r\nforged\x9bc\u202ed\u2028e\x00\x7f"


@pytest.fixture
def log() -> tuple[logging.Logger, io.StringIO]:
    shown = io.StringIO()
    handler = logging.StreamHandler(shown)
    handler.setFormatter(PlainFormatter("%(message)s"))
    log = logging.Logger("test")
    log.addHandler(handler)
    return log, shown


def test_control_characters_are_escaped() -> None:
    assert escape_controls("ein Wörtchen 日本") == "ein Wörtchen 日本"
    escaped = escape_controls(HOSTILE)
    assert escaped.isprintable()
    assert escaped.startswith("a\\x1b]0;t\\x07b\\r\\nforged")


def test_a_message_is_one_line(log: tuple[logging.Logger, io.StringIO]) -> None:
    log[0].warning("cannot read %s", HOSTILE)
    (line,) = log[1].getvalue().splitlines()
    assert line.isprintable()


def test_an_exception_is_readable_and_harmless(log: tuple[logging.Logger, io.StringIO]) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log[0].exception("failed")
    lines = log[1].getvalue().split("\n")
    assert all(line.isprintable() for line in lines)
    assert lines[0] == "failed"
    assert lines[1] == "Traceback (most recent call last):"
