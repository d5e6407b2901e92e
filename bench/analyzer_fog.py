"""Analyses as a user meets them: `beside_a_fog` of bench.analyzer.

A quiet fog of four sites runs the 17 jobs of the traffic application at 200 records a second; its
service polls every 5 s and warms the analyzer up. Once enough samples are there, an analysis is
asked for, and then ten more in a row, and some while 20 processes keep the machine busy. Then the
analyzer is killed, and the next analysis starts a new one (`cold_s`). As for an unprivileged user,
nobody may lower a nice value: what lowers its priority stays there.
"""

from __future__ import annotations

import ctypes
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil

from bench import cameras
from bench.arrivals import Arrivals
from bench.common import Api, fog_with_service, is_quick, say
from bench.detections import DetectionFeed, edge_of, templates
from speck.model.values import JsonObject

RECORDS_PER_S = 200
SAMPLES_S = 20.0 if is_quick() else 170.0
"""Some 570 samples."""
ASKED, ASKED_UNDER_LOAD, LOAD = (2, 1, 4) if is_quick() else (10, 5, 20)
SETTLE_S = 5.0 if is_quick() else 30.0
"""From the begin of the load: until the machine's queue is as long as it gets."""
_PR_CAPBSET_DROP, _CAP_SYS_NICE = 24, 23


def measure_beside_a_fog() -> JsonObject:
    """The series; ends its fog."""
    _drop_nice()
    with ExitStack() as stack:
        more = {"SPECK_ANALYZER_WARM": "1", "SPECK_METRICS_S": "5"}
        fog, api = stack.enter_context(fog_with_service(3, 1, 18, more=more))
        composition = cameras.laid_out()
        brokers = {site.name: site.broker_address for site in fog.sites()}
        outputs = [(o["client_id"], brokers[o["site"]], o["topic"]) for o in composition["outputs"]]
        stack.enter_context(Arrivals(outputs))
        api.apply(composition)
        stack.enter_context(_feed(brokers))
        say("collecting samples")
        time.sleep(SAMPLES_S)
        return {"jobs": len(composition["jobs"]), "records_per_s": RECORDS_PER_S, **_ask_all(api)}


def _ask_all(api: Api) -> JsonObject:
    first, samples = _ask(api)
    then = [_ask(api)[0] for _ in range(ASKED)]
    resident_mb = _find_analyzer_mb()
    with _loaded():
        time.sleep(SETTLE_S)
        loaded = [_ask(api)[0] for _ in range(ASKED_UNDER_LOAD)]
    for process in _list_analyzer():
        process.kill()
    cold, _ = _ask(api)
    row = {
        "samples": samples,
        "first_s": first,
        "then_s": then,
        "most_s": max(then),
        "load": LOAD,
        "loaded_s": loaded,
        "loaded_median_s": round(statistics.median(loaded), 2),
        "cold_s": cold,
        "resident_mb": resident_mb,
    }
    say(f"beside a fog: {row}")
    return row


def _ask(api: Api) -> tuple[float, int]:
    """Seconds from the request of an analysis to its answer, and its samples."""
    began = time.perf_counter()
    path = f"/analyses/{api.call('POST', '/analyses', {'window_s': 600.0})['id']}"
    while (analysis := api.call("GET", path))["state"] == "running":
        time.sleep(0.05)
    if analysis["state"] != "done":
        raise RuntimeError(f"the analysis {analysis['state']}: {analysis['error']}")
    return round(time.perf_counter() - began, 2), analysis["samples"]["rows"]


@contextmanager
def _feed(brokers: dict[str, str]) -> Iterator[None]:
    sites = cameras.sites()
    with DetectionFeed(
        {site: brokers[edge_of(site)] for site in sites},
        interval_ms=1000 * len(sites) / RECORDS_PER_S,
        window_ms=cameras.WINDOW_MS,
        run=secrets.token_hex(4),
        detections=templates(2),
        encoder=cameras.camera,
    ):
        yield


@contextmanager
def _loaded() -> Iterator[None]:
    """Processes that never wait."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOAD)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _list_analyzer() -> list[psutil.Process]:
    """The analyzer's process of the service, and its JVM."""
    for process in psutil.Process().children(recursive=True):
        words = process.cmdline() if process.is_running() else []
        if "speck.analyzer" in words:
            return [*process.children(recursive=True), process]
    return []


def _find_analyzer_mb() -> int:
    return round(sum(each.memory_info().rss for each in _list_analyzer()) / 2**20)


def _drop_nice() -> None:
    """What this process starts may not lower a nice value, although it may be root's."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_CAPBSET_DROP, _CAP_SYS_NICE, 0, 0, 0)  # refused to those who may not anyway
