"""kill -9 of a broker in full flow: what it had acknowledged and not yet saved is sent again."""

from __future__ import annotations

import time

import pytest

from bench.instruments.checker import Checker
from bench.instruments.duplicate_monitor import DuplicateMonitor
from bench.instruments.feed import Feed
from speck.model.values import JsonObject
from tests.e2e.harness import Speck, await_each_once, composition, job, run_cli
from tests.e2e.killable import RATE, Flow
from tests.waiting import wait_for

AUTOSAVE_S = 6.0
"""Longer than a broker's sessions are not on its disk."""


def chain(name: str) -> JsonObject:
    """<name>-pass at edge-a -> <name>-count at the cloud, whose broker has both their links."""
    at_cloud = {"sink_site": "cloud", "delivery": "exactly_once"}
    return composition(
        name,
        job(f"{name}-pass", "edge-a", f"{name}/in", f"{name}/mid", **at_cloud),
        job(
            f"{name}-count",
            "cloud",
            f"{name}/mid",
            f"{name}/out",
            entry_class="io.speck.jobs.Counting",
            **at_cloud,
        ),
        inputs=[("edge-a", f"{name}/in")],
        outputs=[("cloud", f"{name}/out", f"e2e-{name}")],
    )


def test_a_broker_that_is_killed_loses_and_repeats_nothing(speck: Speck) -> None:
    name = "mortal"
    speck.apply(chain(name))
    engines = {site.name: site.engine_address for site in speck.fog.sites()}
    run = f"{name}-{time.time_ns()}"
    with (
        DuplicateMonitor(engines) as witness,
        Checker(speck.broker("cloud"), f"{name}/out", f"e2e-{name}") as checker,
        Feed(speck.broker("edge-a"), f"{name}/in", rate=RATE, run=run) as feed,
    ):
        flow = Flow(feed, checker, witness, name)
        flow.go_on(int(AUTOSAVE_S * RATE))
        speck.fog.kill("cloud", "broker")
        speck.fog.start("cloud")
        flow.go_on()
        flow.judge()
    assert flow.count is not None
    assert flow.count.repeated == 0, flow.count


def await_autosave(speck: Speck, site: str) -> None:
    folder, now = speck.fog.folder / "sites" / site, time.time_ns()
    wait_for(
        lambda: any(file.stat().st_mtime_ns > now for file in folder.rglob("mosquitto.db")),
        "an autosave",
        30.0,
    )


@pytest.mark.long
def test_what_a_broker_forgets_of_a_job_that_was_removed_is_sent_again(speck: Speck) -> None:
    """Its reader is away all the time, and no sink runs any more."""
    await_autosave(speck, "cloud")  # a kill would bring back what an earlier test has cleared
    name = "left"
    outputs = [("cloud", f"{name}/out", f"e2e-{name}")]
    goes = job(f"{name}-goes", "edge-a", f"{name}/in", f"{name}/out", sink_site="cloud")
    stays = job(f"{name}-stays", "edge-a", f"{name}/other", f"{name}/there")
    speck.apply(composition(name, goes, stays, outputs=outputs))
    publisher = speck.publisher("edge-a", f"{name}/in")
    publisher.count(range(1, 501))
    wait_for(lambda: speck.count_taken(f"{name}-goes", "edge-a", f"{name}/in") == 500)
    speck.apply(composition(name, stays, outputs=outputs))
    speck.fog.kill("cloud", "broker")
    speck.fog.start("cloud")

    def is_sent_again() -> bool:
        result = run_cli(speck, "events", "--job", f"{name}-goes", "-o", "json")
        return ": sent again" in result.stdout

    wait_for(is_sent_again, "what was forgotten", 60.0)
    await_each_once(500, speck.reader("cloud", f"{name}/out", f"e2e-{name}"))
