"""Connections over a socket pair, with a clock that the test turns."""

from __future__ import annotations

import io
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from selectors import EVENT_WRITE
from threading import BoundedSemaphore

import pytest
from gunicorn.config import Config  # type: ignore[import-untyped]
from gunicorn.http.errors import (
    InvalidRequestLine,  # type: ignore[import-untyped]
    LimitRequestHeaders,  # type: ignore[import-untyped]
)
from gunicorn.http.wsgi import FileWrapper  # type: ignore[import-untyped]

from speck.api.server import minimum_rates
from speck.api.server.connection import (
    HEAD_S,
    HIGH_WATER,
    KEEPALIVE_S,
    LINGER_S,
    MAX_COLLECTED,
    MAX_HEAD,
    Connection,
    Stage,
)
from speck.api.server.minimum_rates import (
    BODY_BYTES,
    BODY_S,
    READ_CREDIT_S,
    READ_GRACE_S,
    READ_RATE,
    BodyRate,
    ReadingRate,
)
from speck.errors import InvalidError, TransientError

GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


def post(length: int, *headers: str) -> bytes:
    """The head of a request with a body."""
    lines = ["POST /jobs HTTP/1.1", "Host: x", f"Content-Length: {length}", *headers, "", ""]
    return "\r\n".join(lines).encode()


@dataclass
class Ends:
    """A connection, its client and the time."""

    connection: Connection
    client: socket.socket
    slots: BoundedSemaphore
    now: float = 100.0

    def send(self, data: bytes) -> Stage:
        """Send, and let the connection go on."""
        self.client.sendall(data)
        self.connection.advance()
        return self.connection.stage

    def receive(self) -> bytes:
        """What the client was sent."""
        return self.client.recv(1 << 20)

    @property
    def remaining(self) -> float:
        """Seconds until the deadline."""
        return self.connection.deadline - self.now


@pytest.fixture
def ends() -> Iterator[Ends]:
    with _connect(*socket.socketpair()) as pair:
        yield pair


