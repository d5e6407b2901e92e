"""Tokens: who may do what, and where."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated

from speck.model.scopes import Scopes
from speck.model.shown import Shown


class Role(StrEnum):
    ADMIN = "admin"
    DEPLOYER = "deployer"
    VIEWER = "viewer"
    SITE = "site"


@dataclass(frozen=True, slots=True)
class FormerSecret:
    """The hash of a secret that was replaced, and until when (RFC 3339) it is valid."""

    sha256: str
    until: str


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token as it is stored: its secret only as SHA-256. `at` and `expires` are RFC 3339."""

    name: str
    role: Role
    site: str | None
    compositions: Annotated[
        tuple[str, ...] | None, Shown("globs of compositions and of jobs posted alone; null: all")
    ]
    topics: Annotated[
        tuple[str, ...] | None, Shown("patterns of topics (docs/tokens.md); null: all")
    ]
    sites: Annotated[tuple[str, ...] | None, Shown("globs of sites; null: all")]
    sha256: Annotated[str, Shown(hidden=True)]
    at: Annotated[str, Shown("when it was added")]
    by: Annotated[str | None, Shown("who added it")]
    expires: str | None
    former: Annotated[tuple[FormerSecret, ...], Shown(hidden=True)] = ()

    @property
    def scopes(self) -> Scopes:
        return Scopes(self.compositions, self.topics, self.sites)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownToken(StoredToken):
    """A token, and when (RFC 3339) it came with a request last."""

    last_used: str | None

    @classmethod
    def of(cls, token: StoredToken, last_used: str | None) -> KnownToken:
        known = {each.name: getattr(token, each.name) for each in fields(StoredToken)}
        return cls(**known, last_used=last_used)
