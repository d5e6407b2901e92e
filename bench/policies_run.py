"""One measured run of an application under a placement, and the analysis that all placements of it
are made from."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from bench.common import Api, is_quick, say
from bench.detections import STREAMS, edge_of
from bench.moved import Watch
from bench.placing import analyse, measured_fog, place, summarise_prediction
from bench.policies_apps import Application, Flow
from speck.fog.sites import Fog
from speck.fog.wan import Uplink
from speck.model.values import JsonObject

UP_MBPS, DOWN_MBPS, LATENCY_MS = 2.0, 10.0, 9.3
EDGE_CORES = 0.5
METRICS_S = 2.0 if is_quick() else 4.0
CHECKPOINT_S = 10.0
STEADY_S = 3.0
"""Arrivals are counted in steps of so many seconds; two alike in a row are steady."""
CLOSE = 0.1
MOST_UNSTEADY_S = 12.0 if is_quick() else 40.0


@dataclass(frozen=True, slots=True)
class Course:
    """Seconds: that the engine is watched while idle, at least until it is measured, and that it is
    measured under each policy."""

    idle_s: float
    lead_s: float
    seconds: float


class Bench:
    """Edges and a cloud; one application at a time."""

    def __init__(self, fog: Fog, api: Api) -> None:
        self._fog, self._api = fog, api
        self._brokers = {site.name: site.broker_address for site in fog.sites()}
        self._edges = [site.name for site in fog.sites() if site.name.startswith("edge-")]
        self._deployed: str | None = None

    # -- the analysis -----------------------------------------------------------------------

    def analysed(self, app: Application, policies: Sequence[str], course: Course) -> JsonObject:
        """Everything in the cloud: what the cloud's engine uses while idle, an analysis under
        load, and the placement that each policy makes of it."""
        self._deploy(app.composition())
        time.sleep(course.idle_s / 2)  # a job that has just begun is busy with that
        watch = Watch(self._fog)
        idle_from = time.monotonic()
        time.sleep(course.idle_s)
        idle_cores = watch.engine_cores(idle_from, time.monotonic())
        watch.close()
        with app.flowing(self._brokers) as flow:
            self._load_up(flow, course.lead_s)
            since = time.monotonic()
            say(f"  measuring for {app.evidence_s:g} s")
            time.sleep(app.evidence_s)
            until = time.monotonic()
            self._drain(flow)
        say("  analysing")
        analysis = analyse(self._api, app.composition()["name"], since, until)
        name = app.composition()["name"]
        return {
            "idle_cloud_cores": idle_cores,
            "placements": {
                policy: _outcome(place(self._api, name, policy, analysis)) for policy in policies
            },
        }

    # -- one policy --------------------------------------------------------------------------

    def measured(self, app: Application, placement: JsonObject, course: Course) -> JsonObject:
        """The figures under a placement; the uplinks are opened at the end, and everything comes
        through."""
        began = time.monotonic()
        self._deploy(yaml.safe_load(placement["yaml"]))
        deployed_s = time.monotonic() - began
        watch = Watch(self._fog)
        try:
            with app.flowing(self._brokers) as flow:
                self._load_up(flow, course.lead_s)
                sent, since = flow.sent(), time.monotonic()
                time.sleep(course.seconds)
                offered, until = flow.sent() - sent, time.monotonic()
                watch.rest()
                totals = self._drain(flow)
                figures = flow.summarise(since, until)
        finally:
            watch.close()
        return {
            "deployed_s": round(deployed_s, 2),
            "offered_per_s": offered / (until - since),
            **figures,
            "wan_bytes_per_s": watch.up_per_s(since, until),
            "cloud_engine_cores": watch.engine_cores(since, until),
            "machine_cpu": watch.cpu(since, until),
            **totals,
        }

    # -- parts -------------------------------------------------------------------------------

    def _deploy(self, content: JsonObject) -> None:
        name = content["name"]
        if self._deployed not in (None, name):
            self._api.call(
                "DELETE",
                f"/compositions/{self._deployed}",
                wait=300,
                drop_queues="true",
                drain_limit=0,
            )
        self._api.apply(content)
        self._deployed = name

    def _load_up(self, flow: Flow, lead_s: float) -> None:
        """Close the uplinks to their rate, and wait until what arrives is steady."""
        self._shape(Uplink(UP_MBPS, DOWN_MBPS, LATENCY_MS))
        time.sleep(lead_s)
        limit, before = time.monotonic() + MOST_UNSTEADY_S, -1.0
        while time.monotonic() < limit:
            came = flow.arrived()
            time.sleep(STEADY_S)
            now = float(flow.arrived() - came)
            if before > 0 and abs(now - before) <= CLOSE * before:
                return
            before = now
        say(f"  arrivals are not steady after {MOST_UNSTEADY_S:g} s")

    def _drain(self, flow: Flow) -> JsonObject:
        self._shape(Uplink(None, None, LATENCY_MS))
        return flow.end()

    def _shape(self, uplink: Uplink) -> None:
        for edge in self._edges:
            self._fog.shape(edge, uplink)


def _outcome(placement: JsonObject) -> JsonObject:
    return {
        **summarise_prediction(placement),
        "sites": placement["proposed"]["sites"],
        "optimal": placement["optimal"],
        "yaml": placement["yaml"],
    }


@contextmanager
def prepared() -> Iterator[Bench]:
    """Three edges (in a trial one), each with a share of a core, and a cloud without a limit."""
    edges = ["edge-a"] if is_quick() else [edge_of(site) for site in STREAMS]
    options: dict[str, Any] = {"metrics_s": METRICS_S, "checkpoint_s": CHECKPOINT_S}
    with measured_fog(
        edges,
        Uplink(UP_MBPS, DOWN_MBPS, LATENCY_MS),
        # a trial has no time for calibrations, without which a quota is not known
        speeds=None if is_quick() else dict.fromkeys(edges, EDGE_CORES),
        calibrates=not is_quick(),
        **options,
    ) as (fog, api):
        yield Bench(fog, api)
