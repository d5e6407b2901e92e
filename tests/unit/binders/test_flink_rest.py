"""The REST client against a server that misbehaves; no Flink."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binders.flink import engine as engine_module
from binders.flink.answers import MOST_EXCEPTIONS
from binders.flink.engine import FlinkEngine
from binders.flink.measuring import Measuring
from binders.flink.rest import (
    LONGEST_ERROR,
    OF_LISTS,
    OF_SETTINGS,
    USUAL,
    FlinkRest,
    RefusedAnswer,
)
from speck.binding import Artifact, Submission, Target
from speck.errors import (
    EngineRefusedError,
    MainTimeoutError,
    SpeckError,
    TransientError,
    UnreachableError,
)
from speck.model.engines import ArtifactKind
from speck.model.observation import RunState

JOB = "a" * 32
SHA = "0" * 64


class Fake(ThreadingHTTPServer):
    """Answers by path; keeps its requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, tuple[int, str | bytes, dict[str, str]]] = {}
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.silent: set[str] = set()
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def say(self, path: str, body: Any, status: int = 200, **headers: str) -> None:
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        self.answers[path] = (status, text, headers)

    def bodies(self, path: str) -> list[bytes]:
        return [body for line, _, body in self.requests if line.partition(" ")[2] == path]


class Handler(BaseHTTPRequestHandler):
    server: Fake
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else an answer's body waits 40 ms for the head's ACK

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        self.server.requests.append((f"{self.command} {self.path}", dict(self.headers), body))
        if self.path in self.server.silent:
            self.server.over.wait()
        unknown = (404, "<html>never heard of it</html>", {})
        status, text, headers = self.server.answers.get(self.path.partition("?")[0], unknown)
        content = text.encode() if isinstance(text, str) else text
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def fake() -> Iterator[Fake]:
    server = Fake()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def engine(fake: Fake) -> Iterator[FlinkEngine]:
    engine = FlinkEngine(Target(fake.url, timeout_s=5.0))
    yield engine
    engine.close()


