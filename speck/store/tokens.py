"""Tokens in the store."""

from __future__ import annotations

from speck.model.token import StoredToken
from speck.store.tables import Batch, Tables


class TokenRecords:
    """All tokens. `token/<name>`."""

    def __init__(self, tables: Tables):
        self._tokens = tables.table("token", StoredToken)

    def any(self) -> bool:
        """Whether there is a token."""
        return self._tokens.last_id() is not None

    def all(self) -> list[StoredToken]:
        """All, by name."""
        return list(self._tokens.values())

    def get(self, name: str) -> StoredToken | None:
        return self._tokens.get(name)

    def put(self, token: StoredToken) -> Batch:
        return self._tokens.put(token, token.name)

    def drop(self, name: str) -> Batch:
        return self._tokens.drop(name)
