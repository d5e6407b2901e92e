"""Tests of capabilities, with binders that declare them and with those that do not."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol, TypeVar

import pytest

from speck.binding import MessageBroker, StreamEngine

_B = TypeVar("_B", MessageBroker, StreamEngine)

FAULTS = (AttributeError, AssertionError, NotImplementedError)
"""What a test meets where a binder has no such call, answers nothing, or its clients cannot."""


class Need(Protocol):
    """Makes a test one of a capability, and gives the binder to call."""

    def __call__(self, binder: _B, capability: StrEnum) -> _B: ...


def make_need(request: pytest.FixtureRequest) -> Need:
    """A test of a capability that its binder does not declare has to fail. It calls the binder
    itself: speck refuses these calls by what is declared, whatever the binder can do."""

    def need(binder: _B, capability: StrEnum) -> _B:
        if capability in binder.capabilities:
            return binder
        reason = f"it declares no capability `{capability}`"
        request.node.add_marker(pytest.mark.xfail(strict=True, reason=reason, raises=FAULTS))
        undeclared: _B = getattr(binder, "_binder", binder)
        return undeclared

    return need