@contextmanager
def silent() -> Iterator[str]:
    """An address that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_silence_is_unreachable_not_for_ever() -> None:
    with silent() as address, pytest.raises(UnreachableError) as error:
        FlinkEngine(Target(address, timeout_s=0.2)).view()
    assert str(error.value) == f"cannot reach the engine at {address}: no answer in time"


def test_a_main_that_does_not_return_is_no_fault_of_the_engine_s_address(
    fake: Fake, tmp_path: Path
) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"a jar")
    fake.say("/jars", {"files": [{"id": f"x_{SHA}.jar", "name": f"{SHA}.jar", "uploaded": 1}]})
    fake.say("/overview", {})
    fake.say("/jobs/overview", {"jobs": []})
    fake.silent = {f"/jars/x_{SHA}.jar/{verb}" for verb in ("plan", "run")}
    engine = FlinkEngine(Target(fake.url, main_timeout_s=0.2))
    desired = Submission(JOB, "A", Artifact(SHA, jar, ArtifactKind.JAR), "a.B", ())
    for call in (engine.try_main, engine.submit):
        with pytest.raises(MainTimeoutError, match=r"^cannot run main of A: .* within 0\.2 s"):
            call(desired)
    fake.answers.pop("/overview")
    with pytest.raises(UnreachableError):
        engine.try_main(desired)


def test_nobody_there_is_unreachable_with_the_plain_reason() -> None:
    with pytest.raises(UnreachableError) as error:
        FlinkEngine(Target("http://127.0.0.1:1")).view()
    assert str(error.value) == ("cannot reach the engine at http://127.0.0.1:1: Connection refused")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(fake: Fake, engine: FlinkEngine, status: int) -> None:
    fake.say("/elsewhere", {"jobs": []})
    fake.say(f"/jobs/{JOB}", "", status, Location="/elsewhere")
    with pytest.raises(UnreachableError, match=f"HTTP {status} is no answer of Flink's"):
        engine.status(JOB)
    assert not fake.bodies("/elsewhere")


def test_proxies_of_the_environment_are_not_used(
    fake: Fake, engine: FlinkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    fake.say(f"/jobs/{JOB}", {"jid": JOB, "name": "A", "state": "RUNNING", "vertices": []})
    assert engine.status(JOB) is RunState.STARTING


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, "<html>no such page</html>"),
        (404, {"errors": ["Unable to load requested file /jobs/x."]}),
        (404, {"message": "no route"}),
        (502, "bad gateway"),
        (200, "<html>log in first</html>"),
        (200, {"jobs": []}),
        (200, []),
    ],
)
def test_only_flinks_word_makes_a_job_unknown(
    fake: Fake, engine: FlinkEngine, status: int, body: Any
) -> None:
    fake.say(f"/jobs/{JOB}", body, status)
    with pytest.raises((UnreachableError, EngineRefusedError), match=r"^cannot "):
        engine.status(JOB)
    message = f"org.apache.flink.runtime.rest.NotFoundException: Job {JOB} not found"
    fake.say(f"/jobs/{JOB}", {"errors": [message]}, 404)
    assert engine.status(JOB) is None


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/overview", OF_SETTINGS.bytes),
        ("/jobmanager/config", OF_SETTINGS.bytes),
        (f"/jobs/{JOB}/checkpoints/config", OF_SETTINGS.bytes),
        ("/jobs/overview", OF_LISTS.bytes),
        (f"/jobs/{JOB}/metrics", OF_LISTS.bytes),
        (f"/jobs/{JOB}/vertices/a/metrics", OF_LISTS.bytes),
        (f"/jobs/{JOB}/exceptions", USUAL.bytes),
    ],
)
def test_an_answer_is_read_up_to_a_number_of_bytes_of_its_kind(
    fake: Fake, path: str, most: int
) -> None:
    rest = FlinkRest(fake.url)
    fake.say(path, b'"' + b"x" * (most - 2) + b'"')
    assert len(rest.get(path)) == most - 2
    fake.say(path, b'"' + b"x" * (most - 1) + b'"')
    with pytest.raises(UnreachableError, match=f"its answer exceeds {most} bytes"):
        rest.get(path)
    with pytest.raises(UnreachableError, match=f"its answer exceeds {most} bytes"):
        rest.get_both("/jars", path)


SMALL_VALUES: dict[str, bytes] = {
    "objects": b"{}",
    "objects with a key": b'{"a":1}',
    "lists": b"[]",
    "nested lists": b"[[[[[[[[[[]]]]]]]]]]",
    "numbers": b"1",
    "texts": b'""',
    "texts of signs": b'"{[,:"',
    "escaped quotes": rb'"\\\"",""',
    "objects of many keys": b'{"a":1,"b":2,"c":3}',
}


@pytest.mark.parametrize("value", SMALL_VALUES.values(), ids=SMALL_VALUES)
@pytest.mark.parametrize("path", ["/jobs/overview", f"/jobs/{JOB}/checkpoints"])
def test_values_are_counted_before_they_take_memory(fake: Fake, path: str, value: bytes) -> None:
    size = OF_LISTS.bytes - 10
    answer = b"[" + b",".join([value] * (size // (len(value) + 1))) + b"]"
    fake.say(path, answer)
    tracemalloc.start()
    try:
        with pytest.raises(UnreachableError, match=r"is no answer of Flink's \(it has more than"):
            FlinkRest(fake.url).get(path)
        assert tracemalloc.get_traced_memory()[1] < 6 * OF_LISTS.bytes
    finally:
        tracemalloc.stop()


def test_many_keys_of_one_object_are_counted(fake: Fake) -> None:
    answer = b"{" + b",".join(b'"%d":0' % n for n in range(OF_LISTS.values // 2 + 1)) + b"}"
    fake.say("/jobs/overview", answer)
    with pytest.raises(UnreachableError, match=f"more than {OF_LISTS.values} values"):
        FlinkRest(fake.url).get("/jobs/overview")


def test_ten_thousand_jobs_are_listed(fake: Fake) -> None:
    kinds = ("created", "scheduled", "deploying", "running", "finished", "canceling", "canceled")
    tasks = dict.fromkeys([*kinds, "failed", "reconciling", "initializing", "total"], 0)
    times = {"start-time": 1795674355349, "end-time": -1, "duration": 1234567}
    job = {"name": "a-job-of-a-fleet", "state": "RUNNING", "tasks": tasks, **times}
    jobs = [{"jid": f"{n:032x}", **job, "last-modification": 17} for n in range(9_000)]
    fake.say("/jobs/overview", json.dumps({"jobs": jobs}, separators=(",", ":")))
    assert len(FlinkEngine(Target(fake.url)).jobs()) == 9_000


@pytest.mark.parametrize(
    "errors",
    [
        ["x" * 4_000_000],
        ["a.b.CError: a\n" + "line\n" * 500_000],
        ["Caused by: a.b.CError: x\n" * 150_000],
        ["\n".join(f"Caused by: a.b.C{n}: x" for n in range(100_000))],
        ["x"] * 40_000,
        [[["x"] * 40_000]],
    ],
)
def test_a_long_error_is_cut_before_it_is_looked_at(fake: Fake, errors: list[Any]) -> None:
    fake.say(f"/jobs/{JOB}/stop", {"errors": errors}, 400)
    before = time.process_time()
    with pytest.raises(RefusedAnswer) as refused:
        FlinkRest(fake.url).post(f"/jobs/{JOB}/stop", {})
    assert len(refused.value.refusal.text) <= LONGEST_ERROR + 1
    error = refused.value.refusal.error("stop it")
    assert len(str(error)) < 1_000
    assert time.process_time() - before < 2.0


def test_the_reason_at_the_end_of_a_long_error_is_kept(fake: Fake) -> None:
    trace = "a.Outer: first\n" + "\tat a.b.C\n" * 50_000 + "Caused by: a.Inner: the reason\n"
    fake.say(f"/jobs/{JOB}/stop", {"errors": [trace]}, 500)
    with pytest.raises(RefusedAnswer) as refused:
        FlinkRest(fake.url).post(f"/jobs/{JOB}/stop", {})
    assert str(refused.value.refusal.error("stop it")) == "cannot stop it: Inner: the reason"


@pytest.mark.parametrize("trace", ["x" * 4_000_000, "a.b.C: a\n" + "line\n" * 500_000])
def test_failures_of_a_hostile_engine_take_little_time(
    fake: Fake, engine: FlinkEngine, trace: str
) -> None:
    entry = {"timestamp": 1, "exceptionName": "a.b.C", "stacktrace": trace}
    fake.say(f"/jobs/{JOB}/exceptions", {"exceptionHistory": {"entries": [entry]}})
    before = time.process_time()
    (failure,) = engine.exceptions(JOB)
    assert len(failure.reason) <= 400
    short = {**entry, "stacktrace": "a.b.C: x"}
    fake.say(f"/jobs/{JOB}/exceptions", {"exceptionHistory": {"entries": [short] * 1_000}})
    assert len(engine.exceptions(JOB)) == MOST_EXCEPTIONS
    assert time.process_time() - before < 2.0


@contextmanager
def dripping(head: bytes, drop: bytes, every_s: float) -> Iterator[str]:
    """A server that sends `head` at once, and then `drop` again and again; its address."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while not over.is_set():
                    sock, _ = listener.accept()
                    with sock, suppress(OSError):
                        sock.recv(65536)
                        sock.sendall(head)
                        while not over.wait(every_s):
                            sock.sendall(drop)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n"),
        (b"", b"H"),
    ],
    ids=["body", "chunks", "header", "headers", "status"],
)
def test_an_answer_that_drips_ends_with_the_time_limit(head: bytes, drop: bytes) -> None:
    """Each byte comes in time; all of them would take hours (attack S7)."""
    with dripping(head, drop, 0.02) as url, pytest.raises(UnreachableError):
        FlinkRest(url, timeout_s=0.3).get("/overview")


