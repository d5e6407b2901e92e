"""The HTTP client and an encrypted service that asks for client certificates."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from speck.client import Client, NoServerError
from speck.errors import InvalidError, PermanentError
from speck.tls.authority import Authority
from speck.tls.contexts import ClientTls, server_context
from tests.serving import serving
from tests.unit.cli.conftest import Run


@dataclass(frozen=True)
class Encrypted:
    """A service at 127.0.0.1, for which its certificate is, and the files of a client of it."""

    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def tls(self) -> ClientTls:
        return ClientTls(self.ca, self.folder / "me.crt", self.folder / "me.key")


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    folder = tmp_path_factory.mktemp("ca")
    now = datetime.now(UTC)
    authority = Authority.create(folder, now)
    authority.issue("service", now, hosts=["127.0.0.1"])
    authority.issue("me", now, client=True)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"sites": []}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.handle_error = lambda *_: None  # type: ignore[method-assign]
    context = server_context(folder / "service.crt", folder / "service.key", authority.cert)
    listening.socket = context.wrap_socket(
        listening.socket, server_side=True, do_handshake_on_connect=False
    )
    with serving(listening):
        yield Encrypted(listening.server_port, folder)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_a_private_authority_and_a_certificate(encrypted: Encrypted) -> None:
    with Client(encrypted.url, tls=encrypted.tls) as client:
        assert client.sites() == []


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_the_environment_may_name_the_authority(
    encrypted: Encrypted, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, str(encrypted.ca))
    with Client(encrypted.url, tls=ClientTls(None, encrypted.tls.cert, encrypted.tls.key)) as one:
        assert one.sites() == []


def test_a_wrong_name_is_refused_with_the_right_ones(encrypted: Encrypted) -> None:
    wrong = encrypted.url.replace("127.0.0.1", "localhost")
    with Client(wrong, tls=encrypted.tls) as client, pytest.raises(NoServerError) as refusal:
        client.sites()
    assert "its certificate is not for localhost but for 127.0.0.1" in str(refusal.value)


def test_an_unknown_authority_is_refused(encrypted: Encrypted) -> None:
    with Client(encrypted.url) as client, pytest.raises(NoServerError) as refusal:
        client.sites()
    assert "the CA file must hold the authority" in str(refusal.value)
    assert "SPECK_CA" in str(refusal.value)


def test_without_a_certificate_nothing_is_answered(encrypted: Encrypted) -> None:
    with (
        Client(encrypted.url, tls=ClientTls(encrypted.ca)) as client,
        pytest.raises(NoServerError, match="cannot reach speck"),
    ):
        client.sites()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"cannot use the certificate authority .*/none"):
        Client("https://a", tls=ClientTls(tmp_path / "none"))
    with pytest.raises(InvalidError, match="add --cert"):
        Client("https://a", tls=ClientTls(key=tmp_path / "none"))
    with pytest.raises(InvalidError, match="it is not encrypted; write https"):
        Client("http://a", tls=ClientTls(tmp_path / "none"))


def test_the_cli_takes_options_and_the_environment(encrypted: Encrypted, alone: Run) -> None:
    files = {name: str(getattr(encrypted.tls, name)) for name in ("ca", "cert", "key")}
    options = [word for name, file in files.items() for word in (f"--{name}", file)]
    listed = alone(*options, "--server", encrypted.url, "site", "list", "-o", "json")
    assert listed.exit_code == 0, listed.stderr
    environment = {f"SPECK_{name.upper()}": file for name, file in files.items()}
    listed = alone("site", "list", SPECK_SERVER=encrypted.url, **environment)
    assert listed.exit_code == 0, listed.stderr
    plain = alone("site", "list", SPECK_SERVER="http://127.0.0.1:9", **environment)
    assert "cannot reach speck" in plain.stderr


def test_a_service_without_tls_is_named_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(1000)
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        with Client(url) as client, pytest.raises(NoServerError, match="write http://"):
            client.sites()
        listening.shutdown(socket.SHUT_RDWR)
