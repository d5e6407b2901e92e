"""Answers of an engine that are too large, too deep, too slow or not Flink's."""

from __future__ import annotations

import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binders.flink import engine as engine_module
from binders.flink.answers import MOST_EXCEPTIONS
from binders.flink.engine import FlinkEngine
from binders.flink.measuring import Measuring
from binders.flink.rest import LONGEST_ERROR, OF_LISTS, OF_SETTINGS, USUAL, FlinkRest, RefusedAnswer
from speck.binding import Target
from speck.errors import SpeckError, UnreachableError
from tests.unit.binders.fake_flink import JOB, Fake


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
