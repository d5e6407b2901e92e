"""State travels with a job, and a stopped job misses nothing."""

from __future__ import annotations

from tests.e2e.harness import Speck, actions, await_each_once, change_job, composition, job
from tests.waiting import wait_for

WINDOW_MS = 60_000


def detection(number: int, time_ms: int) -> dict[str, object]:
    return {
        "id": number,
        "stream": "A1",
        "time_ms": time_ms,
        "sensor": "A1-01",
        "vehicle": f"v{number}",
        "speed_mps": 10.0,
        "length_m": 5.0,
        "type": "car",
    }


def test_a_window_goes_on_through_an_update_and_a_move(speck: Speck) -> None:
    args = ["--site", "A", "--streams", "A1", "--window", "60s"]
    stats = composition(
        "windows",
        job(
            "w-stats",
            "edge-a",
            "w/in",
            "w/out",
            entry_class="io.speck.jobs.LocalStats",
            args=args,
        ),
        inputs=[("edge-a", "w/in")],
        outputs=[("edge-a", "w/out", "e2e-windows")],
    )
    speck.apply(stats)
    sensor = speck.publisher("edge-a", "w/in")
    out = speck.reader("edge-a", "w/out", "e2e-windows")

    def pass_cars(first: int, last: int) -> None:
        sensor.send(*(detection(number, 1000 * number) for number in range(first, last + 1)))
        wait_for(lambda: speck.count_taken("w-stats", "edge-a", "w/in") >= last, "the job's state")

    pass_cars(1, 3)
    updated = change_job(stats, "w-stats", args=[*args, "--idle-limit", "100s"])
    assert actions(speck.apply(updated)) == {"w-stats": "update"}
    pass_cars(4, 5)
    moved = change_job(updated, "w-stats", site="edge-b", source_site="edge-a", sink_site="edge-a")
    assert actions(speck.apply(moved)) == {"w-stats": "move"}
    assert speck.job("w-stats")["site"] == "edge-b"
    assert out.records() == []  # the window is still open
    pass_cars(6, 6)
    sensor.send({"end": True, "stream": "A1", "time_ms": 7000})

    (result,) = wait_for(out.records, "the window's result")
    assert result["count"] == 6
    assert result["revision"] == 0
    assert result["occupancy"] == 6 * 500 / WINDOW_MS


def test_a_stopped_job_misses_nothing(speck: Speck) -> None:
    two = composition(
        "pause",
        job("p-1", "edge-a", "p/in", "p/mid", sink_site="edge-c"),
        job("p-2", "edge-c", "p/mid", "p/out"),
        inputs=[("edge-a", "p/in")],
        outputs=[("edge-c", "p/out", "e2e-pause")],
    )
    speck.apply(two)
    source = speck.publisher("edge-a", "p/in")
    out = speck.reader("edge-c", "p/out", "e2e-pause")
    source.count(range(1, 51))

    for stopped in ("p-2", "p-1"):
        before = speck.job(stopped)["engine_job_id"]
        answer = speck.apply(change_job(two, stopped, state="stopped"))
        reason = {it["job_name"]: it["reason"] for it in answer["plan"]["jobs"]}[stopped]
        assert reason == "state running -> stopped"
        assert speck.job(stopped)["state"] == "stopped"
        assert len(speck.running()) == 1
        assert speck.call("GET", "/compositions/pause/drift") == {"drift": []}
        first = 51 if stopped == "p-2" else 151
        source.count(range(first, first + 100))
        speck.apply(two)
        assert speck.job(stopped)["state"] == "running"
        assert speck.job(stopped)["engine_job_id"] != before

    source.count(range(251, 301))
    await_each_once(300, out)


def test_what_ran_before_comes_back_with_its_state_when_an_update_cannot_start(
    speck: Speck,
) -> None:
    """The window's state fits no operator of the other class: Flink refuses the start."""
    args = ["--site", "A", "--streams", "A1", "--window", "60s"]
    stats = composition(
        "back",
        job(
            "b-stats", "edge-a", "b/in", "b/out", entry_class="io.speck.jobs.LocalStats", args=args
        ),
        inputs=[("edge-a", "b/in")],
        outputs=[("edge-a", "b/out", "e2e-back")],
    )
    speck.apply(stats)
    sensor = speck.publisher("edge-a", "b/in")
    out = speck.reader("edge-a", "b/out", "e2e-back")
    sensor.send(*(detection(number, 1000 * number) for number in range(1, 4)))
    wait_for(lambda: speck.count_taken("b-stats", "edge-a", "b/in") >= 3, "the job's state")

    other = change_job(stats, "b-stats", entry_class="io.speck.jobs.PassThrough", args=[])
    answer = speck.apply(other, state="failed")
    change = speck.call("GET", f"/changes/{answer['change']}")
    assert change["error"].endswith("; b-stats came back as attempt 3 on edge-a")
    assert [o["state"] for o in change["operations"] if o["kind"] == "return"] == ["done"]
    assert len(speck.running()) == 1

    sensor.send(*(detection(number, 1000 * number) for number in range(4, 7)))
    sensor.send({"end": True, "stream": "A1", "time_ms": 7000})
    (result,) = wait_for(out.records, "the window's result")
    assert result["count"] == 6
