"""`make demo`: the paper's traffic application on a fog of four sites, with real data.

Brings up the fog and a service, deploys the 17 jobs, replays the trace, compares every local
and global statistic with a plain computation over the same trace, then replays it again (an
hour later in event time) and applies a composition that changes three jobs while data flows,
compares again, and takes everything down.

Messages go to stderr; the last line on stdout is one JSON object, and the exit status is 0 only
when no detection was lost.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from speck.binding import MessageBroker, Target, open_broker
from speck.client import Client
from speck.errors import PermanentError, SpeckError
from speck.fog.outputs import OutputReader
from speck.fog.paths import checkout, default_folder, edge_jar
from speck.fog.publisher import ReplayOptions
from speck.fog.replay import Replay
from speck.fog.service import serving
from speck.fog.site_record import KAFKA, MOSQUITTO
from speck.fog.sites import Fog
from speck.fog.trace import Row, read_trace
from speck.model.values import JsonObject
from speck.sites.credentials import Credentials
from speck.tls.identity import CREDENTIALS, SERVICE, Identity
from traffic.flows import Flow, Flows, Reading
from traffic.reference import (
    Comparison,
    compare_global,
    compare_local,
    compute_global,
    compute_local,
    count_valid,
)

SITES = {"A": "edge-a", "B": "edge-b", "C": "edge-c"}
HOUR_MS = 3_600_000
RESULT_TIMEOUT_S = 120.0
CHANGE_TIMEOUT_S = 300.0
_FILES = ("fog.yaml", "fog-changed.yaml")
_SPARK_FILES = ("fog-spark.yaml", "fog-spark-changed.yaml")
CHANGE_AT = 0.3
"""The second composition is applied when this share of the second replay is published."""

console = Console(stderr=True, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Round:
    """One replay and its results."""

    published: int
    local: Comparison
    total: Comparison
    seconds: float

    @property
    def lost(self) -> int:
        return self.local.lost + self.total.lost

    @property
    def repeated(self) -> int:
        return self.local.repeated + self.total.repeated

    @property
    def equal(self) -> bool:
        return self.local.equal and self.total.equal


class Demo:
    """The fog, the service and the readers of one run; they end with it."""

    def __init__(self, folder: Path, rate: float, *, tls: bool = False, spark: bool = False):
        """With `tls` every leg is encrypted, and every client has a certificate. With `spark` the
        global statistics are computed in PySpark, over Kafka, and one edge runs processes."""
        self._folder = folder
        self._home = folder / "home"
        self._identity = Identity(self._home / "ca", SERVICE) if tls else None
        self._rate = rate
        self._spark = spark
        self._first, self._second = _SPARK_FILES if spark else _FILES
        self._compositions = checkout() / "compositions" / "traffic"
        self._rows = read_trace(self._compositions / "trace" / "trace.csv.gz")
        self._stack = ExitStack()
        self._fog = Fog(folder / "fog")
        self._revision = 0

    def __enter__(self) -> Demo:
        return self

    def __exit__(self, *_: object) -> None:
        with _step("taking everything down"):
            self._stack.close()
            self._fog.down()
            shutil.rmtree(self._folder, ignore_errors=True)

    def run(self) -> JsonObject:
        """Run the whole demo; returns the JSON object of the last line."""
        started = time.monotonic()
        client = self._bring_up()
        jobs = self._apply(client, self._first, "deploying the traffic application")
        readers = self._open_outputs()
        first = self._run_round("first replay", client, self._rows, readers, None)
        later = [_shift(row) for row in self._rows]
        change: list[int] = []

        def change_some() -> None:
            change.append(self._apply(client, self._second, "changing some jobs while data flows"))

        second = self._run_round("second replay", client, later, readers, change_some)
        _show_statistics(readers)
        for name, round_ in (("first", first), ("second", second)):
            console.print(f"{name} replay, local statistics: {round_.local}")
            console.print(f"{name} replay, global statistics: {round_.total}")
        with _step("removing the application"):
            # the readers have taken all, which no MQTT broker tells
            removal = client.destroy(
                "traffic", revision=self._revision, drop_queues=True, drain_limit=0
            )
            _await_change(client, removal.get("change"))
        return {
            "jobs": jobs,
            "sites": len(self._fog.sites()),
            "published": first.published + second.published,
            "delivered": first.total.delivered + second.total.delivered,
            "lost": first.lost + second.lost,
            "repeated": first.repeated + second.repeated,
            "changes": sum(change),
            "seconds": round(time.monotonic() - started, 1),
            "equal": first.equal and second.equal,
        }

    def _bring_up(self) -> Client:
        self._fog.down()  # an interrupted run may have left a fog
        shutil.rmtree(self._home, ignore_errors=True)
        authority = self._identity.authority if self._identity else None
        with _step("bringing up four sites, each with its own broker and Flink"):
            self._fog.up(
                edges=3,
                slots=8,
                cloud_slots=24,
                shared_state=False,
                authority=authority,
                cloud_broker=KAFKA if self._spark else MOSQUITTO,
                programs=self._spark,
                spark=self._spark,
            )
            self._fog.write_credentials(self._home / "credentials")
        with _step("starting the service"):
            jobs = checkout() / "edge_jobs"
            folders = [edge_jar("speck-jobs.jar").parent, jobs / "pyspark", jobs / "python/target"]
            served = self._stack.enter_context(serving(self._home, folders, tls=self._identity))
        client = Client(served.url, tls=served.tls)
        for body in self._fog.site_bodies():
            client.add_site(body)
        self._fog.start_agents(served.url)
        return client

    @property
    def _login(self) -> Credentials:
        return Credentials(tls=self._identity.files) if self._identity else Credentials()

    def _apply(self, client: Client, file: str, what: str) -> int:
        """Apply a composition and wait; returns the number of changed jobs."""
        text = (self._compositions / file).read_bytes()
        with _step(what):
            answer = client.apply(
                text, "application/yaml", revision=self._revision, key=secrets.token_hex(8)
            )
            change = _await_change(client, answer["change"])
        self._revision = answer["revision"]
        if change["state"] != "done":
            raise PermanentError(f"cannot apply {file}: {change['error'] or change['state']}")
        for job in answer["plan"]["jobs"]:
            if job["action"] not in ("unchanged", "add"):
                console.print(f"  {job['action']} {job['job_name']}: {job['reason']}")
        return sum(job["action"] != "unchanged" for job in answer["plan"]["jobs"])

    def _open_outputs(self) -> list[OutputReader]:
        """Of the local statistics of each site, and of the global ones, which are the last."""
        brokers = {site.name: site.broker_address for site in self._fog.sites()}
        composition = yaml.safe_load((self._compositions / self._first).read_bytes())
        outputs = [
            (brokers[each["site"]], each["topic"], each["client_id"])
            for each in composition["outputs"]
        ]
        return [self._stack.enter_context(OutputReader(*output, self._login)) for output in outputs]

    def _run_round(
        self,
        name: str,
        client: Client,
        rows: Sequence[Row],
        readers: Sequence[OutputReader],
        midway: Callable[[], None] | None,
    ) -> Round:
        started = time.monotonic()
        brokers = {site.name: site.broker_address for site in self._fog.sites()}
        options = ReplayOptions(
            brokers={letter: brokers[site] for letter, site in SITES.items()},
            run=name.split()[0],
            rate=self._rate,
            logins=dict.fromkeys(SITES, self._login),
        )
        replay = Replay(rows, options)
        thread = _Worker(replay.run)
        thread.start()
        flows = Flows(self._brokers(), _readings(client))
        with _Screen(name, sum(p.total for p in replay.progress().values())) as screen:
            while thread.is_alive():
                out = sum(p.acked for p in replay.progress().values())
                screen.show(out, flows.poll())
                if midway is not None and out >= CHANGE_AT * screen.total:
                    with screen.pause():
                        midway()
                    midway = None
                thread.join(0.5)
            thread.result()
            local, total = self._await_results(
                rows, readers, lambda: screen.show(screen.total, flows.poll())
            )
        return Round(count_valid(rows), local, total, time.monotonic() - started)

    def _await_results(
        self, rows: Sequence[Row], readers: Sequence[OutputReader], show: Callable[[], None]
    ) -> tuple[Comparison, Comparison]:
        """Wait until all statistics are as expected, at most `RESULT_TIMEOUT_S`."""
        first, last = _window_range(rows)
        expected_local, expected_total = compute_local(rows), compute_global(rows)
        until = time.monotonic() + RESULT_TIMEOUT_S
        while True:
            records = [
                [r for r in reader.records() if first <= r["window_start_ms"] <= last]
                for reader in readers
            ]
            local = compare_local(expected_local, [r for group in records[:-1] for r in group])
            total = compare_global(expected_total, records[-1])
            if (local.equal and total.equal) or time.monotonic() > until:
                return local, total
            show()
            time.sleep(0.3)

    def _brokers(self) -> dict[str, MessageBroker]:
        file = self._home / "credentials" / CREDENTIALS if self._identity else None
        return {
            site.name: open_broker(site.broker, Target(site.broker_address, file))
            for site in self._fog.sites()
        }


def _await_change(client: Client, change_id: str | None) -> JsonObject:
    """Wait until a change has ended and return it (`None`: there was nothing to do)."""
    until = time.monotonic() + CHANGE_TIMEOUT_S
    while change_id is not None:
        change = client.change(change_id)
        if change["state"] in ("done", "failed", "cancelled") or time.monotonic() > until:
            return change
        time.sleep(0.05)
    return {"state": "done"}


class _Worker(threading.Thread):
    """A thread whose exception is raised by `result`."""

    def __init__(self, action: Callable[[], object]):
        super().__init__(daemon=True)
        self._action = action
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._action()
        except BaseException as error:
            self._error = error

    def result(self) -> None:
        self.join()
        if self._error is not None:
            raise self._error


class _Screen:
    """A progress bar and the flow of every link, live on a terminal; elsewhere a line every 5 s."""

    def __init__(self, name: str, total: int):
        self.total = total
        self._name = name
        self._progress = Progress(
            TextColumn(name),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
        )
        self._task = self._progress.add_task(name, total=total)
        self._live: Live | None = None
        self._last_line = 0.0

    def __enter__(self) -> _Screen:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def show(self, out: int, flows: Sequence[Flow]) -> None:
        self._progress.update(self._task, completed=out)
        if self._live is not None:
            self._live.update(_screen(self._progress, flows), refresh=True)
        elif time.monotonic() - self._last_line > 5.0:
            self._last_line = time.monotonic()
            busiest = sorted(flows, key=lambda flow: -flow.per_s)[:3]
            rates = ", ".join(
                f"{f.reading.site}/{f.reading.topic} {f.per_s:.0f}/s" for f in busiest
            )
            console.print(f"{self._name}: {out} of {self.total} out; {rates}")

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop drawing, so that others can print."""
        self._stop()
        yield
        self._start()

    def _start(self) -> None:
        if console.is_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _screen(progress: Progress, flows: Sequence[Flow]) -> Table:
    grid = Table.grid()
    grid.add_row(progress)
    table = Table("link", "writers", "reader", box=None, pad_edge=False)
    for title in ("taken", "msgs/s", "behind"):
        table.add_column(title, justify="right")
    for flow in flows:
        reading = flow.reading
        table.add_row(
            f"{reading.site}/{reading.topic}",
            ", ".join(reading.writers) or "(outside)",
            reading.reader,
            str(flow.messages),
            f"{flow.per_s:.0f}",
            "" if flow.lag is None else str(flow.lag),
        )
    grid.add_row(table)
    return grid


