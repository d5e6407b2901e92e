"""What the binder asks of Flink's REST API, and what it makes of the answers."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from binders.flink.engine import FlinkEngine
from binders.flink.rest import FlinkRest, RefusedAnswer
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
from tests.unit.binders.fake_flink import JOB, Fake

SHA = "0" * 64


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
