"""Chains of PassThrough jobs, and what any deployer must at least do: bare REST calls of Flink.

Every way ends when every job has all its tasks running, or is gone. `Bare` knows two: the floor
(as many calls at once as speck makes, connections kept, a jar uploaded once to each site, as speck
does; `release` ends the sessions that the deleted jobs leave at the brokers) and one job after
another, with an upload for each, as the prototype of 2020 posted them.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from secrets import token_hex
from urllib.parse import urlsplit

import requests

from speck.deploy.execution import Bounds
from speck.fog.paths import edge_jar
from speck.fog.sites import Fog
from speck.model.values import JsonObject

AT_ONCE = Bounds().per_site
"""Calls at a time to one engine, as speck makes."""
CHECKPOINT_S = 10.0
"""So that 100 idle jobs do not fill the two cores with checkpoints; the same for all ways."""
CLASS = "io.speck.jobs.PassThrough"
_LOOK_S = 0.05
MOST_S = 300.0
"""That any action may take: beyond, something hangs."""
_OVER = ("FINISHED", "CANCELED", "FAILED")


@dataclass(slots=True)
class Chain:
    """A chain of jobs and how it changes. Its jobs keep no state: `upgrade: stateless`, unless
    `keeps_state` is set. Nothing flows through it."""

    brokers: list[str]
    """The sites of the links' brokers, one more than there are jobs."""
    engines: list[str]
    sites: list[str]
    notes: list[str]
    keeps_state: bool = False
    inserted: frozenset[int] = frozenset()
    """The jobs after which another one is inserted."""

    @classmethod
    def at_random(cls, fog: Fog, jobs: int, seed: int = 1) -> Chain:
        """A chain at random over the sites (by `seed`)."""
        names = [site.name for site in fog.sites()]
        dice = random.Random(seed)
        at = [dice.choice(names) for _ in range(jobs + 1)]
        return cls(at, at[:-1], names, ["first"] * jobs)

    def set_note(self, jobs: int, note: str) -> None:
        """Change an argument of the first `jobs`."""
        self.notes[:jobs] = [note] * jobs

    def move(self, jobs: int) -> None:
        """Move the first `jobs` to the next site each; their links stay where they are."""
        for n in range(jobs):
            here = self.sites.index(self.engines[n])
            self.engines[n] = self.sites[(here + 1) % len(self.sites)]

    def insert(self, jobs: int) -> None:
        """Insert jobs in the middle: half of `jobs` are new, half write to another link."""
        first = (len(self.notes) - jobs // 2) // 2
        self.inserted = frozenset(range(first, first + jobs // 2))

    def jobs(self) -> list[JsonObject]:
        """The jobs in the order of the chain."""
        jobs = []
        for n, note in enumerate(self.notes):
            site, source, sink = self.engines[n], self.brokers[n], self.brokers[n + 1]
            link = (source, f"chain/{n}"), (sink, f"chain/{n + 1}")
            if n in self.inserted:
                middle = sink, f"chain/{n + 1}/inserted"
                jobs.append(self._job(f"job-{n:03d}", site, link[0], middle, note))
                jobs.append(self._job(f"job-{n:03d}-next", sink, middle, link[1], note))
            else:
                jobs.append(self._job(f"job-{n:03d}", site, *link, note))
        return jobs

    def composition(self) -> JsonObject:
        """The composition as it is applied."""
        return {"name": "chain", "jobs": self.jobs()}

    def _job(
        self, name: str, site: str, source: tuple[str, str], sink: tuple[str, str], note: str
    ) -> JsonObject:
        return {
            "job_name": name,
            "site": site,
            "source_site": source[0],
            "source_topic": source[1],
            "sink_site": sink[0],
            "sink_topic": sink[1],
            "entry_class": CLASS,
            "job_path": "speck-jobs.jar",
            "upgrade": "savepoint" if self.keeps_state else "stateless",
            "args": ["--note", note],
        }


def chain(fog: Fog, jobs: int) -> JsonObject:
    """A composition of `jobs` in a chain, at random over the sites."""
    return Chain.at_random(fog, jobs).composition()


class Bare:
    """Flink's REST API and nothing else."""

    def __init__(self, fog: Fog):
        self.engines = {site.name: site.engine_address for site in fog.sites()}
        self.brokers = {site.name: site.broker_address for site in fog.sites()}
        self.jar = edge_jar("speck-jobs.jar")
        self.http = requests.Session()
        self.http.trust_env = False
        adapter = requests.adapters.HTTPAdapter(
            pool_connections=len(self.engines), pool_maxsize=AT_ONCE
        )
        self.http.mount("http://", adapter)
        self.running: dict[str, tuple[str, JsonObject]] = {}
        self.sessions: list[tuple[str, str]] = []
        """Broker and client id of the readers of the jobs that were deleted last."""
        self.jars: dict[str, str] = {}

    def upload(self, site: str) -> str:
        """Upload the jar; the id that Flink gives it."""
        with self.jar.open("rb") as stream:
            files = {"jarfile": ("speck-jobs.jar", stream, "application/x-java-archive")}
            answer = self.http.post(f"{self.engines[site]}/jars/upload", files=files, timeout=120)
        answer.raise_for_status()
        return str(answer.json()["filename"]).rsplit("/", 1)[1]

    def run(self, jar_id: str, job: JsonObject, savepoint: str | None = None) -> None:
        """Start a job of a chain with the arguments that speck gives it, but topics of its own."""
        site, name = job["site"], job["job_name"]
        args = ["--job-name", name, "--source-broker", self.brokers[job["source_site"]]]
        args += ["--source-topic", f"bare/{job['source_topic']}"]
        args += ["--sink-broker", self.brokers[job["sink_site"]]]
        args += ["--sink-topic", f"bare/{job['sink_topic']}", "--client-id", f"bench-{name}"]
        args += ["--epoch", "1", "--delivery", "at_least_once", "--sink-readers", "some"]
        body = {
            "entryClass": CLASS,
            "programArgsList": args + job["args"],
            "jobId": token_hex(16),
            "savepointPath": savepoint,
        }
        url = f"{self.engines[site]}/jars/{jar_id}/run"
        answer = self.http.post(url, json=body, timeout=120)
        answer.raise_for_status()
        self.running[name] = (str(answer.json()["jobid"]), job)

    def stop(self, name: str) -> str:
        """Stop with a savepoint, and wait for it; where it lies."""
        job_id, job = self.running[name]
        base = f"{self.engines[job['site']]}/jobs/{job_id}"
        answer = self.http.post(f"{base}/stop", json={"drain": False}, timeout=120)
        answer.raise_for_status()
        trigger = answer.json()["request-id"]
        until = time.monotonic() + MOST_S
        while time.monotonic() < until:
            status = self.http.get(f"{base}/savepoints/{trigger}", timeout=60).json()
            if status["status"]["id"] == "COMPLETED":
                if "location" not in status["operation"]:
                    raise RuntimeError(f"cannot stop {name} at {job['site']}: {status}")
                return str(status["operation"]["location"])
            time.sleep(_LOOK_S)
        raise RuntimeError(f"cannot stop {name} at {job['site']}: no savepoint in {MOST_S:g} s")

    def cancel(self, name: str) -> None:
        """Cancel without waiting for the end."""
        job_id, job = self.running[name]
        url = f"{self.engines[job['site']]}/jobs/{job_id}?mode=cancel"
        self.http.patch(url, timeout=60).raise_for_status()

    # -- the floor ------------------------------------------------------------------------

    def deploy(self, jobs: Sequence[JsonObject]) -> None:
        """All of them, `AT_ONCE` at a time for each site."""
        self._everywhere(jobs, lambda jar, job: self.run(jar, job))
        self.await_running()

    def restart(self, jobs: Sequence[JsonObject]) -> None:
        """Stop each that runs with a savepoint and start it again from that; start the others."""

        def again(jar: str, job: JsonObject) -> None:
            running = job["job_name"] in self.running
            self.run(jar, job, self.stop(job["job_name"]) if running else None)

        self._everywhere(jobs, again)
        self.await_running()

    def replace(self, jobs: Sequence[JsonObject]) -> None:
        """Cancel each and start it again, without its state, as soon as it is gone."""
        jars = {job["site"]: self._jar(job["site"]) for job in jobs}
        pending = {self.running[job["job_name"]][0]: job for job in jobs}
        with ExitStack() as stack:
            pools = {
                site: stack.enter_context(ThreadPoolExecutor(AT_ONCE)) for site in self.engines
            }
            calls = [
                pools[self.running[job["job_name"]][1]["site"]].submit(self.cancel, job["job_name"])
                for job in jobs
            ]

            def start_those_gone(listed: list[JsonObject]) -> bool:
                for job_id in [each["jid"] for each in listed if each["state"] in _OVER]:
                    if job := pending.pop(job_id, None):
                        calls.append(pools[job["site"]].submit(self.run, jars[job["site"]], job))
                return not pending

            self._await(start_those_gone)
            for call in calls:
                call.result()
        self.await_running()

    def delete(self) -> None:
        """Cancel all that was started, until nothing of it runs."""
        self._everywhere(
            [job for _, job in self.running.values()], lambda _, job: self.cancel(job["job_name"])
        )
        self.await_over()

    def release(self) -> None:
        """End the sessions of the deleted jobs' readers, `AT_ONCE` at a time for each broker."""
        by_broker: dict[str, list[str]] = {}
        for broker, client_id in self.sessions:
            by_broker.setdefault(broker, []).append(client_id)

        def at_broker(broker: str) -> None:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda client_id: end_session(broker, client_id), by_broker[broker]))

        with ThreadPoolExecutor(len(by_broker) or 1) as pool:
            list(pool.map(at_broker, by_broker))
        self.sessions.clear()

    def _everywhere(
        self, jobs: Sequence[JsonObject], act: Callable[[str, JsonObject], object]
    ) -> None:
        by_site: dict[str, list[JsonObject]] = {}
        for job in jobs:
            by_site.setdefault(job["site"], []).append(job)

        def at_site(site: str) -> None:
            jar = self._jar(site)
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda job: act(jar, job), by_site[site]))

        with ThreadPoolExecutor(len(self.engines)) as pool:
            list(pool.map(at_site, by_site))

    def _jar(self, site: str) -> str:
        if site not in self.jars:
            self.jars[site] = self.upload(site)
        return self.jars[site]

    # -- one after another ----------------------------------------------------------------

    def deploy_in_turn(self, jobs: Sequence[JsonObject]) -> None:
        """An upload and a run for each job."""
        for job in jobs:
            self.run(self.upload(job["site"]), job)
        self.await_running()

    def restart_in_turn(self, jobs: Sequence[JsonObject]) -> None:
        """A stop with savepoint, an upload and a run for each job."""
        for job in jobs:
            savepoint = self.stop(job["job_name"])
            self.run(self.upload(job["site"]), job, savepoint)
        self.await_running()

    def delete_in_turn(self) -> None:
        """One cancellation after another."""
        for name in self.running:
            self.cancel(name)
        self.await_over()

    # -- waiting --------------------------------------------------------------------------

    def await_running(self) -> None:
        """Until every job has all its tasks running."""
        job_ids = {job_id for job_id, _ in self.running.values()}

        def ready(jobs: list[JsonObject]) -> bool:
            over = [job for job in jobs if job["jid"] in job_ids and job["state"] in _OVER]
            if over:
                raise RuntimeError(f"cannot run all jobs: {over[0]['name']} is {over[0]['state']}")
            up = {
                job["jid"]
                for job in jobs
                if job["state"] == "RUNNING"
                and job["tasks"]["total"] > 0
                and job["tasks"]["running"] == job["tasks"]["total"]
            }
            return job_ids <= up

        self._await(ready)

    def await_over(self) -> None:
        """Until nothing runs any more."""
        self._await(lambda jobs: all(job["state"] in _OVER for job in jobs))
        self.sessions = [
            (self.brokers[job["source_site"]], f"bench-{name}")
            for name, (_, job) in self.running.items()
        ]
        self.running.clear()

    def _await(self, ready: Callable[[list[JsonObject]], bool]) -> None:
        until = time.monotonic() + MOST_S
        with ThreadPoolExecutor(len(self.engines)) as pool:
            while time.monotonic() < until:
                looks = pool.map(
                    lambda url: self.http.get(f"{url}/jobs/overview", timeout=60).json()["jobs"],
                    self.engines.values(),
                )
                if ready([job for jobs in looks for job in jobs]):
                    return
                time.sleep(_LOOK_S)
        raise RuntimeError(f"cannot see all jobs run, or be gone, in {MOST_S:g} s")


def end_session(broker: str, client_id: str) -> None:
    """End a session with the fewest bytes of MQTT 5: a connection with Clean Start, whose session
    expires with it. Raises RuntimeError when the broker refuses."""
    address = urlsplit(broker)
    name = client_id.encode()
    body = b"\x00\x04MQTT\x05\x02\x00\x00\x00" + len(name).to_bytes(2, "big") + name
    with socket.create_connection((address.hostname or "", address.port or 1883), 30) as connection:
        connection.sendall(bytes([0x10, len(body)]) + body)
        answer = connection.recv(4, socket.MSG_WAITALL)  # CONNACK: type, length, flags, reason
        if len(answer) < 4 or answer[0] != 0x20 or answer[3] != 0:
            raise RuntimeError(f"cannot end the session {client_id} at {broker}: {answer.hex()}")
        connection.sendall(b"\xe0\x00")
