"""What a fog with TLS gives its brokers, engines, agents and jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from speck.errors import PermanentError
from speck.fog.site_record import SiteRecord
from speck.fog.sites import Fog
from speck.fog.state import FogState, StateFile
from speck.model.values import JsonObject
from speck.sites.credentials import read_credentials
from speck.tls.identity import SERVICE, Identity, issue_all


def test_certificates_are_new_but_that_of_the_service(tmp_path: Path) -> None:
    site = Identity.of_site(tmp_path, "edge-a")
    service = Identity(tmp_path, SERVICE)
    issue_all(tmp_path, {"edge-a": "127.0.0.1"})
    before = [file.read_bytes() for file in (site.ca, service.cert, site.cert)]
    issue_all(tmp_path, {"edge-a": "127.0.0.2"})
    after = [file.read_bytes() for file in (site.ca, service.cert, site.cert)]
    assert before[:2] == after[:2]
    assert before[2] != after[2]


def test_credentials_can_be_read_back(tmp_path: Path) -> None:
    issue_all(tmp_path / "ca", {"edge-a": "127.0.0.1"})
    identity = Identity.of_site(tmp_path / "ca", "edge-a")
    file = tmp_path / "credentials" / "fog"
    identity.write_credentials(file, ["ssl://127.0.0.1:1883", "https://127.0.0.1:8081"])
    for address in ("ssl://127.0.0.1:1883", "https://127.0.0.1:8081"):
        assert read_credentials(file, address).tls == identity.files


def test_every_listener_asks_for_certificates(tmp_path: Path) -> None:
    issue_all(tmp_path, {"edge-a": "127.0.0.1"})
    identity = Identity.of_site(tmp_path, "edge-a")
    broker, engine = identity.broker_settings(), identity.engine_settings()
    assert broker["require_certificate"] == broker["use_identity_as_username"] == "true"
    for key in ("rest.enabled", "rest.authentication-enabled", "internal.enabled"):
        assert engine[f"security.ssl.{key}"] == "true"
    stores = [value for key, value in engine.items() if key.endswith("store")]
    assert len(stores) == 4
    assert all(Path(file).exists() for file in stores)
    assert "--client-ca" in identity.agent_options()


def test_the_bodies_to_register_name_the_credentials(tmp_path: Path) -> None:
    site = SiteRecord("edge-a", "edge", "127.9.9.1", 1883, 8081, 8, encrypted=True)
    ca = tmp_path / "ca"
    issue_all(ca, {"edge-a": "127.9.9.1"})
    (tmp_path / "fog").mkdir()
    StateFile(tmp_path / "fog").save(FogState("single", 1.0, None, (site,), authority=str(ca)))
    fog = Fog(tmp_path / "fog")
    (body,) = fog.site_bodies()
    assert body["spe"]["address"] == "https://127.9.9.1:8081"
    assert body["broker"]["address"] == "ssl://127.9.9.1:1883"
    fog.write_credentials(tmp_path / "credentials")
    file = tmp_path / "credentials" / str(body["broker"]["credentials"])
    assert read_credentials(file, "https://127.9.9.1:8081").tls.cert == ca / "service.crt"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"credentials": Path("x")}, "it makes its own"),
        ({"wan_mode": "proxy"}, "use network namespaces"),
    ],
)
def test_options_that_exclude_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: JsonObject, message: str
) -> None:
    monkeypatch.setattr(Fog, "_check_wan", lambda *_: None)
    with pytest.raises(PermanentError, match=message):
        Fog(tmp_path / "fog").up(authority=tmp_path / "ca", **options)
