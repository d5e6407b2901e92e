"""Tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from speck.clock import SystemClock, rfc3339
from speck.errors import ConflictError, InvalidError, NotFoundError, UnauthorizedError
from speck.model.scopes import UNLIMITED, Scopes
from speck.model.shown import render
from speck.service import Service
from speck.service.tokens import Role, Token, Tokens
from tests.service_helpers import reopened


class MovableClock(SystemClock):
    """A clock that goes only when it is told to."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def go(self, **duration: float) -> None:
        self.moment += timedelta(**duration)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def last_uses(tmp_path: Path) -> Path:
    return tmp_path / "last-uses.json"


@pytest.fixture
def tokens(service: Service, clock: MovableClock, last_uses: Path) -> Tokens:
    return Tokens(service.records, clock, last_uses)


def test_a_token_is_known_by_its_secret_also_after_a_restart(service: Service) -> None:
    assert not service.tokens.any()
    service.tokens.add("root", "admin")
    secret = service.tokens.add("ci", "deployer")
    again = reopened(service)
    try:
        assert again.tokens.any()
        assert again.tokens.verify(secret) == Token("ci", Role.DEPLOYER, None, UNLIMITED)
        assert again.tokens.verify(secret + "x") is None
        assert again.tokens.verify("") is None
    finally:
        again.close()


def test_the_secret_is_nowhere_in_the_store(service: Service) -> None:
    secret = service.tokens.add("ci", "admin")
    assert secret not in str(dict(service.records.store.scan("")))
    (token,) = service.tokens.all()
    assert not {"sha256", "former"} & set(render(token))


def test_a_removed_token_is_refused(service: Service) -> None:
    secret = service.tokens.add("ci", "admin")
    service.tokens.remove("ci", leave_open=True)
    assert service.tokens.verify(secret) is None
    assert not service.tokens.any()
    with pytest.raises(NotFoundError, match="cannot find token 'ci'"):
        service.tokens.remove("ci")


def test_the_first_token_is_an_admin_s(service: Service) -> None:
    with pytest.raises(ConflictError, match="the first must have role admin"):
        service.tokens.add("ci", "viewer")
    assert not service.tokens.any()


def test_a_name_is_taken_once(service: Service) -> None:
    service.tokens.add("ci", "admin")
    with pytest.raises(ConflictError, match="cannot add token 'ci': there is one; remove it f"):
        service.tokens.add("ci", "viewer")


@pytest.mark.parametrize(
    ("name", "role", "site", "path"),
    [
        ("a b", "admin", None, "name"),
        ("a", "king", None, "role"),
        ("a", "site", None, "site"),
        ("a", "admin", "edge-a", "site"),
    ],
)
def test_what_is_wrong_with_a_token_is_named(
    service: Service, name: str, role: str, site: str | None, path: str
) -> None:
    with pytest.raises(InvalidError) as error:
        service.tokens.add(name, role, site)
    assert [problem.path for problem in error.value.problems] == [path]


def test_a_token_of_a_site_is_bound_to_it(service: Service) -> None:
    service.tokens.add("root", "admin")
    secret = service.tokens.add("agent", "site", "edge-a")
    assert service.tokens.verify(secret) == Token("agent", Role.SITE, "edge-a", UNLIMITED)


def test_the_last_administrator_is_removed_only_to_leave_the_service_open(
    service: Service,
) -> None:
    tokens = service.tokens
    tokens.add("root", "admin")
    with pytest.raises(ConflictError, match=r"everybody on the service's machine.*--open"):
        tokens.remove("root")
    tokens.add("ci", "deployer")
    with pytest.raises(ConflictError, match="it is the last of role admin; add another first"):
        tokens.remove("root", leave_open=True)
    tokens.remove("ci")
    tokens.remove("root", leave_open=True)
    assert not tokens.any()


def test_an_expired_administrator_is_none(tokens: Tokens, clock: MovableClock) -> None:
    tokens.add("root", "admin")
    tokens.add("guest", "admin", expires_in="1h")
    clock.go(hours=1)
    with pytest.raises(ConflictError, match="it is the last of role admin"):
        tokens.remove("root")


def test_a_token_expires(tokens: Tokens, clock: MovableClock) -> None:
    tokens.add("root", "admin")
    secret = tokens.add("ci", "deployer", expires_in="90d")
    clock.go(days=89, hours=23)
    assert tokens.verify(secret) is not None
    clock.go(hours=1)
    with pytest.raises(UnauthorizedError, match=r"cannot use token 'ci': it expired at 20\d\d-.*Z"):
        tokens.verify(secret)


@pytest.mark.parametrize("duration", ["999999d", "999999w"])  # the second ends after year 9999
def test_a_duration_of_centuries_is_refused(tokens: Tokens, duration: str) -> None:
    with pytest.raises(InvalidError, match=r"expires_in: \w+ is longer than 36500d"):
        tokens.add("root", "admin", expires_in=duration)
    tokens.add("root", "admin")
    with pytest.raises(InvalidError):
        tokens.rotate("root", duration)


