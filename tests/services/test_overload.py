"""Clients that are slow, silent or too many, against `speck serve` as a real process."""

from __future__ import annotations

import os
import re
import resource
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import requests

from bench.sample_spec import Spec
from bench.samples import generate
from speck.clock import SystemClock
from speck.service.tokens import Tokens
from speck.store.records import Records
from tests.certificates import Authority
from tests.server_process import PATIENCE_S, Server, serving, start
from tests.waiting import wait_for

PROMPT_S = 5.0
"""Within a second is promised; tests run beside others on a few cores."""

SITE = {
    "name": "edge-a",
    "tier": "edge",
    "spe": {"kind": "memory", "address": "http://edge-a:8081"},
    "broker": {"kind": "memory", "address": "tcp://edge-a:1883"},
}
STALLED_UPLOAD = (
    f"PUT /artifacts/{'a' * 64} HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n"
    "Authorization: Bearer {token}\r\n\r\n"
)
PIPELINE = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 20


class Service:
    """A service that requires tokens, with one site."""

    def __init__(self, server: Server, token: str):
        self.server = server
        self.token = token
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str) -> requests.Response:
        """Answered promptly, on a new connection like that of a health check."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return requests.get(self.server.url + path, headers=headers, timeout=PROMPT_S)

    def check_health(self) -> None:
        """What others conclude from: liveness, readiness, the heartbeat of an agent."""
        assert self.get("/livez").status_code == 200
        assert self.get("/readyz").status_code == 200
        beat = self.server.url + "/sites/edge-a/heartbeat"
        headers = {"Authorization": f"Bearer {self.token}"}
        assert requests.post(beat, headers=headers, timeout=PROMPT_S).status_code == 200

    def is_at_rest(self) -> bool:
        """Whether its worker uses hardly any CPU."""
        (worker,) = self.server.workers()
        return psutil.Process(worker).cpu_percent(0.5) < 20

    @contextmanager
    def crowd(self, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
        """So many connections, each of which has sent `first`."""
        address = urlsplit(self.server.url)
        with ExitStack() as stack:
            sockets = []
            for _ in range(count):
                connection = stack.enter_context(socket.socket())
                connection.settimeout(60)
                # so that the kernels hold little of an answer that is not read
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect((address.hostname, address.port))
                connection.sendall(first)
                sockets.append(connection)
            yield sockets


@contextmanager
def start_service(
    home: Path,
    prepare: Callable[[], None] | None = None,
    add: Callable[[], None] | None = None,
    **env: str,
) -> Iterator[Service]:
    """`prepare` is called in the server's process first, `add` before it starts."""
    clock = SystemClock()
    home.mkdir(parents=True)
    records = Records.open(home / "store", clock)
    token = Tokens(records, clock).add("root", "admin")
    records.store.close()
    if add is not None:
        add()
    with serving(home, prepare, **env) as server:
        service = Service(server, token)
        answer = service.session.post(f"{server.url}/sites", json=SITE, timeout=60)
        assert answer.status_code == 201
        yield service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with start_service(tmp_path_factory.mktemp("overload") / "home") as service:
        yield service


def fail_to_start(home: Path, **env: str) -> tuple[int, str]:
    """Exit status and words of a server that cannot start."""
    process, log = start(home, **env)
    return process.wait(PATIENCE_S), log.whole()


