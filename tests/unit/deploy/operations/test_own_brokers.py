"""Operations use a site's own broker, and a broker that is away costs them no time of their own."""

from __future__ import annotations

from pathlib import Path

from speck.deploy.operations.own_brokers import OwnBrokers
from speck.errors import UnreachableError
from speck.model.link import Link
from speck.model.link_operations import Clear
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import broker


def test_a_broker_that_is_away_is_asked_once_for_many_operations(tmp_path: Path) -> None:
    with memory_service(tmp_path, [site_body("edge-a")]) as service:
        own = OwnBrokers(service.connections, service.identities, service.clock)
        before = broker("edge-a").count("identify")
        broker("edge-a").refuse("identify", 100, UnreachableError("no answer"))
        for number in range(100):
            own.check(Clear("edge-a", "A", Link("edge-a", f"T-{number}"), ()))
        assert broker("edge-a").count("identify") - before <= 2


def test_a_view_shows_who_the_broker_is(tmp_path: Path) -> None:
    with memory_service(tmp_path, [site_body("edge-a")]) as service:
        own = OwnBrokers(service.connections, service.identities, service.clock)
        before = broker("edge-a").count("identify")
        own.view("edge-a", ())
        own.check(Clear("edge-a", "A", Link("edge-a", "T"), ()))
        assert broker("edge-a").count("identify") == before