def test_a_server_of_another_kind_is_named_in_one_line() -> None:
    banner = b"SSH-2.0-OpenSSH_9.2\r\n"
    with dripping(banner, b"", 0.02) as url, pytest.raises(UnreachableError) as error:
        FlinkRest(url, timeout_s=5).get("/overview")
    assert str(error.value).endswith(
        ": it does not speak HTTP ('SSH-2.0-OpenSSH_9.2'); check the site's address"
    )


def test_a_check_has_one_time_limit_for_all_its_requests(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "CHECK_S", 0.3)
    engine = FlinkEngine(Target(fake.url, timeout_s=3600))
    fake.say("/overview", {"flink-version": "2", "slots-total": 1, "slots-available": 1})
    fake.say("/jobs/overview", {"jobs": []})
    fake.silent.add("/jobmanager/config")
    with pytest.raises(UnreachableError, match="no answer in time"):
        engine.check()
    fake.over.set()
    fake.silent.clear()
    assert engine.view().jobs == {}, "the limit was that of the check alone"


@pytest.mark.parametrize(
    ("innermost", "levels"),
    [("1", 0), ("[]", 1), ("{}", 1), ('{"a": {}}', 2), ('{"a": [{}, {}, {}]}', 3)],
)
def test_levels_are_counted_whatever_they_are_of(fake: Fake, innermost: str, levels: int) -> None:
    outer = 64 - levels
    fake.say("/overview", f"{'[' * outer}{innermost}{']' * outer}")
    assert FlinkRest(fake.url).get("/overview")
    fake.say("/overview", f"{'[' * (outer + 1)}{innermost}{']' * (outer + 1)}")
    with pytest.raises(UnreachableError, match="no answer of Flink's"):
        FlinkRest(fake.url).get("/overview")


