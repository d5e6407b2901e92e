"""The paper's listings 1.1 and 1.2 on real Flink and Mosquitto, with numbered messages flowing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from speck.model.values import JsonObject
from tests.e2e.harness import Speck, actions, await_each_once, flowing

COMPOSITIONS = Path(__file__).parents[2] / "compositions"

HOSTS = {
    "172.16.39.7": "edge-a",
    "172.16.48.8": "edge-b",
    "172.16.192.18": "edge-c",
    "172.16.177.7": "cloud",
    # four sites play the listings' five: D comes to where A is
    "172.16.177.20": "edge-a",
    "172.16.193.22": "edge-a",
}


def listing(speck: Speck, number: str) -> JsonObject:
    """The listing with the fog's addresses and our job; both places of its output are read."""
    data = yaml.safe_load((COMPOSITIONS / f"listing-{number}.yaml").read_text())
    sites = {site.name: site for site in speck.fog.sites()}
    for job in data["jobs"]:
        for key, value in job.items():
            host = next((host for host in HOSTS if f"//{host}:" in value), None)
            if host is not None:
                site = sites[HOSTS[host]]
                job[key] = site.engine_address if key == "spe_address" else site.broker_address
        job |= {"entry_class": "io.speck.jobs.PassThrough", "job_path": "speck-jobs.jar"}
    outputs = [
        {"site": site, "topic": "T-D-total", "client_id": f"e2e-{site}"}
        for site in ("cloud", "edge-a")
    ]
    return {"name": "default", **data, "outputs": outputs}


def incarnation(speck: Speck, job_name: str) -> tuple[Any, ...]:
    """Which incarnation runs and since when, in the engine's own words."""
    job = speck.job(job_name)
    flink = speck.engine(job["site"], f"/jobs/{job['engine_job_id']}")
    return job["engine_job_id"], flink["state"], flink["start-time"]


def test_from_listing_1_1_to_1_2_while_messages_flow(speck: Speck) -> None:
    speck.apply(listing(speck, "1.1"))
    before = {name: incarnation(speck, name) for name in "ABCD"}
    readers = [speck.reader(site, "T-D-total", f"e2e-{site}") for site in ("cloud", "edge-a")]

    with flowing(speck.publisher("edge-a", "T-1", plain=True)) as flow:
        answer = speck.apply(listing(speck, "1.2"))
        flow.go_on()
        count = flow.end()

    assert actions(answer) == {
        "A": "unchanged",
        "B": "remove",
        "C": "update",
        "C2": "add",
        "D": "move",
    }
    assert not [it for it in answer["plan"]["operations"] if it["job_name"] == "A"]
    assert incarnation(speck, "A") == before["A"]
    await_each_once(count, *readers)
    assert readers[0].records() and readers[1].records()
    assert len(speck.running()) == 4
    assert speck.call("GET", "/compositions/default/drift") == {"drift": []}
