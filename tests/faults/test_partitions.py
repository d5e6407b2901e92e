"""The way between the service and a site is cut, flaps, or is slow, in the middle of a change."""

from __future__ import annotations

import pytest

from tests.faults.test_requests import RUN, STOP
from tests.faults.trial import PAUSE, Trial, assert_nothing_lost, report

pytestmark = pytest.mark.long


def cut(trial: Trial, site: str, seconds: float) -> None:
    """The service reaches neither engine nor broker of the site for so long."""
    for proxy in trial.proxies[site].values():
        proxy.set("blackhole")
    PAUSE.wait(seconds)  # how long the fault lasts, not a wait for something
    for proxy in trial.proxies[site].values():
        proxy.set()


@pytest.mark.parametrize(
    ("site", "seconds"),
    [
        ("cloud", 5),
        ("edge-b", 5),
        ("cloud", 30),
        ("edge-b", 30),
        ("cloud", 120),
        ("edge-b", 120),
    ],
)
def test_partition_in_mid_move(trial: Trial, site: str, seconds: int) -> None:
    with trial.flowing() as flow:
        pattern = STOP if site == "cloud" else RUN
        trap = trial.proxies[site]["engine"].trap("lose the answer", pattern)
        change = trial.begin(trial.chain(second_at="edge-b"))
        assert trap.sprung.wait(240)
        cut(trial, site, seconds)
        trial.await_change(change)
        flow.recovered()
        result = flow.finish()
    which = "source" if site == "cloud" else "target"
    expected = "blocked, goes on when the site answers"
    report(f"partition from the {which} in mid-move ({seconds} s)", expected, trial, result)
    assert_nothing_lost(trial, result)


def test_flapping_in_mid_change(trial: Trial) -> None:
    """Up for 1.5 s, down for 1 s, during five moves."""
    with trial.flowing() as flow:
        for proxies in trial.proxies.values():
            proxies["engine"].flap(1.5, 1.0)
        for number in range(5):
            trial.apply(trial.chain(second_at=("edge-b", "cloud")[number % 2], note=number))
        for proxies in trial.proxies.values():
            proxies["engine"].set()
        flow.recovered()
        result = flow.finish()
    report("flapping sites, five moves", "every change ends done", trial, result)
    assert_nothing_lost(trial, result)


def test_slow_uplink(trial: Trial) -> None:
    """64 kbit/s between the service and an edge; the jar is there already."""
    with trial.flowing() as flow:
        trial.apply(trial.chain(second_at="edge-b"))
        trial.apply(trial.chain())
        trial.proxies["edge-b"]["engine"].set(bits_per_s=64_000)
        trial.apply(trial.chain(second_at="edge-b", note=1))
        flow.recovered()
        result = flow.finish()
    report("64 kbit/s uplink of the target", "slow, complete", trial, result)
    assert_nothing_lost(trial, result)
