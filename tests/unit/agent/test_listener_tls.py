"""Certificates in files: what is trusted, what is refused, and what happens when they change."""

from __future__ import annotations

import http.client
import shutil
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from speck.agent.folder import StateFolder
from speck.agent.inbox import Inbox
from speck.agent.listener import Listener
from speck.agent.web import Caller
from speck.errors import PermanentError, UnreachableError
from speck.tls.contexts import TlsFiles, client_context, server_context
from tests.certificates import Authority

Listen = Callable[..., Listener]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("tls") / "fog")


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Listen]:
    started = []

    def start(cert: Path, key: Path, client_ca: Path | None = None) -> Listener:
        tls = TlsFiles.of_server(cert, key, client_ca)
        listener = Listener("127.0.0.1", 0, Inbox(StateFolder(tmp_path)), tls)
        started.append(listener)
        return listener

    yield start
    for listener in started:
        listener.close()


def put(listener: Listener, tls: TlsFiles, host: str = "127.0.0.1") -> int:
    """The status of a piece that belongs to no transfer: 403 when the listener was reached."""
    caller = Caller(f"https://{host}:{listener.port}", lambda: "secret", tls)
    try:
        return caller.call("PUT", "/transfers/t?offset=0&total=1", b"x", timeout_s=30)[0]
    finally:
        caller.close()


def test_a_server_is_reached_under_a_name_of_its_certificate(
    authority: Authority, listen: Listen
) -> None:
    listener = listen(*authority.issue("good", "IP:127.0.0.1"))
    assert put(listener, TlsFiles.of_client(authority.cert)) == 403


def test_another_name_and_another_authority_are_refused(
    authority: Authority, listen: Listen, tmp_path: Path
) -> None:
    listener = listen(*authority.issue("elsewhere", "DNS:edge-b.example", "IP:127.0.0.9"))
    with pytest.raises(UnreachableError, match=r"cannot trust https://127.0.0.1:\d+: IP address"):
        put(listener, TlsFiles.of_client(authority.cert))
    stranger = Authority.create(tmp_path / "stranger")
    for tls in (TlsFiles.of_client(stranger.cert), TlsFiles.of_client()):
        with pytest.raises(UnreachableError, match="give --ca with the authority"):
            put(listener, tls)


def test_a_client_without_a_certificate_of_the_authority_is_refused(
    authority: Authority, listen: Listen, tmp_path: Path
) -> None:
    listener = listen(*authority.issue("mutual", "IP:127.0.0.1"), authority.cert)
    own = authority.issue("edge-a", "DNS:edge-a")
    assert put(listener, TlsFiles.of_client(authority.cert, *own)) == 403
    foreign = Authority.create(tmp_path / "stranger").issue("edge-a", "DNS:edge-a")
    for tls in (
        TlsFiles.of_client(authority.cert),
        TlsFiles.of_client(authority.cert, *foreign),
    ):
        with pytest.raises(UnreachableError):
            put(listener, tls)


def test_plain_http_is_not_answered(authority: Authority, listen: Listen) -> None:
    listener = listen(*authority.issue("plain", "IP:127.0.0.1"))
    connection = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=30)
    with pytest.raises((OSError, http.client.HTTPException)):
        connection.request("PUT", "/transfers/t")
        connection.getresponse()


def test_old_versions_of_tls_are_off(authority: Authority) -> None:
    contexts = [server_context(*authority.issue("old", "DNS:x")), client_context(authority.cert)]
    for context in contexts:
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert contexts[1].check_hostname
    assert contexts[1].verify_mode is ssl.CERT_REQUIRED


def test_new_files_are_used_without_a_restart(
    authority: Authority, listen: Listen, tmp_path: Path
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def install(files: tuple[Path, Path]) -> None:
        for source, target in zip(files, (cert, key), strict=True):
            shutil.copy(source, target.with_suffix(".new"))
            target.with_suffix(".new").rename(target)

    install(authority.issue("first", "DNS:elsewhere"))
    listener = listen(cert, key)
    tls = TlsFiles.of_client(authority.cert)
    with pytest.raises(UnreachableError, match="cannot trust"):
        put(listener, tls)
    install(authority.issue("second", "IP:127.0.0.1"))
    assert put(listener, tls) == 403
    cert.write_text("half of a certificate")
    assert put(listener, tls) == 403, "the last good one stays"
    key.unlink()
    assert put(listener, tls) == 403


def test_files_that_do_not_fit_are_refused_at_the_start(
    authority: Authority, tmp_path: Path
) -> None:
    (cert, _), (_, key) = authority.issue("one", "DNS:x"), authority.issue("other", "DNS:x")
    with pytest.raises(PermanentError, match=r"cannot use the certificate .* give PEM files"):
        TlsFiles.of_server(cert, key)
    with pytest.raises(PermanentError, match=r"cannot use the certificate authority .* No such"):
        TlsFiles.of_client(tmp_path / "missing.pem")