def test_an_answer_may_be_wide(fake: Fake) -> None:
    fake.say("/overview", [{"id": n, "tasks": {"running": [n]}} for n in range(1000)])
    assert len(FlinkRest(fake.url).get("/overview")) == 1000


def test_brackets_in_a_text_hide_no_levels(fake: Fake) -> None:
    text = r'"\\\"' + "]" * 2000 + '"'
    fake.say("/overview", '{"x": ' + text + ', "y": ' + "[" * 1000 + "]" * 1000 + "}")
    with pytest.raises(UnreachableError, match="is no answer of Flink's"):
        FlinkRest(fake.url).get("/overview")
    fake.say("/overview", '{"x": ' + text + "}")
    assert FlinkRest(fake.url).get("/overview") == {"x": '\\"' + "]" * 2000}


@pytest.mark.parametrize("levels", [65, 100_000])
def test_an_answer_of_many_levels_is_no_answer_of_flinks(fake: Fake, levels: int) -> None:
    fake.say("/overview", "[" * levels + "]" * levels)
    with pytest.raises(UnreachableError, match="no answer of Flink's"):
        FlinkRest(fake.url).get("/overview")
    fake.say("/overview", "[" * 64 + "]" * 64)
    assert FlinkRest(fake.url).get("/overview")


