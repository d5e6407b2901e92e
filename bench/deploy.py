"""Deploy, modify and delete chains of PassThrough jobs, beside the bare REST calls.

Every time ends when every job has all its tasks running, or is gone. Three ways in one run:
speck; the floor (bare Flink REST calls, the same number at once, one upload for each site);
one job after another with an upload for each, as the prototype of 2020 posted them.

`make bench-deploy` writes bench/results/deploy.json; QUICK=1 takes fewer jobs and rounds.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex

import requests

from bench.common import Api, fog_with_service, machine, say, timed, write_result
from speck.fog.paths import edge_jar
from speck.fog.sites import Fog
from speck.model import JsonObject

QUICK = os.environ.get("QUICK") == "1"
JOBS = 20 if QUICK else 100
SITES = 6
AT_ONCE = 16
ROUNDS = 1 if QUICK else 3
GROWTH = (1, 5, 10, 20) if QUICK else (1, 10, 25, 50, 75, 100)
MODIFY = (1, 10, 20) if QUICK else (1, 10, 50, 100)
CHECKPOINT_S = 10.0
"""So that 100 idle jobs do not fill the two cores with checkpoints; the same for all ways."""
CLASS = "io.speck.jobs.PassThrough"


def chain(fog: Fog, jobs: int, changed: int = 0, note: str = "a") -> JsonObject:
    """A composition of `jobs` in a chain, at random over the sites (the same each time)."""
    names = [site.name for site in fog.sites()]
    dice = random.Random(1)
    at = [dice.choice(names) for _ in range(jobs + 1)]
    return {
        "name": "chain",
        "jobs": [
            {
                "job_name": f"job-{n:03d}",
                "site": at[n],
                "source_topic": f"chain/{n}",
                "sink_topic": f"chain/{n + 1}",
                "sink_site": at[n + 1],
                "entry_class": CLASS,
                "job_path": "speck-jobs.jar",
                "args": ["--note", note if n < changed else "first"],
            }
            for n in range(jobs)
        ],
    }


class Bare:
    """Flink's REST API and nothing else: what any deployer must at least do."""

    def __init__(self, fog: Fog):
        self.engines = {site.name: site.engine_address for site in fog.sites()}
        self.brokers = {site.name: site.broker_address for site in fog.sites()}
        self.jar = edge_jar("speck-jobs.jar")
        self.http = requests.Session()
        self.http.trust_env = False
        adapter = requests.adapters.HTTPAdapter(pool_connections=SITES, pool_maxsize=AT_ONCE)
        self.http.mount("http://", adapter)
        self.running: dict[str, tuple[str, JsonObject]] = {}

    def upload(self, site: str) -> str:
        with self.jar.open("rb") as stream:
            files = {"jarfile": ("speck-jobs.jar", stream, "application/x-java-archive")}
            answer = self.http.post(f"{self.engines[site]}/jars/upload", files=files, timeout=120)
        answer.raise_for_status()
        return str(answer.json()["filename"]).rsplit("/", 1)[1]

    def run(self, jar_id: str, job: JsonObject, savepoint: str | None = None) -> str:
        site, name = job["site"], job["job_name"]
        client = f"bench-{name}-{token_hex(4)}"
        args = ["--job-name", name, "--source-broker", self.brokers[site]]
        args += ["--source-topic", f"bare/{job['source_topic']}"]
        args += ["--sink-broker", self.brokers[job["sink_site"]]]
        args += ["--sink-topic", f"bare/{job['sink_topic']}", "--client-id", client]
        args += ["--epoch", "1", "--delivery", "at_least_once", "--sink-readers", "none"]
        body = {
            "entryClass": CLASS,
            "programArgsList": args + job["args"],
            "jobId": token_hex(16),
            "savepointPath": savepoint,
        }
        url = f"{self.engines[site]}/jars/{jar_id}/run"
        answer = self.http.post(url, json=body, timeout=120)
        answer.raise_for_status()
        job_id = str(answer.json()["jobid"])
        self.running[name] = (job_id, job)
        return job_id

    def stop(self, name: str) -> str:
        job_id, job = self.running[name]
        base = f"{self.engines[job['site']]}/jobs/{job_id}"
        answer = self.http.post(f"{base}/stop", json={"drain": False}, timeout=120)
        answer.raise_for_status()
        trigger = answer.json()["request-id"]
        while True:
            seen = self.http.get(f"{base}/savepoints/{trigger}", timeout=60).json()
            if seen["status"]["id"] == "COMPLETED":
                return str(seen["operation"]["location"])
            time.sleep(0.05)

    def cancel_all(self) -> None:
        def cancel(entry: tuple[str, JsonObject]) -> None:
            job_id, job = entry
            self.http.patch(f"{self.engines[job['site']]}/jobs/{job_id}?mode=cancel", timeout=60)

        with ThreadPoolExecutor(AT_ONCE * 2) as pool:
            list(pool.map(cancel, self.running.values()))
        self.await_states(lambda jobs: all(job["state"] != "RUNNING" for job in jobs))
        self.await_states(_all_over)
        self.running.clear()

    def await_running(self) -> None:
        wanted = {job_id for job_id, _ in self.running.values()}

        def ready(jobs: list[JsonObject]) -> bool:
            up = {
                job["jid"]
                for job in jobs
                if job["state"] == "RUNNING"
                and job["tasks"]["total"] > 0
                and job["tasks"]["running"] == job["tasks"]["total"]
            }
            return wanted <= up

        self.await_states(ready)

    def await_states(self, ready: Callable[[list[JsonObject]], bool]) -> None:
        with ThreadPoolExecutor(SITES) as pool:
            while True:
                looks = pool.map(
                    lambda url: self.http.get(f"{url}/jobs/overview", timeout=60).json()["jobs"],
                    self.engines.values(),
                )
                if ready([job for jobs in looks for job in jobs]):
                    return
                time.sleep(0.05)

    def deploy(self, jobs: Sequence[JsonObject]) -> None:
        """The floor: one upload for each site, `AT_ONCE` runs at once for each."""
        by_site: dict[str, list[JsonObject]] = {}
        for job in jobs:
            by_site.setdefault(job["site"], []).append(job)

        def at_site(site: str) -> None:
            jar_id = self.upload(site)
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda job: self.run(jar_id, job), by_site[site]))

        with ThreadPoolExecutor(SITES) as pool:
            list(pool.map(at_site, by_site))
        self.await_running()

    def deploy_one_by_one(self, jobs: Sequence[JsonObject]) -> None:
        """As the prototype of 2020: an upload and a run for each job, in turn."""
        for job in jobs:
            self.run(self.upload(job["site"]), job)
        self.await_running()

    def modify(self, jobs: Sequence[JsonObject]) -> None:
        """The floor of a change: stop with savepoint and run, `AT_ONCE` for each site."""
        by_site: dict[str, list[JsonObject]] = {}
        for job in jobs:
            by_site.setdefault(job["site"], []).append(job)

        def at_site(site: str) -> None:
            jar_id = self.upload(site)
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(
                    pool.map(
                        lambda job: self.run(jar_id, job, self.stop(job["job_name"])),
                        by_site[site],
                    )
                )

        with ThreadPoolExecutor(SITES) as pool:
            list(pool.map(at_site, by_site))
        self.await_running()


