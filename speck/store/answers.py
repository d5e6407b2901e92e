"""The first answers to requests with an Idempotency-Key, in the store.

Keys belong to a token: nobody gets, or is hindered by, the answer to another's request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from speck.model.accepted import Accepted
from speck.store.tables import Batch, Tables


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """The answer that was given at `at` (RFC 3339), with a digest of what was asked for."""

    digest: str
    at: str
    answer: Accepted


class AnswerRecords:
    """The first answer to each key of a token. `idem/<hash of both>`."""

    def __init__(self, tables: Tables):
        self._answers = tables.table("idem", FirstAnswer)

    def get(self, by: str | None, key: str) -> FirstAnswer | None:
        """The first answer to a key of the token named `by`."""
        return self._answers.get(_hash(by, key))

    def put(self, by: str | None, key: str, answer: FirstAnswer) -> Batch:
        return self._answers.put(answer, _hash(by, key))

    def times(self) -> Iterator[tuple[str, str]]:
        """(identity, when it was given) of each answer."""
        return ((identity, data["at"]) for identity, data in self._answers.scan())

    def drop(self, identity: str) -> Batch:
        return self._answers.drop(identity)

    def id_of(self, key: str) -> str:
        """The identity of the answer at a key of the store."""
        return self._answers.id_of(key) or ""


def _hash(by: str | None, key: str) -> str:
    return hashlib.sha256(f"{by or ''} {key}".encode()).hexdigest()  # no name holds a space
