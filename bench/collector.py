"""What collecting costs: 100 jobs on 6 sites, polled every 5 s.

The same service over the same running jobs, without the collector, with it, and without it again:
its CPU time by its process. Then bytes of a sample: on disk, once compacted, and on the wire, by a
counting proxy before each engine and broker; and seconds of a poll of one site.

`make bench-collector` writes bench/results/collector.json; QUICK=1 takes fewer jobs and less time.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5

from bench.chains import chain
from bench.common import Api, end_well_when_told, is_quick, machine, say, write_result
from bench.instruments.proxy import Proxy
from bench.usage import tree_cpu_s
from speck.binding import Target, open_broker, open_engine
from speck.fog.paths import edge_jar
from speck.fog.service import Served, serving
from speck.fog.site_record import SiteRecord
from speck.fog.sites import Fog
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.maintenance import maintain
from speck.metrics.dataset.reading import read
from speck.metrics.dataset.schema import TABLES
from speck.model.values import JsonObject

QUICK = is_quick()
JOBS = 12 if QUICK else 100
EDGES = 2 if QUICK else 5
EVERY_S = 5.0
SETTLE_S = 3.0 if QUICK else 10.0
OFF_S = 4.0 if QUICK else 60.0
ON_S = 10.0 if QUICK else 180.0
FED_PER_S = 5.0
LOOKS = 5
CHECKPOINT_S = 10.0
"""As in bench.chains: so that 100 jobs do not fill the two cores with checkpoints."""


def main() -> None:
    end_well_when_told()
    with tempfile.TemporaryDirectory(prefix="speck-bench-") as folder:
        fog = Fog(Path(folder) / "fog")
        try:
            say(f"bringing up {EDGES + 1} sites")
            fog.up(
                edges=EDGES,
                slots=JOBS,
                cloud_slots=JOBS,
                checkpoint_interval_s=CHECKPOINT_S,
            )
            write_result("collector.json", measure(fog, Path(folder) / "home"))
        finally:
            fog.down()


def measure(fog: Fog, home: Path) -> JsonObject:
    """All figures, of one fog."""
    with phase(home, 0) as server:
        api = Api(server.url)
        for body in fog.site_bodies():
            api.call("POST", "/sites", body)
        say(f"deploying {JOBS} jobs")
        api.apply(chain(fog, JOBS))
        ids: dict[str, list[str]] = {site.name: [] for site in fog.sites()}
        for job in api.call("GET", "/jobs")["jobs"]:
            ids[job["site"]].append(job["engine_job_id"])
    with fed(fog):
        before = cpu_share(home, 0, OFF_S)
        collecting = cpu_share(home, EVERY_S, ON_S)
        after = cpu_share(home, 0, OFF_S)
        wire = [look(site, ids[site.name]) for site in fog.sites()]
    idle = (before + after) / 2
    return {
        "sites": EDGES + 1,
        "jobs": JOBS,
        "every_s": EVERY_S,
        "cpu": {
            "without": [round(before, 4), round(after, 4)],
            "with": round(collecting, 4),
            "collector": round(collecting - idle, 4),
            "about": "share of one core, of the service's processes",
            "seconds": ON_S,
        },
        "disk": on_disk(home / "metrics"),
        "wire": {
            "bytes_per_look": sum(int(each["bytes"]) for each in wire),
            "bytes_per_task_sample": round(
                sum(each["bytes"] for each in wire) / sum(each["tasks"] for each in wire)
            ),
            "about": "both ways, of engines and brokers, links and totals included",
        },
        "look_s": {
            "median": round(statistics.median(s for each in wire for s in each["seconds"]), 4),
            "max": round(max(s for each in wire for s in each["seconds"]), 4),
            "about": "one site; all are polled at the same time",
        },
        "machine": machine(),
    }


@contextmanager
def phase(home: Path, every_s: float) -> Iterator[Served]:
    """The service, which collects every `every_s` seconds (0: not)."""
    jars = [edge_jar("speck-jobs.jar").parent]
    with serving(home, jars, more={"SPECK_METRICS_S": str(every_s)}) as server:
        yield server


def cpu_share(home: Path, every_s: float, seconds: float) -> float:
    """CPU seconds a second of the service, once it has settled."""
    with phase(home, every_s) as server:
        time.sleep(SETTLE_S)
        began, cpu_before_s = time.monotonic(), tree_cpu_s(server.process.pid)
        time.sleep(seconds)
        share = (tree_cpu_s(server.process.pid) - cpu_before_s) / (time.monotonic() - began)
    say(f"collecting every {every_s:g} s: {share:.2%} of a core")
    return share


def look(site: SiteRecord, job_ids: list[str]) -> JsonObject:
    """One poll of a site whose metric names are known: its bytes, the tasks in it, the seconds of
    several."""
    engine_at = site.engine_address.rpartition("//")[2].rstrip("/").split(":")
    broker_at = site.broker_address.rpartition("//")[2].split(":")
    with ExitStack() as stack:
        proxies = [
            stack.enter_context(Proxy("127.0.0.1", (host, int(port))))
            for host, port in (engine_at, broker_at)
        ]
        engine = open_engine("flink", Target(proxies[0].http))
        broker = open_broker("mqtt", Target(proxies[1].tcp))
        stack.callback(engine.close)
        for _ in range(3):  # names are settled then
            engine.measure(job_ids)
        seconds, passed, tasks = [], 0, 0
        for _ in range(LOOKS):
            before = sum(proxy.bytes_passed for proxy in proxies)
            began = time.perf_counter()
            measures = engine.measure(job_ids)
            broker.measure()
            seconds.append(time.perf_counter() - began)
            passed += sum(proxy.bytes_passed for proxy in proxies) - before
            tasks += sum(len(job.tasks) for job in measures.jobs.values())
        return {"bytes": passed / LOOKS, "tasks": tasks / LOOKS, "seconds": seconds}


def on_disk(root: Path) -> JsonObject:
    """Rows and bytes by table, after compaction."""
    maintain(LocalStorage(root), datetime.now(UTC) + timedelta(days=1), 0)
    sizes: JsonObject = {}
    for name, table in TABLES.items():
        rows = read(LocalStorage(root), table).num_rows
        size = sum(file.stat().st_size for file in (root / name).rglob("*.parquet"))
        sizes[name] = {
            "rows": rows,
            "bytes": size,
            "bytes_per_row": round(size / rows, 1) if rows else None,
        }
    return sizes


@contextmanager
def fed(fog: Fog) -> Iterator[None]:
    """Messages at the head of the chain, so that counters move."""
    head = chain(fog, JOBS)["jobs"][0]
    site = next(each for each in fog.sites() if each.name == head["site"])
    host, port = site.broker_address.rpartition("//")[2].split(":")
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    client.connect(host, int(port))
    client.loop_start()
    over = threading.Event()

    def feed() -> None:
        while not over.wait(1 / FED_PER_S):
            client.publish(head["source_topic"], b"x" * 100, qos=1)

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        client.disconnect()
        client.loop_stop()


if __name__ == "__main__":
    main()
