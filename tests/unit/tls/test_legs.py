"""Which legs of a site are plain, and which certificates end soon."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from speck.binding import is_encrypted
from speck.model.site import Broker, Engine, Site, Tier
from speck.tls.authority import Authority
from speck.tls.contexts import ClientTls, server_context
from speck.tls.legs import Leg, expiry_findings, legs_of, plain_finding

NOW = datetime.now(UTC).replace(microsecond=0)


def site(engine: str, broker: str) -> Site:
    return Site("edge-a", Tier.EDGE, Engine("flink", engine), Broker("mqtt", broker))


def test_every_leg_is_looked_at() -> None:
    plain = site("http://192.0.2.7:8081", "tcp://192.0.2.7:1883")
    legs = legs_of(plain, ClientTls(), "http://192.0.2.7:8090", "http://0.0.0.0:8080", is_encrypted)
    findings = [plain_finding(leg, "edge-a") for leg in legs]
    assert [(leg.part, finding.severity) for leg, finding in zip(legs, findings, strict=True)] == [
        ("engine", "warning"),
        ("broker", "warning"),
        ("agent", "warning"),
        ("service", "warning"),
    ]
    mends = " ".join(finding.mend for finding in findings if finding)
    for words in ("security.ssl.rest.enabled", "require_certificate", "edge-a.crt", "--tls-cert"):
        assert words in mends


def test_encrypted_legs_are_fine() -> None:
    encrypted = site("https://192.0.2.7:8081", "ssl://192.0.2.7:8883")
    legs = legs_of(
        encrypted, ClientTls(), "https://192.0.2.7:8090", "https://0.0.0.0:8080", is_encrypted
    )
    assert [plain_finding(leg, "edge-a") for leg in legs] == [None] * 4


def test_a_broker_with_a_ca_is_encrypted_whatever_its_scheme_says() -> None:
    legs = legs_of(
        site("https://a:1", "tcp://a:2"), ClientTls(Path("ca")), None, "https://b", is_encrypted
    )
    assert all(leg.encrypted for leg in legs)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.8.7", "[::1]", "localhost"])
def test_a_plain_leg_on_loopback_is_no_warning(host: str) -> None:
    finding = plain_finding(Leg("engine", f"http://{host}:8081", encrypted=False), "edge-a")
    assert finding is not None
    assert finding.severity == "note"
    assert finding.value == f"http://{host}:8081 is plain, on loopback"


@contextmanager
def server(context: ssl.SSLContext) -> Iterator[int]:
    """The port of a server that completes one handshake."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            try:
                connection, _ = listening.accept()
                context.wrap_socket(connection, server_side=True).close()
            except OSError:
                return

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    ("days", "severity", "words"), [(29, "warning", "ends in 2"), (31, None, "")]
)
def test_a_certificate_that_ends_within_30_days_is_named(
    tmp_path: Path, days: int, severity: str | None, words: str
) -> None:
    authority = Authority.create(tmp_path, NOW)
    authority.issue("edge-a", NOW, hosts=["127.0.0.1"], days=days)
    files = tmp_path / "edge-a.crt", tmp_path / "edge-a.key"
    with server(server_context(*files)) as port:
        leg = Leg("broker", f"ssl://127.0.0.1:{port}", encrypted=True)
        findings = list(expiry_findings(leg, ClientTls(authority.cert), NOW))
    assert [finding.severity for finding in findings] == ([severity] if severity else [])
    assert all(words in finding.value and leg.address in finding.value for finding in findings)


def test_the_service_s_own_certificate_is_looked_at_too(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, NOW)
    cert = authority.issue("service", NOW, client=True, days=20).cert
    login = ClientTls(authority.cert, cert, tmp_path / "service.key")
    leg = Leg("engine", "https://127.0.0.1:1", encrypted=True)  # nobody listens there
    (soon,) = expiry_findings(leg, login, NOW)
    assert (soon.severity, str(cert) in soon.value) == ("warning", True)
    (late,) = expiry_findings(leg, login, NOW + timedelta(days=21))
    assert (late.severity, "ended on" in late.value) == ("error", True)
