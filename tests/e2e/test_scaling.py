"""A job is scaled under a rate that more than doubles, on a real engine: by the autopilot, and by
`speck scale`."""

from __future__ import annotations

import json
import threading
import time

import pytest

from speck.model.values import JsonObject
from tests.e2e.harness import Publisher, Speck, await_all, composition, job, run_cli
from tests.waiting import wait_for

CPU_MS = 4.0
"""A subtask handles 250 records/s at most, and is planned to handle 200."""
HEAVY = composition(
    "heavy",
    job(
        "heavy",
        "cloud",
        "heavy/raw",
        "heavy/done",
        entry_class="io.speck.jobs.Burn",
        args=["--cpu-us", str(int(CPU_MS * 1000))],
    ),
    inputs=[("cloud", "heavy/raw")],
    outputs=[("cloud", "heavy/done", "heavy-reader")],
)


class Load:
    """Publishes numbers at a rate that can be changed, until it is ended."""

    def __init__(self, publisher: Publisher, per_s: float):
        self.per_s, self.sent = per_s, 0
        self._publisher = publisher
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            self._publisher.count(range(self.sent + 1, self.sent + 11))
            self.sent += 10
            due = max(due, time.monotonic() - 1.0) + 10 / self.per_s

    def end(self) -> int:
        """Stop publishing; returns how many were sent."""
        self._over.set()
        self._thread.join()
        return self.sent


@pytest.mark.alone
@pytest.mark.long
def test_a_job_whose_input_doubles_gets_a_second_subtask_and_keeps_up(speck: Speck) -> None:
    reader = speck.reader("cloud", "heavy/done", "heavy-reader")
    speck.apply(HEAVY)
    load = Load(speck.publisher("cloud", "heavy/raw"), 120.0)
    settings = {"on": True, "scale": True, "policy": "stay", "agreeing": 1}
    settings |= {"every_s": 30.0, "settle_s": 20.0}
    speck.call("PUT", "/compositions/heavy/autopilot", json=settings)

    def log() -> list[JsonObject]:
        entries: list[JsonObject] = speck.call("GET", "/compositions/heavy/autopilot")["log"]
        return entries

    at_rest = "everything is already where the policy wants it"
    wait_for(lambda: any(at_rest in entry["message"] for entry in log()), log)
    assert speck.job("heavy")["parallelism"] == 1
    load.per_s = 300.0
    wait_for(lambda: speck.job("heavy")["parallelism"] == 2, log)
    (act,) = [entry for entry in log() if entry["kind"] == "act"]
    assert "scales heavy to 2 subtasks" in act["message"]

    def keeps_up() -> bool:
        rate = speck.call("GET", "/jobs/heavy/metrics")["in_rate"]
        return rate is not None and rate > 1000 / CPU_MS

    wait_for(keeps_up, "more than one subtask can handle")
    await_all(load.end(), reader)


def propose(speck: Speck) -> list[tuple[int, int]]:
    """Subtasks of each measured job, as they are and as proposed, by an analysis of now."""
    run_cli(speck, "analyze", "heavy", "--window", "20s")
    scales = json.loads(run_cli(speck, "scale", "heavy", "-o", "json").stdout)["scales"]
    return [(each["from"], each["to"]) for each in scales]


@pytest.mark.alone
@pytest.mark.long
def test_scale_proposes_and_applies_a_second_subtask(speck: Speck) -> None:
    reader = speck.reader("cloud", "heavy/done", "heavy-reader")
    speck.apply(HEAVY)
    load = Load(speck.publisher("cloud", "heavy/raw"), 120.0)

    def has_worked() -> bool:
        return (speck.call("GET", "/jobs/heavy/metrics")["records_in"] or 0) > 1000

    wait_for(has_worked, "the job to have been measured")
    wait_for(lambda: propose(speck) == [(1, 1)], "evidence that one subtask is enough", 400)
    load.per_s = 300.0
    wait_for(lambda: propose(speck) == [(1, 2)], "evidence that two are needed", 400)
    run_cli(speck, "scale", "heavy", "--apply", "--yes")
    assert speck.job("heavy")["parallelism"] == 2
    await_all(load.end(), reader)