@pytest.mark.parametrize("duration", ["90", "d", "0d", "-1d", "1.5h", "9999999d", "1y", ""])
def test_an_invalid_duration_is_refused(tokens: Tokens, duration: str) -> None:
    with pytest.raises(InvalidError, match=r"expires_in: .* is no duration like 90d"):
        tokens.add("root", "admin", expires_in=duration)


def test_the_old_secret_of_a_rotated_token_is_valid_for_ten_more_minutes(
    tokens: Tokens, clock: MovableClock
) -> None:
    tokens.add("root", "admin")
    first = tokens.add("ci", "deployer", scopes=Scopes(compositions=("a*",)))
    second = tokens.rotate("ci")
    clock.go(minutes=9)
    third = tokens.rotate("ci")
    assert {tokens.verify(each) for each in (first, second, third)} == {
        Token("ci", Role.DEPLOYER, None, Scopes(compositions=("a*",)))
    }
    clock.go(minutes=1)
    with pytest.raises(
        UnauthorizedError, match="the token was rotated, and the secret was valid until"
    ):
        tokens.verify(first)
    assert tokens.verify(second) and tokens.verify(third)
    clock.go(minutes=9)
    with pytest.raises(
        UnauthorizedError, match="the token was rotated, and the secret was valid until"
    ):
        tokens.verify(second)
    with pytest.raises(NotFoundError):
        tokens.rotate("nobody")


def test_an_expired_token_is_rotated_only_with_a_new_time_of_expiry(
    tokens: Tokens, clock: MovableClock
) -> None:
    tokens.add("root", "admin")
    first = tokens.add("ci", "deployer", expires_in="5m")
    second = tokens.rotate("ci")
    clock.go(minutes=5)
    for secret in (first, second):
        with pytest.raises(UnauthorizedError):
            tokens.verify(secret)
    with pytest.raises(ConflictError, match="cannot rotate token 'ci': it has expired"):
        tokens.rotate("ci")
    third = tokens.rotate("ci", "1h")
    assert tokens.verify(third) is not None
    assert tokens.verify(first) is None, "the new time of expiry is not that of old secrets"


def test_the_last_use_is_written_at_most_once_a_minute(
    tokens: Tokens, clock: MovableClock, last_uses: Path
) -> None:
    secret = tokens.add("root", "admin")
    assert tokens.get("root").last_used is None
    tokens.verify(secret)
    written = last_uses.read_text()
    clock.go(seconds=59)
    tokens.verify(secret)
    assert tokens.get("root").last_used == rfc3339(clock.now())
    assert last_uses.read_text() == written
    clock.go(seconds=1)
    tokens.verify(secret)
    assert rfc3339(clock.now()) in last_uses.read_text()
    assert last_uses.stat().st_mode & 0o077 == 0
    tokens.remove("root", leave_open=True)
    assert "root" not in last_uses.read_text()


def test_a_disk_that_takes_no_last_use_refuses_nobody(
    service: Service, clock: MovableClock, tmp_path: Path
) -> None:
    tokens = Tokens(service.records, clock, tmp_path / "no-such-folder" / "uses.json")
    secret = tokens.add("root", "admin")
    assert tokens.verify(secret) is not None
    assert tokens.get("root").last_used == rfc3339(clock.now())
    service.records.store.check_writable()


@pytest.mark.parametrize("damaged", ["", "[]", "{", '{"a": 1}', '{"a": "yesterday"}'])
def test_a_damaged_file_of_last_uses_is_as_none(
    service: Service, clock: MovableClock, tmp_path: Path, damaged: str
) -> None:
    file = tmp_path / "uses.json"
    file.write_text(damaged)
    tokens = Tokens(service.records, clock, file)
    assert tokens.verify(tokens.add("root", "admin")) is not None


def test_only_deployers_and_viewers_can_be_limited(tokens: Tokens) -> None:
    limited = Scopes(compositions=("a",), topics=("t/#",), sites=("edge-*",))
    tokens.add("root", "admin")
    for role, site in (("admin", None), ("site", "edge-a")):
        with pytest.raises(InvalidError) as refused:
            tokens.add("x", role, site, scopes=limited)
        paths = [problem.path for problem in refused.value.problems]
        assert paths == ["compositions", "topics", "sites"]
    for role in ("deployer", "viewer"):
        tokens.add(role, role, scopes=limited)
        assert tokens.get(role).scopes == limited


def test_names_of_routes_and_actors_are_reserved(tokens: Tokens) -> None:
    for name in ("self", "local", "speck", "autopilot"):
        with pytest.raises(InvalidError, match="is reserved"):
            tokens.add(name, "admin")


def test_events_of_tokens_name_who_acted(service: Service) -> None:
    service.tokens.add("root", "admin", by="local")
    service.tokens.add("ci", "viewer", by="root")
    service.tokens.rotate("ci", by="root")
    service.tokens.remove("ci", by="root")
    events = [event for event in service.records.events.after() if event.kind == "token"]
    assert [event.by for event in events] == ["local", "root", "root", "root"]
