"""Opaque random tokens, kept as SHA-256 only. A role says what a token may do, its scopes where."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from speck.clock import Clock, rfc3339
from speck.errors import ConflictError, InvalidError, NotFoundError, Problem, UnauthorizedError
from speck.model.scopes import UNLIMITED, Scopes
from speck.model.token import FormerSecret, KnownToken, Role, StoredToken
from speck.model.values import AUTOPILOT, LOCAL, SPECK, is_name
from speck.store.records import Records
from speck.store.tables import Batch

ROTATION = timedelta(minutes=10)
"""How long the old secret of a rotated token stays valid."""
LAST_USED = timedelta(minutes=1)
"""The time of a token's last use is written at most this often."""
RESERVED = ("self", LOCAL, SPECK, AUTOPILOT)
"""Names that no token may have: those of routes, and of actors that need no token."""
_SCOPED_ROLES = ("deployer", "viewer")
LONGEST = timedelta(days=36_500)
"""The longest duration until a token expires."""
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True)
class Token:
    """A token whose secret came with a request."""

    name: str
    role: Role
    site: str | None
    scopes: Scopes


class Tokens:
    """Tokens by name."""

    def __init__(self, records: Records, clock: Clock, last_uses: Path | None = None):
        """`last_uses` is the file that holds when each token was last used; None: nowhere."""
        self._records = records
        self._clock = clock
        self._last_uses = _LastUses(last_uses, clock)
        self._changing = threading.Lock()

    def any(self) -> bool:
        """Whether a token exists."""
        return self._records.tokens.any()

    def add(
        self,
        name: str,
        role: str,
        site: str | None = None,
        *,
        scopes: Scopes = UNLIMITED,
        expires_in: str | None = None,
        by: str | None = None,
    ) -> str:
        """Make a token; returns its secret, which is shown only this once. A token of role `site`
        is bound to one site; `expires_in` is a duration like `90d`.

        Raises InvalidError, and ConflictError for a name that is taken or when the first token
        is not an administrator's.
        """
        now = self._clock.now()
        _check(name, role, site, scopes, expires_in)
        with self._changing:
            if role != Role.ADMIN and not self._list_admins():
                raise ConflictError(
                    f"cannot add token {name!r}: the first must have role admin,"
                    " or nobody could add or remove another"
                )
            if self._records.tokens.get(name) is not None:
                raise ConflictError(f"cannot add token {name!r}: there is one; remove it first")
            secret = _make_secret()
            expires = _end_of(expires_in, now)
            token = StoredToken(
                name=name,
                role=Role(role),
                site=site,
                compositions=scopes.compositions,
                topics=scopes.topics,
                sites=scopes.sites,
                sha256=_hash(secret),
                at=rfc3339(now),
                by=by,
                expires=rfc3339(expires) if expires else None,
            )
            about = f"token {name} added with role {role}"
            self._write(self._records.tokens.put(token), about, by)
        self._last_uses.drop(name)
        return secret

    def rotate(self, name: str, expires_in: str | None = None, by: str | None = None) -> str:
        """Give a token a new secret and return it; the old one is valid for ten more minutes.
        `expires_in` sets a new time of expiry.

        Raises NotFoundError, InvalidError, and ConflictError for one that has expired.
        """
        now = self._clock.now()
        if (fault := find_duration_fault(expires_in)) is not None:
            problem = Problem("expires_in", fault)
            raise InvalidError(f"cannot rotate token {name!r}: {problem}", [problem])
        with self._changing:
            token = self._read(name)
            if expires_in is None and _is_over(token.expires, now):
                raise ConflictError(
                    f"cannot rotate token {name!r}: it has expired; give it a new time of expiry"
                    " (--expires 90d)"
                )
            until = [rfc3339(now + ROTATION), *([token.expires] if token.expires else [])]
            secret = _make_secret()
            former = [each for each in token.former if not _is_over(each.until, now)]
            expires = _end_of(expires_in, now)
            rotated = replace(
                token,
                sha256=_hash(secret),
                former=(*former, FormerSecret(token.sha256, min(until))),
                expires=rfc3339(expires) if expires else token.expires,
            )
            self._write(self._records.tokens.put(rotated), f"token {name} rotated", by)
        return secret

    def all(self) -> list[KnownToken]:
        """All tokens, by name."""
        return [
            KnownToken.of(token, self._last_uses.of(token.name))
            for token in self._records.tokens.all()
        ]

    def get(self, name: str) -> KnownToken:
        """A token. Raises NotFoundError."""
        return KnownToken.of(self._read(name), self._last_uses.of(name))

    def remove(self, name: str, *, leave_open: bool = False, by: str | None = None) -> None:
        """Refuse the token from now on. Raises NotFoundError, and ConflictError for the last
        administrator: unless it is the last token and the service may be left open
        (`leave_open`) to everybody on its machine."""
        with self._changing:
            self._read(name)
            if self._list_admins() <= {name} and self._is_admin(name):
                self._refuse_last_admin(name, leave_open)
            self._write(self._records.tokens.drop(name), f"token {name} removed", by)
        self._last_uses.drop(name)

    def is_valid(self, name: str | None) -> bool:
        """Whether a token is there and has not expired; None: whether none is needed."""
        if name is None:
            return not self.any()
        token = self._records.tokens.get(name)
        return token is not None and not _is_over(token.expires, self._clock.now())

    def verify(self, secret: str) -> Token | None:
        """The token that `secret` belongs to; None if it is unknown. Raises UnauthorizedError when
        it has expired."""
        digest, now = _hash(secret), self._clock.now()
        for token in self._records.tokens.all():
            until = _find_end(token, digest)
            if until is None:
                continue
            if until and _is_over(until, now):
                raise UnauthorizedError(_explain_end(token, digest, until))
            self._last_uses.record(token.name)
            return Token(token.name, token.role, token.site, token.scopes)
        return None

    def _refuse_last_admin(self, name: str, leave_open: bool) -> None:
        if len(self._records.tokens.all()) > 1:
            raise ConflictError(
                f"cannot remove token {name!r}: it is the last of role admin;"
                " add another first, or remove the others first"
            )
        if not leave_open:
            raise ConflictError(
                f"cannot remove token {name!r}: it is the last one, and without tokens everybody"
                " on the service's machine is an administrator; to allow that, give --open"
                " (?open=true)"
            )

    def _read(self, name: str) -> StoredToken:
        token = self._records.tokens.get(name)
        if token is None:
            raise NotFoundError(f"cannot find token {name!r}")
        return token

    def _write(self, batch: Batch, message: str, by: str | None) -> None:
        self._records.write(batch, self._records.events.make("token", message, by=by))

    def _is_admin(self, name: str) -> bool:
        return self._read(name).role is Role.ADMIN

    def _list_admins(self) -> set[str]:
        """The names of administrators whose tokens have not expired."""
        now = self._clock.now()
        return {
            token.name
            for token in self._records.tokens.all()
            if token.role is Role.ADMIN and not _is_over(token.expires, now)
        }


