"""The Flink connector before and after its link core became one that knows no engine and no broker:
the same job over MQTT with the jars of both, which take turns.

The earlier jars are built from this repository's history, in bench/raw/before. Where that is cut
off there is nothing to compare with.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.common import RAW, is_quick, say
from bench.load import Measured, Order
from bench.runner import RECEIVE_MAXIMUM, Job, lab, scratch, submitted
from speck.fog.paths import EDGE_JOBS_VARIABLE, cache_folder, checkout
from speck.model.values import JsonObject

BEFORE = "85cabbcd^"
"""The last commit before the link core."""
ROUNDS = 1 if is_quick() else 3
WINDOW = 2000
PAYLOAD = 100
WARM_UP_S = 1.0 if is_quick() else 9.0
SECONDS = 1.0 if is_quick() else 5.0
WANTED = 0.97
_OLD_CONNECTOR, _CONNECTOR = "speck-mqtt-connector.jar", "speck-flink-connector.jar"
_JARS = ("speck-jobs.jar", "speck-runtime.jar", "speck-exit-guard.jar")


def measure() -> JsonObject | None:
    """`{"ratio", "msgs_per_s": {"before", "after"}, "rounds", ...}`; None: the history has no
    earlier connector."""
    folder = build_before(RAW / "before")
    if folder is None:
        return None
    rates: dict[str, list[float]] = {"before": [], "after": []}
    for number in range(1, ROUNDS + 1):
        for what, jars in (("before", folder), ("after", None)):
            result = _measure_once(jars)
            say(f"connector, round {number}, {what}: {result.msgs_per_s:.0f}/s")
            rates[what].append(result.msgs_per_s)
    medians = {what: statistics.median(each) for what, each in rates.items()}
    return {
        "before": BEFORE,
        "ratio": round(medians["after"] / medians["before"], 3),
        "msgs_per_s": {what: round(each) for what, each in medians.items()},
        "rounds": {what: [round(rate) for rate in each] for what, each in rates.items()},
        "qos": 1,
        "bytes": PAYLOAD,
    }


def _measure_once(jars: Path | None) -> Measured:
    source = "before-after"
    order = Order(source, f"{source}/out", 1, PAYLOAD, WINDOW, 0, WARM_UP_S, SECONDS)
    windows = {"receive-maximum": str(RECEIVE_MAXIMUM), "sink-window": str(WINDOW)}
    with _using(jars), scratch() as folder, lab(folder, WINDOW, 1.0) as running:
        job = Job(order.source, order.sink, "at_least_once", windows)
        with submitted(running.engine, running.broker, job):
            return running.run("job", order)


@contextmanager
def _using(jars: Path | None) -> Iterator[None]:
    """Engines and load generators run with these jars (None: with the checkout's)."""
    before = os.environ.pop(EDGE_JOBS_VARIABLE, None)
    try:
        if jars is not None:
            os.environ[EDGE_JOBS_VARIABLE] = str(jars)
        yield
    finally:
        os.environ.pop(EDGE_JOBS_VARIABLE, None)
        if before is not None:
            os.environ[EDGE_JOBS_VARIABLE] = before


def build_before(folder: Path) -> Path | None:
    """The folder of the earlier jars, built there unless they are; None: they cannot be."""
    jars = folder / "jars"
    if jars.is_dir():
        return jars
    sources = folder / "sources"
    shutil.rmtree(folder, ignore_errors=True)
    sources.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", BEFORE, "edge_jobs"], cwd=checkout(), capture_output=True
    )
    if archive.returncode != 0:
        say(f"cannot compare with an earlier connector: {archive.stderr.decode().strip()}")
        return None
    subprocess.run(["tar", "-x", "-C", str(sources)], input=archive.stdout, check=True)
    say("building the earlier connector")
    subprocess.run(
        [
            *("mvn", "-q", "-B", "-ntp", "-DskipTests", "-f", str(sources / "edge_jobs/pom.xml")),
            *(f"-Dmaven.repo.local={cache_folder() / 'm2'}", "package"),
        ],
        check=True,
    )
    fresh = folder / "fresh"
    fresh.mkdir()
    for name in (_OLD_CONNECTOR, *_JARS):
        (jar,) = (sources / "edge_jobs").glob(f"*/target/{name}")
        shutil.copy(jar, fresh / name.replace(_OLD_CONNECTOR, _CONNECTOR))
    return fresh.rename(jars)
