"""Opaque random tokens, kept as SHA-256 only; a role says what a token may do."""

from __future__ import annotations

import hashlib
import secrets
from enum import StrEnum

from speck.clock import Clock, rfc3339
from speck.errors import ConflictError, InvalidError, NotFoundError, Problem
from speck.model.values import JsonObject, is_name
from speck.store.records import Records


class Role(StrEnum):
    ADMIN = "admin"
    DEPLOYER = "deployer"
    VIEWER = "viewer"
    SITE = "site"


class Tokens:
    """Tokens by name."""

    def __init__(self, records: Records, clock: Clock):
        self._records = records
        self._clock = clock

    def any(self) -> bool:
        """Whether a token exists."""
        return self._records.tokens.last_id() is not None

    def add(self, name: str, role: str, site: str | None = None) -> str:
        """A new token, shown this once. A token of role `site` is bound to one site."""
        problems = []
        if not is_name(name):
            problems.append(Problem("name", f"{name!r} is not a name"))
        if role not in list(Role):
            problems.append(Problem("role", f"{role!r} is none of {', '.join(Role)}"))
        if (role == Role.SITE) != (site is not None):
            problems.append(Problem("site", "goes with role site, and only with it"))
        if problems:
            raise InvalidError("cannot add this token", problems)
        if role != Role.ADMIN and not self._admins():
            raise ConflictError(
                f"cannot add token {name!r}: the first must have role admin,"
                " or nobody could add or remove another"
            )
        if self._records.tokens.get(name) is not None:
            raise ConflictError(f"cannot add token {name!r}: there is one; remove it first")
        secret = f"speck_{secrets.token_urlsafe(32)}"
        record = {
            "name": name,
            "role": role,
            "site": site,
            "sha256": hashlib.sha256(secret.encode()).hexdigest(),
            "at": rfc3339(self._clock.now()),
        }
        self._records.write(
            {self._records.tokens.key(name): record},
            self._records.event("token", f"token {name} added with role {role}"),
        )
        return secret

    def all(self) -> list[JsonObject]:
        """`{name, role, site, at}` of each token; never a hash."""
        records = self._records.tokens.values()
        return [{k: v for k, v in record.items() if k != "sha256"} for record in records]

    def remove(self, name: str) -> None:
        """Refuse the token from now on. Raises NotFoundError."""
        if self._records.tokens.get(name) is None:
            raise NotFoundError(f"cannot find token {name!r}")
        if self._admins() == {name} and len(self.all()) > 1:
            raise ConflictError(
                f"cannot remove token {name!r}: it is the last of role admin;"
                " add another first, or remove the others first"
            )
        self._records.write(
            {self._records.tokens.key(name): None},
            self._records.event("token", f"token {name} removed"),
        )

    def _admins(self) -> set[str]:
        return {str(token["name"]) for token in self.all() if token["role"] == Role.ADMIN}

    def verify(self, secret: str) -> JsonObject | None:
        """`{name, role, site}` of the token that `secret` is, or None."""
        digest = hashlib.sha256(secret.encode()).hexdigest()
        for record in self._records.tokens.values():
            if secrets.compare_digest(record["sha256"], digest):
                return {key: record[key] for key in ("name", "role", "site")}
        return None