KEYS = (
    *("jobs", "tasks", "state", "jid", "name", "running", "finished", "total", "slots-total"),
    *("slots-available", "flink-version", "vertices", "status", "id", "history", "latest"),
    *("completed", "restored", "counts", "exceptionHistory", "entries", "timestamp", "plan"),
    *("status-counts", "RUNNING", "FINISHED", "parallelism", "now", "external_path", "files"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=12,
)
CALLS: tuple[Callable[[FlinkEngine], object], ...] = (
    lambda engine: engine.view(),
    lambda engine: engine.jobs(),
    lambda engine: engine.status(JOB),
    lambda engine: engine.newest_state(JOB),
    lambda engine: engine.checkpointing(JOB),
    lambda engine: engine.exceptions(JOB),
    lambda engine: engine.save_progress(JOB, "b" * 32),
    lambda engine: engine.metrics(JOB),
    lambda engine: engine.measure([JOB]),
    lambda engine: engine.check(),
    lambda engine: engine.job_plan(JOB),
    lambda engine: engine.state_folder(),
)


class AnyAnswer:
    """A REST client whose engine answers with whatever a test draws."""

    address = "http://flink.test"

    def __init__(self, draw: Callable[[], object]):
        self._draw = draw

    def get(self, *_: object, **__: object) -> object:
        return self._draw()

    post = patch = delete = find = get

    def within(self, _: float) -> AbstractContextManager[None]:
        return nullcontext()


@given(data=st.data(), call=st.sampled_from(CALLS))
def test_whatever_an_engine_answers_is_read_or_an_error_of_the_site(
    data: st.DataObject, call: Callable[[FlinkEngine], object]
) -> None:
    engine = FlinkEngine(Target("http://flink.test"))
    rest = AnyAnswer(lambda: data.draw(JSON))
    engine._rest = rest  # type: ignore[assignment]
    engine._measuring = Measuring(rest)  # type: ignore[arg-type]
    with suppress(SpeckError):
        call(engine)


def test_flinks_own_errors_come_with_their_text(fake: Fake) -> None:
    fake.say("/overview", {"errors": ["Internal server error.", "<Exception: why>"]}, 500)
    with pytest.raises(RefusedAnswer) as error:
        FlinkRest(fake.url).get("/overview")
    assert (error.value.refusal.status, error.value.refusal.text) == (500, "<Exception: why>")


def test_an_upload_is_one_file_part_with_its_length_told(fake: Fake, tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(bytes(range(256)) * 3000)
    fake.say("/jars/upload", {"filename": f"/u/1_{SHA}.jar"})
    FlinkRest(fake.url).upload("/jars/upload", jar, f"{SHA}.jar", timeout_s=5.0)
    [(_, headers, body)] = fake.requests
    assert "Transfer-Encoding" not in headers
    assert int(headers["Content-Length"]) == len(body)
    boundary = headers["Content-Type"].partition("boundary=")[2].encode()
    nothing, part, end = body.split(b"--" + boundary)
    head, _, content = part.partition(b"\r\n\r\n")
    assert (nothing, end, content.removesuffix(b"\r\n")) == (b"", b"--\r\n", jar.read_bytes())
    assert f'filename="{SHA}.jar"'.encode() in head


def submission(jar: Path, savepoint: str | None = None) -> Submission:
    return Submission(
        JOB, "A", Artifact(SHA, jar, ArtifactKind.JAR), "a.B", ("--x", "y z"), 2, savepoint
    )


def test_submit_sends_what_flink_reads_and_nothing_else(
    fake: Fake, engine: FlinkEngine, tmp_path: Path
) -> None:
    fake.say("/jars", {"files": [{"id": f"1_{SHA}.jar", "name": f"{SHA}.jar", "uploaded": 1}]})
    fake.say(f"/jars/1_{SHA}.jar/run", {"jobid": JOB})
    engine.submit(submission(tmp_path / "not-needed.jar"))
    engine.submit(submission(tmp_path / "not-needed.jar", "file:/s/1"))
    plain, restored = (json.loads(body) for body in fake.bodies(f"/jars/1_{SHA}.jar/run"))
    assert plain == {
        "entryClass": "a.B",
        "programArgsList": ["--x", "y z"],
        "parallelism": 2,
        "jobId": JOB,
        "allowNonRestoredState": False,
    }
    assert restored == plain | {"savepointPath": "file:/s/1", "claimMode": "NO_CLAIM"}
    assert len(fake.bodies("/jars")) == 1, "listing opens every jar: once is enough"


def test_a_stop_never_drains(fake: Fake, engine: FlinkEngine) -> None:
    fake.say(f"/jobs/{JOB}/stop", {"request-id": "1"}, 202)
    engine.stop(JOB, "file:/s", "1" * 32)
    engine.stop(JOB, None, "1" * 32)
    first, second = (json.loads(body) for body in fake.bodies(f"/jobs/{JOB}/stop"))
    assert second == {"triggerId": "1" * 32, "formatType": "CANONICAL", "drain": False}
    assert first == second | {"targetDirectory": "file:/s"}


def test_a_view_takes_two_requests(fake: Fake, engine: FlinkEngine) -> None:
    fake.say("/overview", {"slots-total": 1, "slots-available": 1, "flink-version": "2.3.0"})
    fake.say("/jobs/overview", {"jobs": []})
    assert engine.view().version == "2.3.0"
    assert sorted(line for line, _, _ in fake.requests) == ["GET /jobs/overview", "GET /overview"]


def test_a_cache_that_outlasts_the_time_limit_leaves_the_newest_state_open(
    fake: Fake, engine: FlinkEngine
) -> None:
    fake.say(f"/jobs/{JOB}", {"now": 10_000})
    fake.say("/jobs/overview", {"jobs": [{"jid": JOB, "end-time": 9_000}]})
    fake.say("/jobmanager/config", [{"key": "web.refresh-interval", "value": "61 s"}])
    with pytest.raises(TransientError, match=r"may answer from its cache for 60 s more"):
        engine.newest_state(JOB)
    assert not fake.bodies(f"/jobs/{JOB}/checkpoints")


@pytest.mark.parametrize(
    ("ended", "discarded", "error"),
    [
        (-1, True, TransientError),
        (9_000, True, EngineRefusedError),
        (-1, False, EngineRefusedError),
    ],
)
def test_what_a_cache_lists_of_a_running_job_may_be_gone_without_its_state_being_gone(
    fake: Fake, engine: FlinkEngine, ended: int, discarded: bool, error: type[SpeckError]
) -> None:
    fake.say(f"/jobs/{JOB}", {"now": 10_000})
    fake.say("/jobs/overview", {"jobs": [{"jid": JOB, "end-time": ended}]})
    fake.say("/jobmanager/config", [{"key": "web.refresh-interval", "value": "1 ms"}])
    path = "file:/c/7" if discarded else "<checkpoint-not-externally-addressable>"
    checkpoint_entry = {
        "id": 7,
        "status": "COMPLETED",
        "external_path": path,
        "discarded": discarded,
    }
    answer = {
        "latest": {"completed": checkpoint_entry},
        "history": [checkpoint_entry],
        "counts": {"completed": 1},
    }
    fake.say(f"/jobs/{JOB}/checkpoints", answer)
    with pytest.raises(error, match="every checkpoint that it completed was discarded"):
        engine.newest_state(JOB)


def test_a_wide_jobs_metrics_are_asked_for_in_several_requests(
    fake: Fake, engine: FlinkEngine
) -> None:
    path = f"/jobs/{JOB}/vertices/v/metrics"
    fake.say(f"/jobs/{JOB}", {"vertices": [{"id": "v"}]})
    metrics = [{"id": f"{n}.{'op' * 40}.numRecordsOut", "value": "1"} for n in range(200)]
    fake.say(path, metrics)
    engine.metrics(JOB)
    lines = [line for line, _, _ in fake.requests if "?get=" in line]
    names = [name for line in lines for name in re.split("=|%2C", line)[1:]]
    assert sorted(names) == sorted(each["id"] for each in metrics)
    assert max(map(len, lines)) < 4096
