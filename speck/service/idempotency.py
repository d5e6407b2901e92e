"""First answers to requests with an Idempotency-Key: they are repeated for a day.

What asks for the same again gets the same answer; see `speck.store.answers`.
"""

from __future__ import annotations

import hashlib
import json

from speck.clock import Clock, rfc3339
from speck.errors import ConflictError
from speck.model.accepted import Accepted
from speck.model.composition import CompositionDescription
from speck.spec.schema import dump_composition
from speck.store.answers import FirstAnswer
from speck.store.records import Records
from speck.store.retention import is_expired
from speck.store.tables import Batch


class FirstAnswers:
    """Keeps the first answer to each key, with a digest of the description that it came with."""

    def __init__(self, records: Records, clock: Clock):
        self._records = records
        self._clock = clock

    def find(
        self, by: str | None, key: str, description: CompositionDescription
    ) -> Accepted | None:
        """The first answer to a key of the token named `by`. Raises ConflictError when it came
        with another description."""
        first = self._records.answers.get(by, key)
        if first is None or is_expired(first.at, self._clock.now()):
            return None
        if first.digest != _digest(description):
            raise ConflictError(f"cannot use Idempotency-Key {key!r}: it came with another body")
        return first.answer

    def put(
        self, by: str | None, key: str, description: CompositionDescription, answer: Accepted
    ) -> Batch:
        """What to store of the first answer to a key of the token named `by`."""
        first = FirstAnswer(_digest(description), rfc3339(self._clock.now()), answer)
        return self._records.answers.put(by, key, first)


def _digest(description: CompositionDescription) -> str:
    content = json.dumps(dump_composition(description), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
