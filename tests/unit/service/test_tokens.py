"""Tokens."""

from __future__ import annotations

import pytest

from speck.errors import ConflictError, InvalidError, NotFoundError
from speck.service import Service
from tests.service_helpers import reopened


def test_a_token_is_known_by_its_secret_also_after_a_restart(service: Service) -> None:
    assert not service.tokens.any()
    service.tokens.add("root", "admin")
    secret = service.tokens.add("ci", "deployer")
    again = reopened(service)
    try:
        assert again.tokens.any()
        assert again.tokens.verify(secret) == {"name": "ci", "role": "deployer", "site": None}
        assert again.tokens.verify(secret + "x") is None
        assert again.tokens.verify("") is None
    finally:
        again.close()


def test_the_secret_is_nowhere_in_the_store(service: Service) -> None:
    secret = service.tokens.add("ci", "admin")
    assert secret not in str(dict(service.records.store.scan("")))
    assert [set(token) for token in service.tokens.all()] == [{"name", "role", "site", "at"}]


def test_a_removed_token_is_refused(service: Service) -> None:
    secret = service.tokens.add("ci", "admin")
    service.tokens.remove("ci")
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
    assert service.tokens.verify(secret) == {"name": "agent", "role": "site", "site": "edge-a"}
