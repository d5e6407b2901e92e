"""What the worker decides without a connection."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest

from speck.api.server.worker import freeze_survivors, group_address, is_vital


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_address_counts_as_the_network_of_one_customer(host: str, group: str) -> None:
    assert group_address(host) == group


@pytest.mark.parametrize(
    ("method", "path", "vital"),
    [
        ("GET", "/livez", True),
        ("HEAD", "/readyz", True),
        ("POST", "/sites/edge-a/heartbeat", True),
        ("GET", "/sites/edge-a/heartbeat", False),
        ("POST", "/sites/a/b/heartbeat", False),
        ("POST", "/livez", False),
        ("GET", "/jobs", False),
    ],
)
def test_health_and_heartbeats_are_vital(method: str, path: str, vital: bool) -> None:
    assert is_vital(SimpleNamespace(method=method, path=path)) is vital


def test_what_survives_a_full_collection_is_not_looked_at_again() -> None:
    before = gc.get_freeze_count()
    try:
        freeze_survivors("stop", {"generation": 1})
        freeze_survivors("start", {"generation": 2})
        assert gc.get_freeze_count() == before
        freeze_survivors("stop", {"generation": 2})
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
