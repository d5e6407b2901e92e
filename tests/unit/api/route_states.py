"""What a test of a route lets happen before: states of an application and its sites."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from speck.binding import Transfer
from speck.errors import EngineRefusedError, StoreFullError
from speck.model.analysis import AnalysisHead, AnalysisState
from speck.model.shown import render
from speck.model.site import AgentReport
from tests.analyses import Given, analysis, as_result, describe_measured
from tests.calibrating import count_units, make_job_jar
from tests.memory_fog import jar_bytes
from tests.unit.api.bench import Bench, composition, job

DEMO = composition(
    job("A", sink_topic="AB"),
    job("B", source_site="edge-a", site="cloud", source_topic="AB"),
)
JAR = jar_bytes()
SHA256 = hashlib.sha256(JAR).hexdigest()


def engine(bench: Bench, name: str = "edge-a") -> Any:
    return bench.world.engine(f"http://{name}:8081")


def hold(bench: Bench) -> None:
    engine(bench).hold_starts = True


def hold_savepoints(bench: Bench) -> None:
    engine(bench).hold_savepoints = True


def held_change(bench: Bench) -> None:
    """A change of composition `demo` that waits for a start."""
    hold(bench)
    changed = composition(job("A", args=["x"], sink_topic="AB"), *DEMO["jobs"][1:])
    bench.client.post("/compositions", json=changed)
    bench.wait_for_operation("start", "running")


def blocked_change(bench: Bench) -> None:
    """A change of composition `other` whose broker does not answer."""
    bench.world.broker("tcp://edge-b:1883").unreachable = True
    bench.client.post("/compositions", json=composition(job("X", site="edge-b"), name="other"))
    bench.wait_until_blocked()


def refusing(bench: Bench) -> None:
    engine(bench).refuse("submit", 1, EngineRefusedError("cannot start: the main has a fault"))


def away(bench: Bench) -> None:
    engine(bench).unreachable = True


def broker_away(bench: Bench) -> None:
    bench.world.broker("tcp://edge-b:1883").unreachable = True


def records(*records: Any, **more: Any) -> dict[str, Any]:
    return {"site": "edge-a", "topic": "a", "records": list(records), **more}


def artifact(bench: Bench) -> None:
    bench.client.put(f"/artifacts/{SHA256}", data=JAR)


def full(bench: Bench) -> None:
    """The disk has less space than is reserved for work in progress."""

    def refuse() -> None:
        raise StoreFullError("cannot write to the store: free space until it has 5 bytes")

    bench.service.records.store.check_writable = refuse  # type: ignore[method-assign]


def token(bench: Bench) -> None:
    bench.client.environ_base["HTTP_AUTHORIZATION"] = (
        f"Bearer {bench.service.tokens.add('root', 'admin')}"
    )


def carrying(bench: Bench) -> None:
    """The state of job A is to go from edge-a to edge-b."""
    for name in ("edge-a", "edge-b"):
        bench.service.agents.heartbeat(name, AgentReport(state_folder="/state"))
    bench.service.agents.carry(Transfer("t", "A", "e", "edge-a", "edge-b", "/state/x"))


def fetching(bench: Bench) -> None:
    """By the relay; the agent of edge-b has asked for the first piece."""
    carrying(bench)
    bench.service.agents.transfers.relay("t", by_source=True).take(0, 0.0)


def on_its_way(bench: Bench) -> None:
    fetching(bench)
    bench.service.agents.transfers.relay("t", by_source=True).put(0, 5, b"12")


def calibrating(bench: Bench) -> None:
    make_job_jar(bench.service)
    count_units(bench.service, {"cloud": 1.0})


def measured(bench: Bench) -> None:
    jobs = [
        describe_measured(name, site, composition="demo")
        for name, site in (("A", "edge-a"), ("B", "cloud"))
    ]
    bench.service.placements.analyses = Given(analysis(jobs, composition="demo"))


def placed(bench: Bench) -> None:
    measured(bench)
    bench.service.placements.make("demo")


def placed_then_failed(bench: Bench) -> None:
    """A job has to be started again, wherever it is placed."""
    placed(bench)
    pool = engine(bench)
    for running in pool.running():
        pool.fail(running.id, "no luck")


def second(bench: Bench) -> None:
    """A second revision, which is deployed."""
    bench.client.post("/compositions?wait=30&force=true", json=composition(DEMO["jobs"][0]))


def outdated(bench: Bench) -> None:
    placed(bench)
    bench.client.post("/compositions?wait=30", json=composition(DEMO["jobs"][0]))


def analysed(bench: Bench) -> None:
    """An analysis that is done, as the analyzer leaves it."""
    started = "2026-01-01T00:00:00Z"
    head = AnalysisHead("a1", AnalysisState.DONE, None, started, None, None, "local[*]")
    bench.service.records.write(bench.service.records.analyses.put(head))
    file = bench.service.config.home / "analyses" / "a1.json"
    file.parent.mkdir()
    result = as_result(analysis([describe_measured("A", "edge-a")]))
    file.write_text(json.dumps(render(result)))


def analysing(bench: Bench) -> None:
    """An analysis that still runs."""
    running = analysis([], id="a2", composition="demo", state="running")
    bench.service.placements.analyses = Given(running)
