"""The traffic application: 17 jobs on four sites, three of them changed while data flows."""

from __future__ import annotations

import threading
from pathlib import Path

import yaml

from speck.fog.publisher import ReplayOptions
from speck.fog.replay import Replay
from speck.fog.trace import read_trace
from tests.e2e.harness import Speck, actions
from tests.waiting import wait_for
from traffic.reference import compare_global, compare_local, compute_global, compute_local

TRAFFIC = Path(__file__).parents[2] / "compositions" / "traffic"
SITES = {"A": "edge-a", "B": "edge-b", "C": "edge-c"}
ROWS = 3000


def test_every_statistic_is_right_though_three_jobs_change(speck: Speck) -> None:
    rows = read_trace(TRAFFIC / "trace" / "trace.csv.gz")[:ROWS]
    speck.apply(yaml.safe_load((TRAFFIC / "fog.yaml").read_text()))
    assert len(speck.running()) == 17
    local = [
        speck.reader(site, f"traffic/{letter}/local", f"demo-local-{letter.lower()}")
        for letter, site in SITES.items()
    ]
    total = speck.reader("cloud", "traffic/global", "demo-global")
    brokers = {letter: speck.broker(site) for letter, site in SITES.items()}
    replay = Replay(rows, ReplayOptions(brokers, run="e2e", rate=500))
    thread = threading.Thread(target=replay.run, daemon=True)
    thread.start()
    wait_for(
        lambda: sum(it.acked for it in replay.progress().values()) > ROWS / 3,
        "a third of the replay",
    )

    answer = speck.apply(yaml.safe_load((TRAFFIC / "fog-changed.yaml").read_text()))

    changes = {name: action for name, action in actions(answer).items() if action != "unchanged"}
    assert changes == {"clean-a2": "update", "forward-b": "move", "local-stats-c": "update"}
    thread.join(60)
    assert not thread.is_alive()

    def difference() -> str:
        comparison = compare_local(compute_local(rows), [r for it in local for r in it.records()])
        totals = compare_global(compute_global(rows), total.records())
        return "" if comparison.equal and totals.equal else f"local: {comparison}; global: {totals}"

    try:
        wait_for(lambda: not difference(), "the reference's statistics", 40)
    except AssertionError:
        raise AssertionError(difference()) from None
    assert [it.unreadable for it in (*local, total)] == [[], [], [], []]