def _all_over(jobs: list[JsonObject]) -> bool:
    return all(job["state"] in ("FINISHED", "CANCELED", "FAILED") for job in jobs)


def delete(api: Api) -> None:
    """Remove the chain without draining it (it carries nothing)."""
    api.call("DELETE", "/compositions/chain", drain="false", wait=600)


def grown(fog: Fog, api: Api, bare: Bare) -> list[list[float]]:
    """[jobs, deploy_s, floor_s] by size, medians; speck and the floor in turn."""
    rows = []
    for jobs in GROWTH:
        ours, floor = [], []
        composition = chain(fog, jobs)
        for _ in range(ROUNDS):
            floor.append(timed(lambda c=composition: bare.deploy(c["jobs"])))
            bare.cancel_all()
            ours.append(timed(lambda c=composition: api.apply(c)))
            delete(api)
        rows.append([jobs, _mid(ours), _mid(floor)])
        say(f"{jobs} jobs: {rows[-1][1]} s, floor {rows[-1][2]} s")
    return rows


def modified(fog: Fog, api: Api, bare: Bare) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds to change the args of 1..100 of all jobs: speck's, and the floor's."""
    ours: dict[str, list[float]] = {str(k): [] for k in MODIFY}
    floor: dict[str, list[float]] = {str(k): [] for k in MODIFY}
    for round_ in range(ROUNDS):
        api.apply(chain(fog, JOBS))
        for k in MODIFY:
            new = chain(fog, JOBS, k, f"{round_}-{k}")
            ours[str(k)].append(timed(lambda c=new: api.apply(c)))
        delete(api)
        bare.deploy(chain(fog, JOBS)["jobs"])
        for k in MODIFY:
            jobs = chain(fog, JOBS, k, f"{round_}-{k}")["jobs"][:k]
            floor[str(k)].append(timed(lambda j=jobs: bare.modify(j)))
        bare.cancel_all()
    return {k: _mid(v) for k, v in ours.items()}, {k: _mid(v) for k, v in floor.items()}


def _mid(values: list[float]) -> float:
    return round(statistics.median(values), 3)


def main() -> None:
    with fog_with_service(SITES - 1, 1, JOBS // 2, CHECKPOINT_S) as (fog, api):
        bare = Bare(fog)
        say("warming up")
        for _ in range(2):
            bare.deploy(chain(fog, JOBS)["jobs"])
            bare.modify(chain(fog, JOBS, JOBS, "warm")["jobs"])
            bare.cancel_all()
            api.apply(chain(fog, JOBS))
            api.apply(chain(fog, JOBS, JOBS, "warm"))
            delete(api)
        growth = grown(fog, api, bare)
        one_by_one = timed(lambda: bare.deploy_one_by_one(chain(fog, JOBS)["jobs"]))
        bare.cancel_all()
        api.apply(chain(fog, JOBS))
        noop = _mid([timed(lambda: api.apply(chain(fog, JOBS))) for _ in range(5)])
        delete_s = timed(lambda: delete(api))
        modify, modify_floor = modified(fog, api, bare)
    deploy_s, floor_s = growth[-1][1], growth[-1][2]
    write_result(
        "deploy.json",
        {
            "jobs": JOBS,
            "sites": SITES,
            "deploy_s": deploy_s,
            "floor_s": floor_s,
            "deploy_to_floor": round(deploy_s / floor_s, 3),
            "one_by_one_s": round(one_by_one, 3),
            "one_by_one_to_deploy": round(one_by_one / deploy_s, 2),
            "noop_s": noop,
            "modify_s": modify,
            "modify_floor_s": modify_floor,
            "modify_to_floor": {k: round(modify[k] / modify_floor[k], 3) for k in modify},
            "delete_s": round(delete_s, 3),
            "growth": growth,
            "rounds": ROUNDS,
            "at_once_per_site": AT_ONCE,
            "checkpoint_interval_s": CHECKPOINT_S,
            "jar_bytes": Path(edge_jar("speck-jobs.jar")).stat().st_size,
            "machine": machine(),
        },
    )


if __name__ == "__main__":
    main()
