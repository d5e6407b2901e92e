"""Placement in an experiment: edges behind a WAN with a service that measures, its analyses and
placements, and what they predict."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bench.cameras import CLOUD
from bench.common import Api, say
from speck.fog.paths import edge_jar
from speck.fog.service import serving
from speck.fog.sites import Fog
from speck.fog.wan import Uplink, Wan
from speck.model.values import JsonObject

ANALYSIS_S = 600.0
"""That an analysis may take: the machine is busy with what is analysed."""


def analyse(api: Api, composition: str, since: float, until: float) -> JsonObject:
    """The analysis of a composition between two moments of time.monotonic."""
    request = {"composition": composition, "since": _moment(since), "until": _moment(until)}
    analysis = _await_analysis(api, api.call("POST", "/analyses", request)["id"])
    if analysis["state"] != "done":
        raise RuntimeError(f"the analysis is {analysis['state']}: {analysis['error']}")
    return analysis


def warm_up(api: Api, ahead_s: float) -> None:
    """Have Spark started, and what an analysis with a forecast needs compiled."""
    request = {"window_s": 60.0, "ahead_s": ahead_s}
    _await_analysis(api, api.call("POST", "/analyses", request)["id"])


def _await_analysis(api: Api, analysis_id: str) -> JsonObject:
    over = ("done", "failed", "cancelled")
    deadline = time.monotonic() + ANALYSIS_S
    while (analysis := api.call("GET", f"/analyses/{analysis_id}"))["state"] not in over:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the analysis does not end in {ANALYSIS_S:g} s: {analysis}")
        time.sleep(0.3)
    return analysis


def place(api: Api, composition: str, policy: str, analysis: JsonObject) -> JsonObject:
    """What a policy proposes by an analysis; those that compare policies want all of its moves."""
    request = {"composition": composition, "policy": policy, "analysis": analysis["id"]}
    request |= {"all_moves": True}
    return api.call("POST", "/placements", request)


def await_change(api: Api, change: str, timeout_s: float = 300.0) -> JsonObject:
    """Wait until a change is done. Raises RuntimeError when it fails."""
    until = time.monotonic() + timeout_s
    while (state := api.call("GET", f"/changes/{change}"))["state"] != "done":
        if time.monotonic() > until or state["state"] == "failed":
            raise RuntimeError(f"change {change} is {state['state']}: {state}")
        time.sleep(0.2)
    return state


def first_entry(api: Api, composition: str, kind: str) -> JsonObject | None:
    """The first entry of that kind in the log of the composition's autopilot."""
    log: list[JsonObject] = api.call("GET", f"/compositions/{composition}/autopilot")["log"]
    return next((entry for entry in log if entry["kind"] == kind), None)


def summarise_prediction(placement: JsonObject) -> JsonObject:
    """The figures of a placement, of today and as proposed, and the moves."""
    figures: JsonObject = {}
    for which in ("today", "proposed"):
        side = placement[which]
        figures |= {
            f"{which}_bytes_per_s": side["wan_bytes_per_s"],
            f"{which}_latency_ms": side["latency_ms"],
            f"{which}_cloud_engine_cores": side["cores"][CLOUD],
            f"{which}_max_rate": side["max_rate"],
        }
    return {
        "moves": {move["job_name"]: move["to"] for move in placement["proposed"]["moves"]},
        "records_per_s": placement["today"]["in_rate"],
        **figures,
        "held_by": placement["proposed"]["held_by"],
        "today_violations": placement["today"]["violations"],
        "violations": placement["violations"],
        "notes": placement["notes"],
        "unmeasured": placement["unmeasured"],
    }


def _moment(at: float) -> str:
    """A moment of time.monotonic as the API wants it."""
    text = datetime.fromtimestamp(at - time.monotonic() + time.time(), UTC)
    return text.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def monotonic_of(text: str) -> float:
    """A moment of the API as one of time.monotonic."""
    return datetime.fromisoformat(text).timestamp() - time.time() + time.monotonic()


@contextmanager
def measured_fog(
    edges: Sequence[str],
    uplink: Uplink,
    *,
    metrics_s: float,
    checkpoint_s: float,
    edge_slots: int = 6,
    speeds: Mapping[str, float] | None = None,
    calibrates: bool = True,
) -> Iterator[tuple[Fog, Api]]:
    """Edges behind uplinks and a cloud, registered with a service that polls every `metrics_s`;
    `calibrates`: and knows their speeds."""
    with tempfile.TemporaryDirectory(prefix="speck-placing-") as folder, ExitStack() as stack:
        fog = Fog(Path(folder) / "fog")
        stack.callback(fog.down)
        say("bringing up edges and a cloud across a WAN")
        fog.up(
            edges=len(edges),
            clouds=1,
            slots=edge_slots,
            cloud_slots=18,
            checkpoint_interval_s=checkpoint_s,
            wan=Wan({CLOUD: Uplink(None, None), **dict.fromkeys(edges, uplink)}),
            wan_mode="namespaces",
            speeds=speeds,
        )
        jars = edge_jar("speck-jobs.jar").parent
        more = {"SPECK_METRICS_S": f"{metrics_s:g}"}
        server = stack.enter_context(serving(Path(folder) / "home", [jars], more=more))
        api = Api(server.url)
        for body in fog.site_bodies():
            api.call("POST", "/sites", body)
        if calibrates:  # a placement that knows no site's speed is of low confidence
            for site in (CLOUD, *edges):  # paces are compared with the cloud's
                say(f"calibrating {site}")
                api.call("POST", f"/sites/{site}/calibration")
        yield fog, api