@pytest.fixture
def tcp() -> Iterator[Ends]:
    """The same over TCP, where both kernels have much room, and the client's a little less."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)
        client.connect(listener.getsockname())
        server, _ = listener.accept()
    with _connect(server, client) as pair:
        yield pair


@contextmanager
def _connect(server: socket.socket, client: socket.socket) -> Iterator[Ends]:
    client.settimeout(60)
    slots = BoundedSemaphore(1)
    pair: list[Ends] = []
    connection = Connection(
        server,
        ("10.0.0.1", 1),
        ("10.0.0.2", 2),
        Config(),
        slots,
        clock=lambda: pair[0].now if pair else 100.0,
    )
    pair.append(Ends(connection, client, slots))
    yield pair[0]
    connection.close()
    client.close()


def test_a_request_is_there_once_its_head_is_complete(ends: Ends) -> None:
    for at in range(len(GET) - 1):
        assert ends.send(GET[at : at + 1]) is Stage.HEAD
    assert ends.send(GET[-1:]) is Stage.ANSWERING
    assert (ends.connection.request.method, ends.connection.request.path) == ("GET", "/livez")


def test_the_deadline_of_a_head_does_not_move_with_its_bytes(ends: Ends) -> None:
    assert ends.remaining == HEAD_S
    ends.now += HEAD_S - 1
    ends.send(b"GET")
    assert ends.remaining == 1


def test_a_kept_connection_waits_longer_until_the_first_byte(ends: Ends) -> None:
    ends.send(GET)
    ends.connection.sendall(b"answer")
    ends.connection.finish(keep=True)
    ends.connection.advance()
    assert ends.receive() == b"answer"
    assert (ends.connection.stage, ends.connection.idle) == (Stage.HEAD, True)
    assert ends.remaining == KEEPALIVE_S
    ends.now += 14
    ends.send(b"G")
    assert (ends.connection.idle, ends.remaining) == (False, HEAD_S)


def test_a_head_without_an_end_is_refused(ends: Ends) -> None:
    with pytest.raises(LimitRequestHeaders):
        ends.send(b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD)


def test_a_small_body_is_collected_before_a_thread_is_taken(ends: Ends) -> None:
    assert ends.send(post(10)) is Stage.BODY
    assert ends.send(b"12345") is Stage.BODY
    assert ends.send(b"67890" + GET) is Stage.ANSWERING
    assert ends.connection.request.body.read() == b"1234567890"
    ends.connection.finish(keep=True)
    ends.connection.advance()
    assert ends.connection.stage is Stage.ANSWERING, "the pipelined request is next"
    assert ends.connection.request.path == "/livez"


def test_a_body_that_the_application_does_not_read_is_skipped(ends: Ends) -> None:
    assert ends.send(post(10) + b"GET /wrong" + GET) is Stage.ANSWERING
    assert not ends.connection.request.should_close()
    ends.connection.finish(keep=True)
    ends.connection.advance()
    assert ends.connection.request.path == "/livez"


@pytest.mark.parametrize("memory", [True, False])
def test_a_thread_reads_what_is_too_large_to_collect(memory: bool, ends: Ends) -> None:
    ends.client.sendall(post(MAX_COLLECTED + 1 if memory else 10))
    ends.connection.advance(lambda size: memory)
    assert ends.connection.stage is Stage.ANSWERING


def test_a_request_whose_body_is_missing_ends_its_connection(ends: Ends) -> None:
    ends.send(post(MAX_COLLECTED + 1))
    assert ends.connection.request.should_close()
    ends.connection.sendall(b"no")
    ends.connection.finish(keep=True)
    ends.connection.advance()
    assert (ends.connection.stage, ends.remaining) == (Stage.CLOSING, LINGER_S)
    assert ends.receive() == b"no"
    assert ends.receive() == b"", "half-closed: the answer is complete"
    assert ends.send(b"x" * 1000) is Stage.CLOSING, "what still comes is thrown away"
    ends.client.shutdown(socket.SHUT_WR)
    ends.connection.advance()
    assert ends.connection.stage is Stage.CLOSED


def test_a_body_that_does_not_come_is_answered_even_so(ends: Ends) -> None:
    ends.send(post(10) + b"123")
    ends.connection.give_up_body()
    assert ends.connection.stage is Stage.ANSWERING
    with pytest.raises(InvalidError, match="bytes arrived within") as caught:
        ends.connection.request.body.read()
    assert caught.value.status == 408


def test_a_client_that_leaves_within_its_body_gets_an_answer(ends: Ends) -> None:
    ends.send(post(10) + b"123")
    ends.client.shutdown(socket.SHUT_WR)
    ends.connection.advance()
    assert ends.connection.stage is Stage.ANSWERING
    assert ends.connection.request.body.read() == b"123"


def test_a_slow_body_holds_a_slot_and_is_given_up(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends.send(post(MAX_COLLECTED + 1) + b"123")
    assert ends.connection.recv(3) == b"123"
    monkeypatch.setattr(minimum_rates, "BODY_S", 0.0)
    with pytest.raises(InvalidError, match="bytes arrived within"):
        ends.connection.recv(1)
    assert not ends.slots.acquire(blocking=False)
    ends.connection.finish(keep=True)
    assert ends.slots.acquire(blocking=False)


def test_a_steady_body_may_take_as_long_as_it_needs(ends: Ends) -> None:
    ends.send(post(MAX_COLLECTED + 1))
    for _ in range(10):
        ends.client.sendall(b"x" * BODY_BYTES)
        received = 0
        while received < BODY_BYTES:
            received += len(ends.connection.recv(BODY_BYTES - received))
        ends.now += BODY_S - 1


def test_a_slow_body_without_a_free_slot_is_refused(ends: Ends) -> None:
    ends.slots.acquire()
    ends.send(post(MAX_COLLECTED + 1))
    with pytest.raises(TransientError, match="too many arrive at once"):
        ends.connection.recv(1)


def test_a_body_is_asked_for_only_when_it_is_read(ends: Ends) -> None:
    assert ends.send(post(5, "Expect: 100-continue")) is Stage.ANSWERING
    reader = threading.Thread(target=lambda: bodies.append(ends.connection.request.body.read()))
    bodies: list[bytes] = []
    reader.start()
    assert ends.receive() == b"HTTP/1.1 100 Continue\r\n\r\n"
    ends.client.sendall(b"12345")
    reader.join(60)
    assert bodies == [b"12345"]


def test_what_the_client_does_not_read_is_left_to_the_loop(ends: Ends) -> None:
    ends.send(GET)
    answer = b"x" * 2 * HIGH_WATER
    ends.connection.sendall(answer)  # returns: the thread is free
    ends.connection.finish(keep=True)
    ends.connection.advance()
    assert (ends.connection.stage, ends.remaining) == (Stage.SENDING, READ_GRACE_S)
    read = b""
    while len(read) < len(answer):
        read += ends.receive()
        ends.connection.advance()
    assert ends.connection.stage is Stage.HEAD


def test_a_thread_waits_for_the_reader_of_a_long_answer_and_drops_it(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minimum_rates, "READ_GRACE_S", 0.0)
    ends.send(GET)
    ends.connection.sendall(b"x" * 3 * HIGH_WATER)
    with pytest.raises(TimeoutError):
        ends.connection.sendall(b"more")
    assert ends.connection.broken
    ends.connection.finish(keep=True)
    ends.connection.advance()
    ends.connection.close()


def test_a_rate_is_kept_by_steady_progress_only() -> None:
    rate = BodyRate(0.0)
    rate.count(BODY_BYTES, 1.0)
    assert rate.deadline == 1 + BODY_S
    rate.count(BODY_BYTES - 1, 2.0)
    assert rate.deadline == 1 + BODY_S, "what came is too little to begin anew"
    rate.count(1, 3.0)
    assert rate.deadline == 3 + BODY_S


def read_for(tcp: Ends, seconds: float, rate: float) -> int:
    """Let the client read at `rate` bytes a second, as long as the worker would let it."""
    tcp.client.setblocking(False)
    read, until, earned = 0, tcp.now + seconds, 0.0
    while tcp.now < until:
        tcp.now += 0.5
        earned += rate / 2
        with suppress(BlockingIOError):
            read += len(data := tcp.client.recv(int(earned)))
            earned -= len(data)
            if not data:
                break
        ready = select.select([], [tcp.connection], [], 0)[1]
        if ready and tcp.connection.stage is Stage.SENDING:
            tcp.connection.advance()
        if tcp.connection.deadline <= tcp.now and not tcp.connection.is_read():
            break
    return read


@pytest.mark.parametrize("rate", [1.25 * READ_RATE, 10_000, 100_000])
def test_a_reader_that_is_fast_enough_is_kept_however_much_the_kernels_hold(
    rate: float, tcp: Ends
) -> None:
    tcp.send(GET)
    tcp.connection.sendall(b"x" * 50_000_000)
    tcp.connection.finish(keep=True)
    tcp.connection.advance()
    began = tcp.now
    read_for(tcp, 400, rate)
    assert tcp.now - began == 400


@pytest.mark.parametrize("rate", [0, 1, READ_RATE / 8])
def test_a_reader_that_is_too_slow_is_given_up(rate: float, tcp: Ends) -> None:
    tcp.send(GET)
    tcp.connection.sendall(b"x" * 50_000_000)
    tcp.connection.finish(keep=True)
    tcp.connection.advance()
    began = tcp.now
    read_for(tcp, 1000, rate)
    assert tcp.now - began < READ_GRACE_S + READ_CREDIT_S + 200_000 / READ_RATE


def test_a_fast_reader_may_rest_for_a_limited_time() -> None:
    rate = ReadingRate(0.0, 0)
    assert rate.deadline == READ_GRACE_S
    rate.count(10 * READ_RATE, 5.0)
    assert rate.deadline == READ_GRACE_S + 10
    rate.count(1 << 40, 6.0)
    assert rate.deadline == 6 + READ_CREDIT_S
    rate.count(0, 7.0)
    assert rate.deadline == 6 + READ_CREDIT_S, "less can have been acknowledged when TLS adds bytes"


class Content(io.BytesIO):
    """A file that fails, or not, when a reader has read so much."""

    def __init__(self, content: bytes, fails_at: int | None = None):
        super().__init__(content)
        self.fails_at = fails_at

    def read(self, size: int | None = -1) -> bytes:
        if self.fails_at is not None and self.tell() >= self.fails_at:
            raise PermissionError("no more")
        return super().read(size)


def begin_file(ends: Ends, content: Content, keep: bool = True) -> None:
    ends.send(GET)
    ends.connection.sendall(b"head ")
    ends.connection.send_file(FileWrapper(content))
    ends.connection.finish(keep)
    ends.connection.advance()


def test_a_file_is_sent_by_the_loop_piece_by_piece_and_then_closed(ends: Ends) -> None:
    content = Content(b"x" * 5_000_000)
    begin_file(ends, content)
    read = b""
    while ends.connection.stage is Stage.SENDING:
        assert ends.connection.unsent <= 300_000, "the rest stays in the file"
        assert not content.closed
        read += ends.receive()
        ends.connection.advance()
    while len(read) < 5 + 5_000_000:
        read += ends.receive()
    assert read == b"head " + content_of(5_000_000)
    assert content.closed
    assert (ends.connection.stage, ends.connection.idle) == (Stage.HEAD, True)
    assert ends.send(GET) is Stage.ANSWERING, "another request may follow"


def content_of(size: int) -> bytes:
    return b"x" * size


def test_a_fast_reader_of_a_file_leaves_the_loop_time_for_others(tcp: Ends) -> None:
    content = Content(b"x" * 5_000_000)
    begin_file(tcp, content)
    assert content.tell() < 1_000_000, "one piece for each turn"
    assert tcp.connection.interest == EVENT_WRITE


def test_a_file_whose_reader_leaves_or_may_have_no_more_is_closed(ends: Ends) -> None:
    content = Content(b"x" * 5_000_000, fails_at=1)
    with pytest.raises(PermissionError):
        begin_file(ends, content)
        while True:
            ends.receive()
            ends.connection.advance()
    ends.connection.close()
    assert content.closed


def test_tls_on_a_plain_port_is_refused_at_once(ends: Ends) -> None:
    """Its client waits for an answer in TLS, and would for as long as a head may take."""
    hello = b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + bytes(100)
    with pytest.raises(InvalidRequestLine, match="TLS on a port without TLS"):
        ends.send(hello)
