"""Many simulated Flinks in one process: the REST API of Flink 2.3 as far as speck uses it.

    python -m bench.simulated_flink --sites 1000 --base 127.40.0.0 --port 8081 --slots 10 \\
        --interval 10 --latencies latencies.json

Site n answers at the n-th address after `--base`, all on one port. Jobs come, run, take
checkpoints and end by the clock; no record flows and no code of a job is run. How long each
request takes is drawn from what was measured of a real Flink (see `bench.flink_latencies`); each
draw is independent: a simulated Flink does not become slow under load. Answers are recorded
ones; `tests/contracts/engines` runs the binder's contract against them.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import json
import random
import re
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from bench import simulated_answers as answers
from bench.simulated_site import Job, Site

Latencies = Mapping[str, Sequence[float]]
"""Kind of request, or of what follows it -> seconds, sorted; every one as likely as the others."""

NONE: Latencies = {}
"""Everything at once, for tests."""

_JAR_IN_FORM = re.compile(rb'filename="([^"]+)"')


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, *lines: str):
        super().__init__(lines[0])
        self.status = status
        self.lines = lines


class Flink:
    """One site behind its REST API; `answer` makes no use of sockets."""

    def __init__(self, site: Site, clock: Callable[[], float] = time.time):
        self.site = site
        self._clock = clock

    def answer(self, method: str, target: str, body: bytes) -> tuple[str, int, Any]:
        """(kind of request, HTTP status, JSON of the answer)."""
        path, _, query = target.partition("?")
        parts = [unquote(part) for part in path.strip("/").split("/")]
        now = self._clock()
        self.site.place(now)
        try:
            kind, content = self._route(method, parts, query, body, now)
        except Refused as refused:
            return "refusal", refused.status, {"errors": list(refused.lines)}
        return kind, 202 if kind in ("stop", "savepoint", "cancel") else 200, content

    def _route(
        self, method: str, parts: list[str], query: str, body: bytes, now: float
    ) -> tuple[str, Any]:
        site = self.site
        match (method, *parts):
            case ("GET", "overview"):
                return "overview", answers.overview(site, now)
            case ("GET", "jobs", "overview"):
                return "jobs", answers.list_jobs(site, now)
            case ("GET", "jobs", job_id, *rest):
                return self._of_job(job_id, rest, query, now)
            case ("POST", "jobs", job_id, "stop" | "savepoints" as verb):
                return self._save(job_id, verb, json.loads(body), now)
            case ("POST", "jobs", job_id, "checkpoints"):  # they come by the clock
                trigger = str(json.loads(body)["triggerId"])
                if job_id in site.jobs:
                    done = site.completed(site.jobs[job_id], now)
                    site.checkpoint_requests[job_id, trigger] = done
                return "savepoint", {"request-id": trigger}
            case ("PATCH", "jobs", job_id):
                return self._cancel(job_id, now)
            case ("GET", "jars"):
                return "jars", {"files": [_jar(*each) for each in site.jars.items()]}
            case ("POST", "jars", "upload"):
                name = _JAR_IN_FORM.search(body)
                identity = site.add_jar(name[1].decode() if name else "x.jar", now)
                return "upload", {"filename": f"/flink/upload/{identity}", "status": "success"}
            case ("DELETE", "jars", jar):
                site.jars.pop(jar, None)
                return "jar deletion", {}
            case ("POST", "jars", jar, "plan" | "run" as verb):
                return self._start(jar, verb, json.loads(body), now)
            case ("GET", "jobmanager", "environment"):
                return "environment", answers.environment()
            case ("GET", "jobmanager", "config"):
                return "settings", answers.settings(site)
            case ("GET", "taskmanagers"):
                return "workers", answers.taskmanagers(site, now)
            case ("GET", "taskmanagers", _, "metrics") | ("GET", "jobmanager", "metrics"):
                return "worker metrics", answers.worker_metrics(_names(query) or [], now)
        raise Refused(404, f"Unable to load requested file /{'/'.join(parts)}.")

    def _of_job(self, job_id: str, rest: list[str], query: str, now: float) -> tuple[str, Any]:
        if rest == ["metrics"]:
            engine_job = self.site.jobs.get(job_id)
            names = _names(query) or []
            metrics = answers.job_metrics(self.site, engine_job, names, now) if engine_job else []
            return "job metrics", metrics
        if len(rest) == 2 and rest[0] == "savepoints":
            save = self.site.triggers.get((job_id, rest[1]))
            if save is None:
                why = "RestHandlerException: There is no savepoint operation with triggerId="
                raise Refused(404, f"org.apache.flink.runtime.rest.handler.{why}{rest[1]} for job")
            return "trigger", answers.savepoint(save, now)
        job = self._job(job_id)
        if len(rest) == 2 and rest[0] == "checkpoints" and rest[1] != "config":
            return "trigger", self._checkpoint_request(job, rest[1], now)
        match rest:
            case []:
                return "job", answers.job(self.site, job, now)
            case ["checkpoints"]:
                return "checkpoints", answers.checkpoints(self.site, job, now)
            case ["checkpoints", "config"]:
                return "checkpoint config", answers.checkpoint_config(self.site)
            case ["exceptions"]:
                return "exceptions", answers.exceptions(job)
            case ["plan"]:
                return "job plan", answers.plan(job.id, job.name, job.parallelism)
            case ["vertices", answers.VERTEX, "metrics"]:
                names = _names(query)
                kind = "metric names" if names is None else "metric values"
                return kind, answers.vertex_metrics(job, names, now)
        raise Refused(404, "Unable to load requested file.")

    def _checkpoint_request(self, job: Job, trigger: str, now: float) -> Any:
        done = self.site.checkpoint_requests.get((job.id, trigger))
        if done is None:
            raise Refused(404, f"There is no checkpoint operation with triggerId={trigger}")
        is_over = self.site.completed(job, now) > done
        return {"status": {"id": "COMPLETED" if is_over else "IN_PROGRESS"}}

    def _job(self, job_id: str) -> Job:
        job = self.site.jobs.get(job_id)
        if job is None:
            name = "org.apache.flink.runtime.rest.NotFoundException"
            raise Refused(404, f"{name}: Job {job_id} not found")
        return job

    def _save(self, job_id: str, verb: str, body: Any, now: float) -> tuple[str, Any]:
        stops = verb == "stop"
        folder = body.get("targetDirectory" if stops else "target-directory")
        self.site.save(job_id, body["triggerId"], folder, now, stops=stops)
        return "stop" if stops else "savepoint", {"request-id": body["triggerId"]}

    def _cancel(self, job_id: str, now: float) -> tuple[str, Any]:
        package = "org.apache.flink.runtime.rest.handler.RestHandlerException"
        try:
            self.site.cancel(job_id, now)
        except KeyError:
            unknown = "org.apache.flink.runtime.messages.FlinkJobNotFoundException"
            why = f"Job could not be found.\nCaused by: {unknown}: no job {job_id}"
            raise Refused(404, f"{package}: {why}") from None
        except ValueError as state:
            why = "Job cancellation failed because the job has already reached another terminal"
            raise Refused(409, f"{package}: {why} state ({state}).") from None
        return "cancel", {}

    def _start(self, jar: str, verb: str, body: Any, now: float) -> tuple[str, Any]:
        if jar not in self.site.jars:
            why = f"RestHandlerException: Jar file /flink/upload/{jar} does not exist"
            raise Refused(500, "Internal server error.", f"<Exception on server side:\n{why}")
        name, parallelism = _argument(body, "--job-name"), int(body.get("parallelism") or 1)
        if verb == "plan":
            return "plan", answers.plan(body["jobId"], name, parallelism)
        failed = "org.apache.flink.runtime.rest.handler.RestHandlerException: Could not execute"
        cause = f"{failed} application.\nCaused by: "
        try:
            self.site.run(body["jobId"], name, parallelism, body.get("savepointPath"), now)
        except KeyError:
            why = "DuplicateApplicationSubmissionException: Application has already been submitted."
            raise Refused(400, f"{cause}org.apache.flink.runtime.client.{why}") from None
        except FileNotFoundError as nothing:
            why = f"Cannot find checkpoint or savepoint file/directory '{nothing}'"
            message = f"{cause}java.io.FileNotFoundException: {why} on file system 'file'."
            raise Refused(400, message) from None
        return "run", {"jobid": body["jobId"], "applicationId": body["jobId"]}


def _jar(identity: str, at: float) -> Any:
    name = identity.partition("_")[2]
    return {"id": identity, "name": name, "uploaded": int(at * 1000), "entry": []}


def _argument(body: Any, name: str) -> str:
    arguments = body.get("programArgsList") or []
    return str(arguments[arguments.index(name) + 1]) if name in arguments else "job"


def _names(query: str) -> list[str] | None:
    values = parse_qs(query).get("get")
    return values[0].split(",") if values else None


# -- the server ---------------------------------------------------------------------------


class Drawing:
    """Draws from measured latencies; a request without a measurement takes no time."""

    def __init__(self, latencies: Latencies, seed: int = 1):
        self._latencies = latencies
        self._dice = random.Random(seed)

    def __call__(self, kind: str) -> float:
        samples = self._latencies.get(kind)
        return self._dice.choice(samples) if samples else 0.0


class _Connection(asyncio.Protocol):
    """HTTP/1.1, one request at a time, as long as the client likes."""

    def __init__(self, flink: Flink, draw: Drawing):
        self._flink = flink
        self._draw = draw
        self._bytes = bytearray()
        self._busy = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        self._next()

    def _next(self) -> None:
        head_end = self._bytes.find(b"\r\n\r\n")
        if self._busy or head_end < 0:
            return
        head = bytes(self._bytes[:head_end])
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        end = head_end + 4 + (int(length[1]) if length else 0)
        if len(self._bytes) < end:
            return
        body = bytes(self._bytes[head_end + 4 : end])
        del self._bytes[:end]
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        kind, status, content = self._flink.answer(method, target, body)
        text = json.dumps(content, separators=(",", ":")).encode()
        response = (
            f"HTTP/1.1 {status} -\r\nContent-Type: application/json; charset=UTF-8\r\n"
            f"Content-Length: {len(text)}\r\n\r\n"
        ).encode() + text
        self._busy = True
        asyncio.get_running_loop().call_later(self._draw(kind), self._respond, response)

    def _respond(self, response: bytes) -> None:
        self._busy = False
        if self._transport is not None:
            self._transport.write(response)
            self._next()


def addresses(base: str, count: int) -> list[str]:
    """The `count` addresses after `base`."""
    first = ipaddress.IPv4Address(base)
    return [str(first + n) for n in range(1, count + 1)]


async def listen(
    hosts: Sequence[str], port: int, slots: int, interval_s: float, latencies: Latencies
) -> list[asyncio.Server]:
    """One simulated Flink at each host; port 0 takes a free one."""
    draw = Drawing(latencies)
    loop = asyncio.get_running_loop()

    def factory(host: str) -> Callable[[], _Connection]:
        flink = Flink(Site(host, slots, interval_s, draw))
        return lambda: _Connection(flink, draw)

    return [await loop.create_server(factory(h), h, port, backlog=128) for h in hosts]


async def _serve(options: argparse.Namespace) -> None:
    latencies = json.loads(options.latencies.read_text()) if options.latencies else NONE
    hosts = addresses(options.base, options.sites)
    servers = await listen(hosts, options.port, options.slots, options.interval, latencies)
    print(f"{len(servers)} sites answer", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main() -> None:
    parser = argparse.ArgumentParser(description="many simulated Flinks")
    parser.add_argument("--sites", type=int, required=True)
    parser.add_argument("--base", default="127.40.0.0", help="the address before the first site's")
    parser.add_argument("--port", type=int, default=8081)
    parser.add_argument("--slots", type=int, default=10, help="of each site")
    parser.add_argument("--interval", type=float, default=10.0, help="s between checkpoints")
    parser.add_argument("--latencies", type=Path, help="JSON: kind -> seconds")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