def _readings(client: Client) -> list[Reading]:
    """Every pair of link and reader of the application."""
    jobs = client.jobs()
    writers: dict[tuple[str, str], list[str]] = {}
    for job in jobs:
        sink = (job.get("sink_site") or job["site"], job["sink_topic"])
        writers.setdefault(sink, []).append(job["job_name"])
    readings = []
    for job in jobs:
        source = (job.get("source_site") or job["site"], job["source_topic"])
        readings.append(Reading(*source, job["job_name"], tuple(writers.get(source, []))))
    return sorted(readings, key=lambda reading: (reading.site, reading.topic))


def _shift(row: Row) -> Row:
    """The same row two hours later, so that its windows are new ones."""
    if row.detection is None:
        return row
    return replace(
        row, detection=replace(row.detection, time_ms=row.detection.time_ms + 2 * HOUR_MS)
    )


def _window_range(rows: Sequence[Row]) -> tuple[int, int]:
    times = [row.detection.time_ms for row in rows if row.valid and row.detection]
    return min(times) - 60_000, max(times)


def _show_statistics(readers: Sequence[OutputReader]) -> None:
    """Print the newest statistics of each output."""
    local = Table("site", "sensor", "window", "vehicles", "mean m/s", "occupancy", title="local")
    for reader in readers[:-1]:
        for record in reader.records()[-3:]:
            local.add_row(
                record["site"],
                record["sensor"],
                _clock(record["window_start_ms"]),
                str(record["count"]),
                f"{record['mean_speed_mps']:.1f}",
                f"{record['occupancy']:.3f}",
            )
    total = Table("window", "vehicles", "mean m/s", "by site", "by type", title="global")
    for record in readers[-1].records()[-5:]:
        total.add_row(
            _clock(record["window_start_ms"]),
            str(record["count"]),
            f"{record['mean_speed_mps']:.1f}",
            _pairs(record["sites"]),
            _pairs(record["types"]),
        )
    console.print(local)
    console.print(total)


def _clock(ms: int) -> str:
    return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}"


def _pairs(counts: JsonObject) -> str:
    return " ".join(f"{key} {value}" for key, value in sorted(counts.items()))


@contextmanager
def _step(what: str) -> Iterator[None]:
    started = time.monotonic()
    console.print(f"{what} ...")
    yield
    console.print(f"{what}: {time.monotonic() - started:.1f} s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns 0 only when no detection was lost."""
    parser = argparse.ArgumentParser(prog="speck-demo", description=__doc__)
    parser.add_argument("--rate", type=float, default=1000.0, help="detections per second in total")
    parser.add_argument("--folder", type=Path, default=default_folder().parent / "demo")
    parser.add_argument("--tls", action="store_true", help="encrypt every leg")
    parser.add_argument(
        "--spark",
        action="store_true",
        help="merge in PySpark and Kafka in the cloud, processes at an edge",
    )
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is taken down
    try:
        with Demo(options.folder, options.rate, tls=options.tls, spark=options.spark) as demo:
            result = demo.run()
    except SpeckError as error:
        console.print(f"[red]{error}[/red]")
        return 1
    equal = result.pop("equal")
    print(json.dumps(result), flush=True)
    return 0 if equal and result["lost"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