class _LastUses:
    """When each token was last used. It is kept in a file of its own and not in the store: a read
    must not fail, or end the service, because the disk does not take this."""

    def __init__(self, file: Path | None, clock: Clock):
        self._file = file
        self._clock = clock
        self._lock = threading.Lock()
        self._uses: dict[str, datetime] = {}
        self._written: dict[str, datetime] = {}
        if file is not None:
            with suppress(OSError, ValueError, AttributeError, TypeError):
                for name, at in json.loads(file.read_text()).items():
                    self._uses[name] = self._written[name] = datetime.fromisoformat(at)

    def record(self, name: str) -> None:
        now = self._clock.now()
        with self._lock:
            self._uses[name] = now
            written = self._written.get(name)
            if written is None or abs(now - written) >= LAST_USED:
                self._written = dict(self._uses)  # also when it fails: not at each request again
                self._save()

    def of(self, name: str) -> str | None:
        with self._lock:
            at = self._uses.get(name)
        return rfc3339(at) if at else None

    def drop(self, name: str) -> None:
        with self._lock:
            if self._uses.pop(name, None) is not None:
                self._written.pop(name, None)
                self._save()

    def _save(self) -> None:
        if self._file is None:
            return
        scratch = self._file.with_suffix(".new")
        content = json.dumps({name: rfc3339(at) for name, at in sorted(self._uses.items())})
        try:
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as out:
                out.write(content + "\n")
            os.replace(scratch, self._file)
        except OSError:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)


def find_duration_fault(text: str | None) -> str | None:
    """Why `text` is no duration like `90d`; None if it is one, or None itself."""
    if text is None:
        return None
    duration = _read_duration(text)
    if duration is None:
        return f"{text[:20]!r} is no duration like 90d: a whole number and s, m, h, d or w"
    return f"{text} is longer than {LONGEST.days}d" if duration > LONGEST else None


def _check(name: str, role: str, site: str | None, scopes: Scopes, expires_in: str | None) -> None:
    problems = []
    if not is_name(name) or name in RESERVED:
        fault = "reserved" if name in RESERVED else "not a name"
        problems.append(Problem("name", f"{name!r} is {fault}"))
    if role not in list(Role):
        problems.append(Problem("role", f"{role!r} is none of {', '.join(Role)}"))
    if (role == Role.SITE) != (site is not None):
        problems.append(Problem("site", "goes with role site, and only with it"))
    if scopes.limited and role not in _SCOPED_ROLES:
        fault = f"only tokens of role {' or '.join(_SCOPED_ROLES)} can be limited"
        limits = scopes.to_json().items()
        problems += [Problem(path, fault) for path, patterns in limits if patterns is not None]
    problems += scopes.find_problems()
    if (duration_fault := find_duration_fault(expires_in)) is not None:
        problems.append(Problem("expires_in", duration_fault))
    if problems:
        raise InvalidError(f"cannot add this token: {problems[0]}", problems)


def _find_end(token: StoredToken, digest: str) -> str | None:
    """Until when a token is valid with the secret of this hash: "" for ever, None if it has
    another secret."""
    if secrets.compare_digest(token.sha256, digest):
        return token.expires or ""
    for former in token.former:
        if secrets.compare_digest(former.sha256, digest):
            return former.until
    return None


def _explain_end(token: StoredToken, digest: str, until: str) -> str:
    name = token.name
    if not secrets.compare_digest(token.sha256, digest) and until != token.expires:
        return (
            f"cannot use this secret of token {name!r}: the token was rotated, and the secret was"
            f" valid until {until}; use the new one"
        )
    return (
        f"cannot use token {name!r}: it expired at {until}; an administrator rotates it with `speck"
        f" token rotate {name}`"
    )


def _read_duration(text: str) -> timedelta | None:
    match = _DURATION.fullmatch(text)
    return timedelta(seconds=int(match[1]) * _UNITS[match[2]]) if match else None


def _end_of(expires_in: str | None, now: datetime) -> datetime | None:
    duration = _read_duration(expires_in or "")
    return now + duration if duration else None


def _is_over(moment: str | None, now: datetime) -> bool:
    return moment is not None and datetime.fromisoformat(moment) <= now


def _make_secret() -> str:
    return f"speck_{secrets.token_urlsafe(32)}"


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