def read_answer(connection: socket.socket) -> bytes:
    """All that comes until the service closes the connection."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def readable(connections: list[socket.socket], count: int) -> list[socket.socket]:
    """Those to which something was sent, if they are `count` at least."""
    ready = select.select(connections, [], [], 0)[0]
    return ready if len(ready) >= count else []


def test_sockets_that_send_one_byte_hold_no_thread(service: Service) -> None:
    with service.crowd(64, b"G"):
        service.check_health()
        assert service.get("/sites").status_code == 200


def test_a_refused_body_is_not_waited_for(service: Service) -> None:
    upload = STALLED_UPLOAD.format(token="wrong").encode()
    with service.crowd(64, upload) as connections:
        for connection in connections:
            answer = read_answer(connection)  # ends, though the body never came
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert b"Connection: close" in answer
        service.check_health()


def test_a_client_that_asks_first_is_refused_before_it_sends_the_body(service: Service) -> None:
    head = STALLED_UPLOAD.replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n")
    with service.crowd(1, head.format(token="wrong").encode()) as (connection,):
        assert read_answer(connection).startswith(b"HTTP/1.1 401 ")
    with service.crowd(1, head.format(token=service.token).encode()) as (connection,):
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")


def test_only_a_few_uploads_may_be_slow_at_once(service: Service) -> None:
    upload = STALLED_UPLOAD.format(token=service.token).encode()
    with service.crowd(64, upload) as connections:
        service.check_health()
        assert service.get("/sites").status_code == 200
        ready = wait_for(lambda: readable(connections, 50))
        for connection in ready:
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After: " in answer


@pytest.mark.long
def test_answers_that_nobody_reads_hold_no_thread(service: Service) -> None:
    with service.crowd(64, PIPELINE):
        wait_for(service.is_at_rest)  # it has made all the answers that it can make
        service.check_health()
        assert service.get("/sites").status_code == 200


def test_pipelined_requests_are_answered_in_order(service: Service) -> None:
    pipeline = b"".join(
        b"GET /sites/none-%d HTTP/1.1\r\nHost: x\r\n%s\r\n"
        % (n, b"Connection: close\r\n" * (n == 9))
        for n in range(10)
    )
    with service.crowd(1, b"") as (connection,):
        for byte in range(0, len(pipeline), 7):
            connection.sendall(pipeline[byte : byte + 7])
        answers = read_answer(connection).decode()
    assert re.findall(r"none-(\d)", answers) == [str(n) for n in range(10)]


@pytest.mark.long
def test_slow_and_idle_connections_lock_nobody_out(service: Service) -> None:
    slow = b"GET /sites HTTP/1.1\r\nX-Slow: "
    with service.crowd(200, slow) as sockets, service.crowd(1000), service.crowd(100, PIPELINE):
        for _ in range(5):
            for connection in sockets[-50:]:
                with suppress(OSError):  # the oldest were closed for those that came later
                    connection.sendall(b"x")
            service.check_health()
            assert service.get("/sites").status_code == 200


EXPORT = b"GET /metrics/export?format=jsonl HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n"


@pytest.mark.long
def test_readers_of_long_exports_hold_no_thread_and_one_token_has_a_share(tmp_path: Path) -> None:
    def add_samples() -> None:
        start = datetime.now(UTC) - timedelta(hours=2)
        generate(tmp_path / "home" / "metrics", Spec(jobs=30, hours=1.0, start=start))

    with start_service(tmp_path / "home", add=add_samples) as service:
        with service.crowd(45) as connections:
            heads = []
            for connection in connections:
                connection.sendall(EXPORT % service.token.encode())
                heads.append(connection.recv(500))
                assert service.get("/sites").status_code == 200
            statuses = [head.split()[1] for head in heads]
            assert statuses == [b"200"] * 4 + [b"503"] * 41
            assert b"Retry-After: " in heads[-1]
            service.check_health()
        wait_for(lambda: service.get("/metrics/export").status_code == 200)


@pytest.mark.long
def test_running_out_of_descriptors_ends_nothing(tmp_path: Path) -> None:
    def lower_limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    with start_service(tmp_path / "home", lower_limit) as service:
        workers = service.server.workers()
        with service.crowd(600):
            service.check_health()
        service.check_health()
        assert service.server.workers() == workers
        assert "Traceback" not in service.server.log.read_text()


@pytest.mark.long
def test_the_soft_limit_of_descriptors_is_raised(tmp_path: Path) -> None:
    def lower_limit() -> None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))

    with start_service(tmp_path / "home", lower_limit) as service:
        (worker,) = service.server.workers()
        soft, hard = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    assert soft == min(hard, 65536)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("tls") / "ca")


def served_certificate(url: str, authority: Authority, own: tuple[Path, Path]) -> int:
    """Serial number of the certificate that the service presents now."""
    context = ssl.create_default_context(cafile=authority.cert)
    context.load_cert_chain(*own)
    address = urlsplit(url)
    with (
        socket.create_connection((address.hostname, address.port), 60) as plain,
        context.wrap_socket(plain, server_hostname=address.hostname) as secure,
    ):
        certificate = secure.getpeercert()
    assert certificate is not None
    return int(str(certificate["serialNumber"]), 16)


def test_tls_with_client_certificates_that_are_replaced(
    authority: Authority, tmp_path: Path
) -> None:
    cert, key = authority.issue("service", "IP:127.0.0.1")
    own = authority.issue("agent", "DNS:agent")
    stranger = Authority.create(tmp_path / "other").issue("stranger", "DNS:stranger")
    files = {"SPECK_TLS_CERT": str(cert), "SPECK_TLS_KEY": str(key)}
    home = tmp_path / "home"
    with serving(home, **files, SPECK_CLIENT_CA=str(authority.cert)) as server:
        assert server.url.startswith("https://")
        client = requests.Session()
        client.trust_env = False  # REQUESTS_CA_BUNDLE would go before `verify`
        client.verify, client.cert = str(authority.cert), tuple(map(str, own))
        assert client.get(f"{server.url}/readyz", timeout=60).json() == {"status": "ready"}
        assert client.post(f"{server.url}/sites", json=SITE, timeout=60).status_code == 201
        body = {"name": "x", "jobs": [], "labels": "x" * 300_000}
        assert client.post(f"{server.url}/compositions", json=body, timeout=60).status_code == 422
        assert len(client.get(f"{server.url}/openapi.json", timeout=60).content) > 50_000
        for wrong in (None, tuple(map(str, stranger))):
            with pytest.raises(requests.ConnectionError):
                requests.get(
                    f"{server.url}/livez", verify=str(authority.cert), cert=wrong, timeout=60
                )

        before = served_certificate(server.url, authority, own)
        key_text = key.read_text()
        key.write_text("no key\n")
        wait_for(lambda: "the previous files stay in use" in server.log.read_text())
        assert served_certificate(server.url, authority, own) == before
        key.write_text(key_text)
        new_cert, new_key = authority.issue("renewed", "IP:127.0.0.1")
        os.replace(new_key, key)
        os.replace(new_cert, cert)
        wait_for(lambda: served_certificate(server.url, authority, own) != before)
        assert client.get(f"{server.url}/sites", timeout=60).status_code == 200
        assert server.log.read_text().count("cannot use the certificate") <= 2
    assert "Traceback" not in server.log.read_text()


@pytest.mark.long
def test_tls_handshakes_that_never_end_lock_nobody_out(
    authority: Authority, tmp_path: Path
) -> None:
    cert, key = authority.issue("patient", "IP:127.0.0.1")
    files = {"SPECK_TLS_CERT": str(cert), "SPECK_TLS_KEY": str(key)}
    with serving(tmp_path / "home", **files) as server, ExitStack() as stack:
        address = urlsplit(server.url)
        for first in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"):
            for _ in range(50):
                connection = socket.create_connection((address.hostname, address.port), 60)
                stack.enter_context(connection).sendall(first)
        began = time.monotonic()
        answer = requests.get(f"{server.url}/livez", verify=str(authority.cert), timeout=PROMPT_S)
        assert answer.status_code == 200
        assert time.monotonic() - began < PROMPT_S


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"SPECK_TLS_CERT": "cert"}, "cannot serve TLS with --tls-cert alone: add --tls-key"),
        pytest.param(
            {"SPECK_TLS_KEY": "key"},
            "cannot serve TLS with --tls-key alone: add --tls-cert",
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"SPECK_CLIENT_CA": "cert"},
            "cannot ask clients for certificates without TLS",
            marks=pytest.mark.long,
        ),
        ({"SPECK_TLS_CERT": "cert", "SPECK_TLS_KEY": "none"}, "cannot use the certificate"),
    ],
)
def test_tls_settings_that_do_not_fit_are_one_clear_sentence(
    settings: dict[str, str], words: str, authority: Authority, tmp_path: Path
) -> None:
    cert, key = authority.issue("fitting", "IP:127.0.0.1")
    files = {"cert": str(cert), "key": str(key), "none": str(tmp_path / "none")}
    env = {name: files[file] for name, file in settings.items()}
    status, said = fail_to_start(tmp_path / "home", **env)
    assert status == 1
    assert said.startswith(words)
    assert said.count("\n") == 1
