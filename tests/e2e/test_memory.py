"""On small heaps a placement that ignores memory ends an engine; one that respects it ends none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

from speck.fog.paths import edge_jar, flink_folder
from speck.fog.service import serving
from speck.fog.sites import Fog
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.placement.model import Limits, Placement
from speck.placement.places import Condition
from speck.placement.policies import find_policy
from speck.placement.problem import pose_question
from speck.placement.wiring import wire
from speck.spec.schema import composition_from_data
from speck.spec.site_schema import site_from_data
from tests.analyses import as_result
from tests.e2e.harness import Speck, change_job, composition, flowing, job
from tests.flink_server import build_jar
from tests.waiting import wait_for

KEYS, BYTES = 2500, 100_000
"""250 MB of state: more than the edge's heap of 184 MB, less than the cloud's of 640 MB."""
HOARD = {"entry_class": "Hoard", "job_path": "hoard.jar", "source_site": "edge-a"}
THIN = {"entry_class": "io.speck.jobs.Burn", "source_site": "edge-a"}
JOBS = composition(
    "memory",
    job(
        "hoard",
        "cloud",
        "m/raw",
        "m/kept",
        **HOARD,
        args=["--keys", str(KEYS), "--bytes", str(BYTES)],
    ),
    job(
        "thin",
        "cloud",
        "m/raw",
        "m/thin",
        **THIN,
        args=["--cpu-us", "1000", "--selectivity", "0.01"],
    ),
    inputs=[("edge-a", "m/raw")],
    outputs=[("cloud", "m/kept", "m-kept"), ("cloud", "m/thin", "m-thin")],
)
"""Both filters save what they do not pass on at the edge, where their data comes from."""
LONG_RUN = Limits(horizon_s=30 * 86_400)


@pytest.fixture
def hoard_jar(tmp_path: Path) -> Path:
    """The folder of a jar with the job that keeps much state; needs a JDK."""
    dist = next(iter(flink_folder().glob("lib/flink-dist*.jar")))
    path = f"{dist}:{edge_jar('speck-flink-connector.jar')}"
    source = Path(__file__).parents[1] / "flink_jobs" / "Hoard.java"
    return build_jar(source, tmp_path / "jars" / "hoard.jar", path).parent


@pytest.fixture
def small(tmp_path: Path, hoard_jar: Path) -> Iterator[Speck]:
    """An edge with a heap of 184 MB, and a cloud with one of 640 MB."""
    with ExitStack() as stack:
        fog = Fog(tmp_path / "fog")
        stack.callback(fog.down)
        fog.up(edges=1, slots=2, cloud_slots=40, checkpoint_interval_s=5.0)
        folders = [hoard_jar, edge_jar("speck-jobs.jar").parent]
        more = {"SPECK_METRICS_S": "2", "XDG_CACHE_HOME": os.devnull}
        service = stack.enter_context(serving(tmp_path / "home", folders, more=more))
        for body in fog.site_bodies():
            answer = requests.post(f"{service.url}/sites", json=body, timeout=30)
            assert answer.status_code == 201, answer.text
        speck = Speck(service.url, fog, hoard_jar, "")
        stack.callback(speck.stack.close)
        yield speck


def is_up(speck: Speck, name: str) -> bool:
    (status,) = [site for site in speck.fog.status() if site.name == name]
    return all(process.running for process in status.processes)


def analyse(speck: Speck) -> JsonObject:
    """An analysis with evidence of both jobs, and of all of hoard's state, which grows no more."""

    def is_kept() -> bool:
        metrics = speck.call("GET", "/jobs/hoard/metrics")
        return (metrics["records_in"] or 0) > 4 * KEYS

    def look() -> JsonObject | None:
        analysis = speck.analyse("memory", window_s=30)
        jobs = {each["job_name"]: each for each in analysis["jobs"]}
        if {each["evidence"] for each in jobs.values()} != {"sufficient"}:
            return None
        hoard = jobs["hoard"]
        is_whole = (hoard["state_bytes"] or 0) > 0.9 * KEYS * BYTES
        return analysis if is_whole and hoard["state_bytes_per_s"] == 0 else None

    wait_for(is_kept, "hoard to have all of its state")
    return wait_for(look, "evidence", 400)  # type: ignore[return-value]


def place_without_memory(speck: Speck, analysis: JsonObject) -> Placement:
    """What `milp` proposes by the same analysis when heaps are not reported, in the long run:
    within an hour a move of all this state would not save what it costs."""
    sites: dict[str, Site] = {
        body["name"]: site_from_data(body) for body in speck.fog.site_bodies()
    }
    blind = {
        **analysis,
        "sites": [{**site, "heap_bytes": None} for site in analysis["sites"]],
    }
    conditions = {"edge-a": Condition(free=2), "cloud": Condition(free=38, held=2)}
    wiring = wire(composition_from_data(JOBS), sites)
    question = pose_question(wiring, "memory", as_result(blind), sites, conditions, LONG_RUN)
    return find_policy("milp").place(question.problem)


@pytest.mark.long
def test_memory_decides_whether_an_engine_lives(small: Speck) -> None:
    for topic, reader in (("m/kept", "m-kept"), ("m/thin", "m-thin")):
        small.reader("cloud", topic, reader)
    small.apply(JOBS)
    with flowing(small.publisher("edge-a", "m/raw")):
        analysis = analyse(small)
        request = {"composition": "memory", "policy": "milp", "analysis": analysis["id"]}
        placed = small.call("POST", "/placements", 201, json=request)
        print({key: placed[key] for key in ("memory_available_bytes", "jobs", "proposed")})
        assert placed["proposed"]["sites"] == {"hoard": "cloud", "thin": "edge-a"}
        assert placed["violations"] == []
        (hoard,) = [each for each in placed["jobs"] if each["job_name"] == "hoard"]
        assert "with it at edge-a, jobs at edge-a need" in hoard["why"][0]
        applied = small.call("POST", f"/placements/{placed['id']}/apply", params={"wait": 120})
        assert applied["state"] == "done"
        assert small.job("thin")["site"] == "edge-a"
        assert is_up(small, "edge-a") and is_up(small, "cloud")

        ignorant = place_without_memory(small, analysis)
        assert ignorant.sites["hoard"] == "edge-a"
        moved = change_job(JOBS, "thin", site="edge-a", sink_site="cloud")
        moved = change_job(moved, "hoard", site="edge-a", sink_site="cloud")
        small.call("POST", "/compositions", 200, 202, json=moved, params={"wait": 1})
        wait_for(lambda: not is_up(small, "edge-a"), "the edge's engine to end", 90)
        assert is_up(small, "cloud")
