"""First answers to requests with an Idempotency-Key: they are repeated for a day.

Keys belong to a token: nobody gets, or is hindered by, the answer to another's request.
"""

from __future__ import annotations

import hashlib
import json

from speck.clock import Clock, rfc3339
from speck.errors import ConflictError
from speck.model.values import JsonObject
from speck.store.records import Records
from speck.store.retention import is_expired
from speck.store.tables import Batch


class FirstAnswers:
    """Keeps the first answer to each key, with a digest of the body that it came with."""

    def __init__(self, records: Records, clock: Clock):
        self._records = records
        self._clock = clock

    def find(self, by: str | None, key: str, body: JsonObject) -> JsonObject | None:
        """The first answer to a key of the token named `by`. Raises ConflictError when it came
        with another body."""
        record = self._records.answers.get(_hash(by, key))
        if record is None or is_expired(record, self._clock.now()):
            return None
        if record["digest"] != _digest(body):
            raise ConflictError(f"cannot use Idempotency-Key {key!r}: it came with another body")
        answer: JsonObject = record["answer"]
        return answer

    def put(self, by: str | None, key: str, body: JsonObject, answer: JsonObject) -> Batch:
        """What to store of the first answer to a key of the token named `by`."""
        record = {"digest": _digest(body), "at": rfc3339(self._clock.now()), "answer": answer}
        return self._records.answers.put(record, _hash(by, key))


def _hash(by: str | None, key: str) -> str:
    return hashlib.sha256(f"{by or ''} {key}".encode()).hexdigest()  # no name holds a space


def _digest(content: JsonObject) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
