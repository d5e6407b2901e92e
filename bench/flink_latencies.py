"""How long a real Flink takes to answer, so that simulated ones can take as long.

One Flink of the fog with ten jobs, over its bare REST API, each kind of request many times: looks
one after another on one connection, as speck's looks come; plans, starts, stops and cancels ten at
a time, as a change sends them to a site. The times include loopback.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from requests_toolbelt.multipart.encoder import MultipartEncoder

from bench.simulated_answers import RECORDED
from binders.flink.measuring import _JOB, _WORKER
from speck.fog.paths import edge_jar
from speck.fog.site_record import SiteRecord
from speck.fog.sites import Fog

JOBS = 10
CLASS = "io.speck.jobs.PassThrough"
_ASKED = tuple(f"0.{name}" for name in RECORDED["metrics"])[:25]
_OVER = ("FINISHED", "CANCELED", "FAILED")
MOST_S = 180.0
"""That ten jobs may take to start, to stop or to end: beyond, something hangs."""


def measure(looks: int, interval_s: float) -> dict[str, list[float]]:
    """Kind -> seconds, sorted; `looks` samples of each kind of poll, `JOBS` or twice as many of
    others."""
    with tempfile.TemporaryDirectory(prefix="speck-bench-") as folder:
        fog = Fog(Path(folder) / "fog")
        try:
            fog.up(edges=1, clouds=0, slots=JOBS, checkpoint_interval_s=interval_s)
            latencies = _Measuring(fog.sites()[0]).all(looks)
        finally:
            fog.down()
    return {kind: sorted(round(s, 6) for s in seconds) for kind, seconds in latencies.items()}


class _Measuring:
    def __init__(self, site: SiteRecord):
        self.site = site
        host, _, port = site.engine_address.rpartition("//")[2].rstrip("/").partition(":")
        self._at = host, int(port)
        self.latencies: dict[str, list[float]] = {}

    def all(self, looks: int) -> dict[str, list[float]]:
        """Two rounds: start, poll, stop with savepoint; start, cancel."""
        with self._connected() as one:
            for _ in range(JOBS):
                jar = self._upload(one)
            self._begin(jar)
            first = self._begin_and_await(one, jar)
            self._look(one, first, looks)
            self._stop(first)
            second = self._begin_and_await(one, jar)
            self._cancel(one, second)
        return self.latencies

    # -- parts ----------------------------------------------------------------------------

    def _begin(self, jar: str) -> None:
        """Try `main` ten times at once."""

        def plan(n: int) -> None:
            with self._connected() as one:
                self._timed("plan", one, "POST", f"/jars/{jar}/plan", _body(self.site, n))

        _at_once(plan)

    def _begin_and_await(self, one: http.client.HTTPConnection, jar: str) -> list[str]:
        def run(n: int) -> tuple[str, float]:
            with self._connected() as mine:
                body = _body(self.site, n)
                self._timed("run", mine, "POST", f"/jars/{jar}/run", body)
                return body["jobId"], time.perf_counter()

        answered = dict(_at_once(run))
        waiting = set(answered)
        until = time.monotonic() + MOST_S
        while waiting:
            _in_time(until, f"{len(waiting)} jobs start")
            for job in _call(one, "GET", "/jobs/overview")["jobs"]:
                tasks = job["tasks"]
                if job["jid"] in waiting and 0 < tasks["total"] == tasks["running"]:
                    self._note("starting", time.perf_counter() - answered[job["jid"]])
                    waiting.discard(job["jid"])
        return list(answered)

    def _look(self, one: http.client.HTTPConnection, jobs: list[str], looks: int) -> None:
        worker = _call(one, "GET", "/taskmanagers")["taskmanagers"][0]["id"]
        vertex = _call(one, "GET", f"/jobs/{jobs[0]}")["vertices"][0]["id"]
        for n in range(looks):
            job = f"/jobs/{jobs[n % JOBS]}"
            metrics = f"{job}/vertices/{vertex}/metrics"
            for kind, path in (
                ("overview", "/overview"),
                ("jobs", "/jobs/overview"),
                ("job", job),
                ("checkpoints", f"{job}/checkpoints"),
                ("checkpoint config", f"{job}/checkpoints/config"),
                ("exceptions", f"{job}/exceptions"),
                ("job plan", f"{job}/plan"),
                ("settings", "/jobmanager/config"),
                ("workers", "/taskmanagers"),
                ("worker metrics", f"/taskmanagers/{worker}/metrics?get={','.join(_WORKER)}"),
                ("job metrics", f"{job}/metrics?get={','.join(_JOB)}"),
                ("metric names", metrics),
                ("metric values", f"{metrics}?get={','.join(_ASKED)}"),
                ("refusal", f"/jobs/{'0' * 32}"),
            ):
                self._timed(kind, one, "GET", path)
        for _ in range(JOBS):
            self._timed("jars", one, "GET", "/jars")

    def _stop(self, jobs: list[str]) -> None:
        def stop(n: int) -> None:
            with self._connected() as mine:
                body = {"drain": False, "triggerId": token_hex(16), "formatType": "CANONICAL"}
                path = f"/jobs/{jobs[n]}"
                trigger = self._timed("stop", mine, "POST", f"{path}/stop", body)["request-id"]
                began = time.perf_counter()
                until = time.monotonic() + MOST_S
                while True:
                    _in_time(until, f"{path} stop")
                    status = self._timed("trigger", mine, "GET", f"{path}/savepoints/{trigger}")
                    if status["status"]["id"] == "COMPLETED":
                        self._note("stopping", time.perf_counter() - began)
                        assert "location" in status["operation"], status
                        return
                    time.sleep(0.005)

        _at_once(stop)

    def _cancel(self, one: http.client.HTTPConnection, jobs: list[str]) -> None:
        def cancel(n: int) -> tuple[str, float]:
            with self._connected() as mine:
                self._timed("cancel", mine, "PATCH", f"/jobs/{jobs[n]}?mode=cancel")
                return jobs[n], time.perf_counter()

        answered = dict(_at_once(cancel))
        waiting = set(answered)
        until = time.monotonic() + MOST_S
        while waiting:
            _in_time(until, f"{len(waiting)} jobs end")
            for job in _call(one, "GET", "/jobs/overview")["jobs"]:
                if job["jid"] in waiting and job["state"] in _OVER:
                    self._note("cancelling", time.perf_counter() - answered[job["jid"]])
                    waiting.discard(job["jid"])

    def _upload(self, one: http.client.HTTPConnection) -> str:
        jar = ("speck-jobs.jar", edge_jar("speck-jobs.jar").read_bytes())
        form = MultipartEncoder({"jarfile": jar})
        body = form.to_string()
        began = time.perf_counter()
        answer = _call(one, "POST", "/jars/upload", body, form.content_type)
        self._note("upload", time.perf_counter() - began)
        return str(answer["filename"]).rsplit("/", 1)[1]

    # -- how ------------------------------------------------------------------------------

    @contextmanager
    def _connected(self) -> Iterator[http.client.HTTPConnection]:
        connection = http.client.HTTPConnection(*self._at, timeout=120)
        try:
            yield connection
        finally:
            connection.close()

    def _timed(
        self, kind: str, one: http.client.HTTPConnection, method: str, path: str, body: Any = None
    ) -> Any:
        sent = json.dumps(body).encode() if body is not None else None
        began = time.perf_counter()
        answer = _call(one, method, path, sent)
        self._note(kind, time.perf_counter() - began)
        return answer

    def _note(self, kind: str, seconds: float) -> None:
        self.latencies.setdefault(kind, []).append(seconds)


def _call(
    one: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    kind: str = "application/json",
) -> Any:
    one.request(method, path, body, {"Content-Type": kind} if body is not None else {})
    text = one.getresponse().read()
    return json.loads(text) if text else {}


def _in_time(until: float, what: str) -> None:
    if time.monotonic() > until:
        raise RuntimeError(f"cannot see {what} in {MOST_S:g} s: see the log of the fog's engine")


def _at_once(call: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(JOBS) as pool:
        return list(pool.map(call, range(JOBS)))


def _body(site: SiteRecord, n: int) -> dict[str, Any]:
    args = ["--job-name", f"job-{n}", "--source-broker", site.broker_address]
    args += ["--source-topic", f"in/{n}", "--sink-broker", site.broker_address]
    args += ["--sink-topic", f"out/{n}", "--client-id", f"bench-{token_hex(4)}", "--epoch", "1"]
    args += ["--delivery", "at_least_once", "--sink-readers", "none"]
    return {"entryClass": CLASS, "programArgsList": args, "parallelism": 1, "jobId": token_hex(16)}
