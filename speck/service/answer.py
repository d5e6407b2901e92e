"""What a use case answers."""

from __future__ import annotations

from typing import NamedTuple

from speck.model.values import JsonObject


class Answer(NamedTuple):
    """A use case's result as HTTP knows it."""

    status: int
    body: JsonObject
    location: str | None = None
