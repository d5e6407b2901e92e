"""The certificate authority for small fogs."""

from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from speck.errors import ConflictError, InvalidError, NotFoundError, PermanentError
from speck.tls.authority import KEYSTORE_PASSWORD, Authority, write_truststore
from speck.tls.certificates import load_certificate
from speck.tls.contexts import client_context, server_context

T = TypeVar("T", bound=x509.ExtensionType)

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "ca", NOW)


def extension(certificate: x509.Certificate, kind: type[T]) -> T:
    return certificate.extensions.get_extension_for_class(kind).value


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> None:
    """A handshake in memory; raises what the client or the server objects to."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()


def test_the_authority_may_sign_certificates_and_nothing_else(authority: Authority) -> None:
    certificate = load_certificate(authority.cert)
    constraints = extension(certificate, x509.BasicConstraints)
    assert (constraints.ca, constraints.path_length) == (True, 0)
    usage = extension(certificate, x509.KeyUsage)
    assert usage.key_cert_sign and not usage.digital_signature
    assert certificate.not_valid_after_utc == NOW + timedelta(days=3650)


def test_a_certificate_names_hosts_and_addresses(authority: Authority) -> None:
    issued = authority.issue("edge-a", NOW, hosts=["Pi.local", "10.0.0.7", "::1"])
    certificate = load_certificate(issued.cert)
    assert issued.hosts == ("pi.local", "10.0.0.7", "::1")
    assert not extension(certificate, x509.BasicConstraints).ca
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
    assert certificate.not_valid_after_utc == issued.ends == NOW + timedelta(days=730)
    assert certificate.not_valid_before_utc < NOW  # a Pi's clock may be slow
    certificate.verify_directly_issued_by(load_certificate(authority.cert))


def test_keys_are_readable_by_their_owner_only(authority: Authority) -> None:
    authority.issue("edge-a", NOW, keystore=True)
    for name in ("ca.key", "edge-a.key", "edge-a.p12"):
        assert (authority.folder / name).stat().st_mode & 0o777 == 0o600, name


def test_nothing_is_replaced_unless_forced(authority: Authority) -> None:
    first = authority.issue("edge-a", NOW).cert.read_bytes()
    with pytest.raises(ConflictError, match="--force replaces it"):
        authority.issue("edge-a", NOW)
    with pytest.raises(ConflictError, match="every certificate of the old one"):
        Authority.create(authority.folder, NOW)
    assert authority.cert.with_name("edge-a.crt").read_bytes() == first
    assert authority.issue("edge-a", NOW, force=True).cert.read_bytes() != first


@pytest.mark.parametrize("name", ["ca", "", "../a", "a/b", "-a"])
def test_names_that_are_no_names_are_refused(authority: Authority, name: str) -> None:
    with pytest.raises(InvalidError, match="cannot issue a certificate for"):
        authority.issue(name, NOW)


@pytest.mark.parametrize("host", ["https://a", "a:8081", "a b", "", "a..b", "x" * 300])
def test_hosts_that_are_none_are_refused(authority: Authority, host: str) -> None:
    with pytest.raises(InvalidError, match="without scheme and port"):
        authority.issue("edge-a", NOW, hosts=[host])


def test_without_an_authority_it_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="speck ca init"):
        Authority(tmp_path)


def test_a_key_that_others_may_read_signs_nothing(authority: Authority) -> None:
    (authority.folder / "ca.key").chmod(0o644)
    with pytest.raises(PermanentError, match="chmod 0600"):
        authority.issue("edge-a", NOW)


def test_a_certificate_does_not_outlive_its_authority(authority: Authority) -> None:
    later = NOW + timedelta(days=3600)
    assert authority.issue("edge-a", later).ends == NOW + timedelta(days=3650)


def test_the_list_begins_with_the_authority(authority: Authority) -> None:
    authority.issue("b", NOW, client=True)
    authority.issue("a", NOW)
    assert [(one.name, one.hosts) for one in authority.list()] == [
        ("ca", ()),
        ("a", ("a",)),
        ("b", ()),
    ]


def test_a_client_s_certificate_makes_no_server(authority: Authority) -> None:
    """Python checks it as Java and OpenSSL do."""
    authority.issue("site", NOW, hosts=["localhost"])
    authority.issue("cli", NOW, client=True)
    folder = authority.folder
    client = client_context(authority.cert, folder / "cli.crt", folder / "cli.key")
    site = server_context(folder / "site.crt", folder / "site.key", authority.cert)
    handshake(client, site, "localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(client, site, "elsewhere")
    impostor = server_context(folder / "cli.crt", folder / "cli.key")
    impostor_client = client_context(authority.cert)
    impostor_client.check_hostname = False
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        handshake(impostor_client, impostor, "localhost")


def test_an_authority_that_has_ended_issues_nothing(authority: Authority) -> None:
    later = NOW + timedelta(days=3652)
    with pytest.raises(PermanentError, match=r"the authority .* ended on .*ca init --force"):
        authority.issue("edge-a", later)
    assert not (authority.folder / "edge-a.key").exists()


def test_a_renewal_renews_the_keystore(authority: Authority) -> None:
    authority.issue("edge-a", NOW, keystore=True)
    renewed = authority.issue("edge-a", NOW, force=True)
    content = (authority.folder / "edge-a.p12").read_bytes()
    store = pkcs12.load_pkcs12(content, KEYSTORE_PASSWORD.encode())
    assert store.cert is not None
    assert store.cert.certificate == load_certificate(renewed.cert)


def test_keystores_hold_what_java_needs(authority: Authority) -> None:
    authority.issue("edge-a", NOW, keystore=True)
    password = KEYSTORE_PASSWORD.encode()
    store = pkcs12.load_pkcs12((authority.folder / "edge-a.p12").read_bytes(), password)
    assert store.key is not None
    assert store.cert is not None and len(store.additional_certs) == 1
    write_truststore(authority.folder / "few.p12", authority.folder / "edge-a.crt")
    trusted = pkcs12.load_pkcs12((authority.folder / "few.p12").read_bytes(), password)
    assert [one.certificate for one in trusted.additional_certs] == [store.cert.certificate]
