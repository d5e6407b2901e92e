"""Every route with each of its answers: status, media type and exact shape."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from flask import Flask
from marshmallow import Schema

from speck.api import shapes
from speck.api.access import ACCESS
from speck.api.app import ROUTES
from speck.api.routes import Routes
from speck.binding import Transfer
from speck.errors import EngineRefusedError, StoreFullError
from speck.model.analysis import AnalysisHead, AnalysisState
from speck.model.shown import render
from speck.model.site import AgentReport
from tests.analyses import Given, analysis, as_result, describe_measured
from tests.calibrating import count_units, make_job_jar
from tests.memory_fog import jar_bytes
from tests.unit.api.conftest import Bench, composition, job, open_bench, site

DEMO = composition(
    job("A", sink_topic="AB"),
    job("B", source_site="edge-a", site="cloud", source_topic="AB"),
)
JAR = jar_bytes()
SHA256 = hashlib.sha256(JAR).hexdigest()
NO_JAR = b"neither a jar nor a program"
NO_JAR_SHA256 = hashlib.sha256(NO_JAR).hexdigest()
ZEROS = "0" * 64


def _engine(bench: Bench, name: str = "edge-a") -> Any:
    return bench.world.engine(f"http://{name}:8081")


def _hold(bench: Bench) -> None:
    _engine(bench).hold_starts = True


def _hold_savepoints(bench: Bench) -> None:
    _engine(bench).hold_savepoints = True


def _held_change(bench: Bench) -> None:
    """A change of composition `demo` that waits for a start."""
    _hold(bench)
    changed = composition(job("A", args=["x"], sink_topic="AB"), *DEMO["jobs"][1:])
    bench.client.post("/compositions", json=changed)
    bench.wait_for_operation("start", "running")


def _blocked_change(bench: Bench) -> None:
    """A change of composition `other` whose broker does not answer."""
    bench.world.broker("tcp://edge-b:1883").unreachable = True
    bench.client.post("/compositions", json=composition(job("X", site="edge-b"), name="other"))
    bench.wait_until_blocked()


def _refusing(bench: Bench) -> None:
    _engine(bench).refuse("submit", 1, EngineRefusedError("cannot start: the main has a fault"))


def _away(bench: Bench) -> None:
    _engine(bench).unreachable = True


def _broker_away(bench: Bench) -> None:
    bench.world.broker("tcp://edge-b:1883").unreachable = True


def _records(*records: Any, **more: Any) -> dict[str, Any]:
    return {"site": "edge-a", "topic": "a", "records": list(records), **more}


def _artifact(bench: Bench) -> None:
    bench.client.put(f"/artifacts/{SHA256}", data=JAR)


def _full(bench: Bench) -> None:
    """The disk has less space than is reserved for work in progress."""

    def refuse() -> None:
        raise StoreFullError("cannot write to the store: free space until it has 5 bytes")

    bench.service.records.store.check_writable = refuse  # type: ignore[method-assign]


def _token(bench: Bench) -> None:
    bench.client.environ_base["HTTP_AUTHORIZATION"] = (
        f"Bearer {bench.service.tokens.add('root', 'admin')}"
    )


def _carrying(bench: Bench) -> None:
    """The state of job A is to go from edge-a to edge-b."""
    for name in ("edge-a", "edge-b"):
        bench.service.agents.heartbeat(name, AgentReport(state_folder="/state"))
    bench.service.agents.carry(Transfer("t", "A", "e", "edge-a", "edge-b", "/state/x"))


def _fetching(bench: Bench) -> None:
    """By the relay; the agent of edge-b has asked for the first piece."""
    _carrying(bench)
    bench.service.agents.transfers.relay("t", by_source=True).take(0, 0.0)


def _on_its_way(bench: Bench) -> None:
    _fetching(bench)
    bench.service.agents.transfers.relay("t", by_source=True).put(0, 5, b"12")


def _calibrating(bench: Bench) -> None:
    make_job_jar(bench.service)
    count_units(bench.service, {"cloud": 1.0})


def _measured(bench: Bench) -> None:
    jobs = [
        describe_measured(name, site, composition="demo")
        for name, site in (("A", "edge-a"), ("B", "cloud"))
    ]
    bench.service.placements.analyses = Given(analysis(jobs, composition="demo"))


def _placed(bench: Bench) -> None:
    _measured(bench)
    bench.service.placements.make("demo")


def _placed_then_failed(bench: Bench) -> None:
    """A job has to be started again, wherever it is placed."""
    _placed(bench)
    pool = _engine(bench)
    for running in pool.running():
        pool.fail(running.id, "no luck")


def _second(bench: Bench) -> None:
    """A second revision, which is deployed."""
    bench.client.post("/compositions?wait=30&force=true", json=composition(DEMO["jobs"][0]))


def _outdated(bench: Bench) -> None:
    _placed(bench)
    bench.client.post("/compositions?wait=30", json=composition(DEMO["jobs"][0]))


def _analysed(bench: Bench) -> None:
    """An analysis that is done, as the analyzer leaves it."""
    started = "2026-01-01T00:00:00Z"
    head = AnalysisHead("a1", AnalysisState.DONE, None, started, None, None, "local[*]")
    bench.service.records.write(bench.service.records.analyses.put(head))
    file = bench.service.config.home / "analyses" / "a1.json"
    file.parent.mkdir()
    result = as_result(analysis([describe_measured("A", "edge-a")]))
    file.write_text(json.dumps(render(result)))


def _analysing(bench: Bench) -> None:
    """An analysis that still runs."""
    running = analysis([], id="a2", composition="demo", state="running")
    bench.service.placements.analyses = Given(running)


@dataclass(frozen=True)
class Case:
    """A request to an application that has sites, composition `demo` and the job `alone`."""

    method: str
    path: str
    status: int
    shape: type[Schema] | None = None
    json: Any = None
    data: bytes | str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    before: Callable[[Bench], None] = lambda bench: None
    says: str = ""
    media: str = "application/json"

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.status} {self.says}".strip()

    @property
    def changes_nothing(self) -> bool:
        return self.before is Case.before and (self.method == "GET" or self.status >= 400)


S, J, C = shapes.SiteShape, shapes.JobShape, shapes.AcceptedShape
PROBLEM = shapes.ProblemShape
YAML = {"Content-Type": "application/yaml"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}

CASES = [
    # -- a restored service
    Case("GET", "/restored", 200, shapes.RestoredShape),
    Case(
        "POST",
        "/restored/adopt?cancel=true&older_state=false",
        200,
        shapes.AdoptedShape,
        before=lambda bench: setattr(bench.service.records, "restored", {"at": "then"}),
    ),
    Case("POST", "/restored/adopt", 409, says="the store was neither restored nor copied"),
    # -- sites
    Case("GET", "/sites", 200, shapes.SITES),
    Case("GET", "/sites?state=up&site=cloud&limit=1&after=a", 200, shapes.SITES),
    Case("GET", "/sites?state=broken", 400, says="?state: must be one of up, degraded"),
    Case("POST", "/sites", 201, S, json=site("new")),
    Case("POST", "/sites", 200, S, json=site("cloud")),
    Case("POST", "/sites", 409, json=site("cloud", tier="edge"), says="PUT /sites/cloud"),
    Case("POST", "/sites", 409, json=site("x", spe=site("cloud")["spe"]), says="belongs to cloud"),
    Case("POST", "/sites", 422, json={}, says="cannot read the site: name: missing (and 3 more)"),
    Case("GET", "/sites/cloud", 200, S),
    Case("GET", "/sites/nowhere", 404, says="cannot find site 'nowhere'"),
    Case("PUT", "/sites/new", 201, S, json=site("new")),
    Case("PUT", "/sites/edge-b", 200, S, json=site("edge-b", uplink_mbps=10)),
    Case("PUT", "/sites/edge-b", 422, json=site("edge-c"), says="the path says 'edge-b'"),
    Case("PUT", "/sites/edge-a", 200, S, json=site("edge-a", spe=site("x")["spe"])),
    Case("PUT", "/sites", 200, shapes.SITES, json={"sites": [site("edge-b", uplink_mbps=10)]}),
    Case("PUT", "/sites", 200, shapes.SITES, json={"sites": [site("edge-b"), site("new")]}),
    Case("PUT", "/sites?new_broker=true", 200, shapes.SITES, json={"sites": [site("edge-a")]}),
    Case("PUT", "/sites?new_broker=perhaps", 400, json={"sites": [site("edge-a")]},
         says="?new_broker: "),
    Case("PUT", "/sites", 422, json={"sites": []}, says="list 1 to 1000"),
    Case("PUT", "/sites", 422, json=[site("edge-b")], says="must be a mapping"),
    Case("PUT", "/sites", 422, json=site("edge-b"), says="sites: missing"),
    Case("PUT", "/sites", 422, json={"sites": [site("edge-b")] * 2}, says="is listed twice"),
    Case("PUT", "/sites", 422, json={"sites": [site("edge-b"), site("x", broker="tcp://x")]},
         says="sites[1].broker"),
    Case("PUT", "/sites", 422, json={"sites": [site("edge-b", spe={"kind": "flnk"})]},
         says="sites[0].spe"),
    Case("PUT", "/sites", 409, json={"sites": [site("edge-b", spe=site("cloud")["spe"])]},
         says="belongs to cloud"),
    Case("PUT", "/sites", 409, json={"sites": [site("edge-a", broker=site("x")["broker"])]},
         says="is not the one that edge-a had"),
    Case("DELETE", "/sites/edge-b", 204),
    Case("DELETE", "/sites/edge-a", 409, says="it serves A, B, alone"),
    Case("DELETE", "/sites/nowhere", 404),
    Case("POST", "/sites/edge-a/heartbeat", 200, shapes.HeartbeatShape),
    Case("POST", "/sites/edge-a/heartbeat", 200, shapes.HeartbeatShape, json={"load": 0.5}),
    Case("POST", "/sites/edge-a/heartbeat", 422, json=[1], says="must be a mapping"),
    # -- agents
    Case("GET", "/sites/edge-b/commands", 200, shapes.CommandsShape, before=_carrying),
    Case("GET", "/sites/edge-b/commands?known=x,y&wait=5", 200, shapes.CommandsShape,
         before=_carrying),
    Case("GET", "/sites/nowhere/commands", 404),
    Case("POST", "/sites/edge-b/commands/{command}", 200, json={"state": "ready"},
         before=_carrying),
    Case("POST", "/sites/edge-a/commands/{command}", 404, json={"state": "ready"}, before=_carrying,
         says="for site 'edge-a': it is over"),
    Case("PUT", "/transfers/t?offset=0&total=5", 200, shapes.PieceShape, data=b"12",
         before=_fetching),
    Case("PUT", "/transfers/t?offset=3&total=5", 409, data=b"45", before=_fetching,
         says="begins at byte 0"),
    Case("PUT", "/transfers/t?offset=0&total=5", 503, data=b"12", before=_carrying,
         says="has not asked for it"),
    Case("PUT", "/transfers/t", 411, before=_fetching),
    Case("PUT", "/transfers/other?total=5", 404, data=b"12"),
    Case("GET", "/transfers/t?offset=0", 200, media="application/octet-stream",
         before=_on_its_way),
    Case("GET", "/transfers/t?offset=0", 204, before=_fetching),
    Case("GET", "/transfers/other", 404),
    Case("GET", "/sites/edge-a/check", 200, shapes.SiteCheckShape),
    Case("GET", "/sites/edge-a/check", 200, shapes.SiteCheckShape, before=_away),
    Case("POST", "/sites/cloud/calibration", 200, shapes.CalibrationShape,
         json={"busy": True}, before=_calibrating),
    Case("POST", "/sites/cloud/calibration", 409, says="CPU time from B"),
    Case("POST", "/sites/edge-b/calibration", 409, says="core speeds are relative to cloud"),
    Case("POST", "/sites/nowhere/calibration", 404),
    Case("POST", "/sites/cloud/calibration", 422, json={"speed": 2}, says="give busy (true or"),
    # -- jobs
    Case("GET", "/jobs", 200, shapes.JOBS),
    Case("GET", "/jobs?site=cloud&state=running&limit=5&after=A", 200, shapes.JOBS),
    Case("POST", "/jobs", 201, J, json=job("new")),
    Case("POST", "/jobs", 200, J, json=job("alone")),
    Case("POST", "/jobs?wait=0", 202, shapes.JobAcceptedShape, json=job("new"), before=_hold),
    Case("POST", "/jobs", 409, json=job("alone", args=["x"]), says="PUT /jobs/alone"),
    Case("POST", "/jobs", 409, json=job("A"), says="composition 'demo' owns it"),
    Case("POST", "/jobs", 422, json=job("new", site="nowhere"), says="no registered site"),
    Case("POST", "/jobs", 422, json=job("new", source_topic="a/#"), says="source_topic"),
    Case("POST", "/jobs", 502, json=job("new"), before=_refusing, says="(site edge-a)"),
    Case("POST", "/jobs?wait=soon", 400, json=job("new"), says="?wait: must be seconds"),
    Case("GET", "/jobs/alone", 200, J),
    Case("GET", "/jobs/A", 200, J),
    Case("GET", "/jobs/nothing", 404, says="cannot find job 'nothing'"),
    Case("PUT", "/jobs/alone", 200, J, json=job("alone", args=["x"])),
    Case("PUT", "/jobs/alone", 200, J, json=job("alone", site="cloud", upgrade="stateless")),
    Case("PUT", "/jobs/alone?wait=0", 202, shapes.JobAcceptedShape, json=job("alone", args=["x"]),
         before=_hold),
    Case("PUT", "/jobs/nothing", 404, json=job("nothing")),
    Case("PUT", "/jobs/alone", 422, json=job("other"), says="a name cannot be changed"),
    Case("PUT", "/jobs/A", 409, json=job("A"), says="composition 'demo' owns it"),
    Case("DELETE", "/jobs/alone", 204),
    Case("DELETE", "/jobs/alone?wait=0", 202, shapes.JobAcceptedShape, before=_hold_savepoints),
    Case("DELETE", "/jobs/A", 409, says="composition 'demo' owns it"),
    Case("DELETE", "/jobs/nothing", 404),
    Case("GET", "/jobs/A/exceptions", 200, shapes.EXCEPTIONS),
    Case("GET", "/jobs/nothing/exceptions", 404),
    Case("GET", "/jobs/A/metrics", 200, shapes.JobMetricsShape),
    Case("GET", "/", 302, media="text/html"),
    Case("GET", "/rates", 200, shapes.RatesListShape),
    Case("GET", "/rates?composition=demo&limit=1", 200, shapes.RatesListShape),
    Case("POST", "/links/records", 200, shapes.PublishedShape, json=_records("a", {"text": "b"})),
    Case("POST", "/links/records", 200, shapes.PublishedShape, json=_records({"base64": "/w=="})),
    Case("POST", "/links/records", 422, json=_records(), says="a list of 1 to 1000 records"),
    Case("POST", "/links/records", 422, json=_records("a", 1), says="records[1] must be a text"),
    Case("POST", "/links/records", 422, json=_records({"base64": "?"}), says="records[0] must"),
    Case("POST", "/links/records", 422, json=_records({"text": "a", "base64": ""}), says="[0]"),
    Case("POST", "/links/records", 422, json=_records("a", topic="a/#"), says="a wildcard"),
    Case("POST", "/links/records", 422, json=_records("a", topic="speck/x"), says="below speck/"),
    Case("POST", "/links/records", 422, json=_records("a", qos=2), says="unknown field; known"),
    Case("POST", "/links/records", 422, json={"topic": "a"}, says="site is missing"),
    Case("POST", "/links/records", 404, json=_records("a", site="no"), says="cannot find site"),
    Case("POST", "/links/records", 503, json=_records("a", site="edge-b"), before=_broker_away),
    Case("GET", "/links/tap?site=edge-a&topic=a&seconds=0.1", 200, shapes.TapShape),
    Case("GET", "/links/tap?site=edge-a", 422, says="?topic is missing"),
    Case("GET", "/links/tap?site=edge-a&topic=a/%2B", 422, says="a wildcard"),
    Case("GET", "/links/tap?site=edge-a&topic=a&seconds=61", 400, says="60 at most"),
    Case("GET", "/links/tap?site=edge-a&topic=a&seconds=0", 400, says="above 0"),
    Case("GET", "/links/tap?site=edge-a&topic=a&max=1001", 400, says="from 1 to 1000"),
    Case("GET", "/links/tap?site=no&topic=a", 404, says="cannot find site"),
    Case("GET", "/links/tap?site=edge-b&topic=a", 503, before=_broker_away),
    Case("GET", "/jobs/A/metrics", 503, before=_away, says="(site edge-a)"),
    Case("POST", "/jobs/A/savepoints", 201, shapes.SavepointShape),
    Case("POST", "/jobs/A/savepoints?wait=0", 202, shapes.SavepointShape, before=_hold_savepoints),
    Case("POST", "/jobs/nothing/savepoints", 404),
    # -- compositions
    Case("GET", "/compositions", 200, shapes.COMPOSITIONS),
    Case("GET", "/compositions?site=cloud&state=running&limit=1", 200, shapes.COMPOSITIONS),
    Case("POST", "/compositions", 202, C, json=composition(job("X"), name="other")),
    Case("POST", "/compositions?wait=30", 200, C, json=composition(job("X"), name="other")),
    Case("POST", "/compositions?dry_run=true", 200, C, json=composition(job("X"), name="other")),
    Case("POST", "/compositions?adopt=true", 202, C, json=composition(job("alone"), name="other")),
    Case("POST", "/compositions", 409, json=composition(job("alone"), name="other"),
         says="apply with ?adopt=true"),
    Case("POST", "/compositions", 409, json=composition(job("A"), name="other"),
         says="composition 'demo' owns job 'A'"),
    Case("POST", "/compositions", 409, json=DEMO, before=_held_change, says="is under way"),
    Case("POST", "/compositions", 412, json=DEMO, headers={"If-Match": '"7"'},
         says="newest revision is 1, not 7"),
    Case("POST", "/compositions", 200, C, json=DEMO, headers={"If-Match": '"1"'}),
    Case("POST", "/compositions", 400, json=DEMO, headers={"If-Match": "one"}, says="If-Match"),
    Case("POST", "/compositions?dry-run=true", 400, json=DEMO, says="did you mean dry_run?"),
    Case("POST", "/compositions", 400, data="jobs: [\n", headers=YAML, says="(line 2)"),
    Case("POST", "/compositions", 400, data="{", headers={"Content-Type": "application/json"}),
    Case("POST", "/compositions", 422, data="jobs:\n- job_name: A\n", headers=YAML,
         says="jobs[0].source_topic (line 2): missing"),
    Case("POST", "/compositions", 415, data="name: x", headers=FORM,
         says="`Content-Type: application/yaml`"),
    Case("POST", "/compositions", 411, headers=YAML, says="without Content-Length"),
    Case("POST", "/compositions", 411, data="jobs: []", says="cannot take a chunked body",
         headers={**YAML, "Transfer-Encoding": "chunked"}),
    Case("POST", "/compositions", 413, data=b" " * (8 << 20) + b" ", headers=YAML,
         says="at most 8388608 are taken"),
    Case("GET", "/compositions/demo", 200, shapes.CompositionShape),
    Case("GET", "/compositions/nothing", 404, says="cannot find composition 'nothing'"),
    Case("DELETE", "/compositions/demo", 202, C),
    Case("DELETE", "/compositions/demo?wait=30", 204),
    Case("DELETE", "/compositions/demo?dry_run=true", 200, C),
    Case("DELETE", "/compositions/demo?wait=30&drop_queues=true", 204),
    Case("DELETE", "/compositions/demo?drop_queues=perhaps", 400, says="must be true or false"),
    Case("DELETE", "/compositions/demo", 412, headers={"If-Match": '"2"'}),
    Case("DELETE", "/compositions/nothing", 404),
    Case("GET", "/compositions/demo/plan", 200, shapes.PlanShape),
    Case("GET", "/compositions/nothing/plan", 404),
    Case("GET", "/compositions/demo/graph", 200, shapes.GraphShape),
    Case("GET", "/compositions/demo/graph?format=json", 200, shapes.GraphShape),
    Case("GET", "/compositions/demo/graph?format=mermaid", 200, media="text/plain"),
    Case("GET", "/compositions/demo/graph?format=dot", 200, media="text/vnd.graphviz"),
    Case("GET", "/compositions/demo/graph?format=png", 400, says="json, mermaid, dot"),
    Case("GET", "/compositions/nothing/graph", 404),
    Case("GET", "/compositions/demo/drift", 200, shapes.DRIFT),
    Case("GET", "/compositions/demo/drift", 200, shapes.DRIFT, before=_away),
    Case("GET", "/compositions/nothing/drift", 404),
    Case("GET", "/compositions/demo/revisions", 200, shapes.REVISIONS),
    Case("GET", "/compositions/nothing/revisions", 404),
    Case("POST", "/compositions/demo/rollback", 200, C, json={"revision": 1}),
    Case("POST", "/compositions/demo/rollback", 202, C, json={"revision": 1}, before=_second),
    Case("POST", "/compositions/demo/rollback?wait=30", 200, C, json={"revision": 1}),
    Case("POST", "/compositions/demo/rollback?dry_run=true", 200, C, json={"revision": 1}),
    Case("POST", "/compositions/demo/rollback", 404, json={"revision": 9}),
    Case("POST", "/compositions/demo/rollback", 422, json={"revision": "one"}),
    Case("POST", "/compositions/demo/rollback", 422, json={"to": 1}, says="to: unknown field"),
    Case("POST", "/compositions/nothing/rollback", 404, json={"revision": 1}),
    # -- changes
    Case("GET", "/changes", 200, shapes.CHANGES),
    Case("GET", "/changes?state=done&composition=demo&site=cloud&limit=1", 200, shapes.CHANGES),
    Case("GET", "/changes/{change}", 200, shapes.ChangeShape),
    Case("GET", "/changes/nothing", 404, says="cannot find change 'nothing'"),
    Case("POST", "/changes/{change}/cancel", 409, says="it is done"),
    Case("POST", "/changes/{running}/cancel", 202, shapes.ChangeShape, before=_held_change),
    Case("POST", "/changes/{running}/cancel", 200, shapes.ChangeShape, before=_blocked_change),
    Case("POST", "/changes/nothing/cancel", 404),
    Case("POST", "/jobs/A/forget?force=true", 200, shapes.ForgottenShape),
    Case("POST", "/jobs/alone/forget?force=true", 200, shapes.ForgottenShape),
    Case("POST", "/jobs/alone/forget", 409, says="it leaves behind engine job"),
    Case("POST", "/jobs/nobody/forget?force=true", 404),
    Case("POST", "/compositions/demo/forget?force=true", 200, shapes.ForgottenShape),
    Case("POST", "/compositions/demo/forget?force=false", 409, says="without --force"),
    Case("POST", "/compositions/~alone/forget?force=true", 404),
    Case("POST", "/sites/edge-a/forget?force=true", 200, shapes.ForgottenShape),
    Case("POST", "/sites/edge-a/forget", 409, says="session"),
    Case("POST", "/sites/nowhere/forget?force=true", 404),
    # -- analyses
    Case("GET", "/analyses", 200, shapes.ANALYSES, before=_analysed),
    Case("GET", "/analyses?state=done&limit=1", 200, shapes.ANALYSES, before=_analysed),
    Case("GET", "/analyses?state=over", 400, says="?state: must be one of running, done"),
    Case("POST", "/analyses", 202, shapes.AnalysisHeadShape),
    Case("POST", "/analyses", 422, json={"master": "mesos"}, says="'mesos' is not a Spark master"),
    Case("POST", "/analyses", 422, json={"window_s": 0}, says="window_s: Must be greater"),
    Case("POST", "/analyses", 422, json={"since": "monday"}, says="since: Not a valid"),
    Case("POST", "/analyses", 422, json={"window": 5},
         says="window: unknown field; did you mean window_s?"),
    Case("GET", "/analyses/a1", 200, shapes.AnalysisShape, before=_analysed),
    Case("GET", "/analyses/nothing", 404, says="cannot find analysis 'nothing'"),
    Case("DELETE", "/analyses/a1", 200, shapes.AnalysisShape, before=_analysed),
    Case("DELETE", "/analyses/nothing", 404),
    # -- placements
    Case("GET", "/placements", 200, shapes.PLACEMENTS, before=_placed),
    Case("GET", "/placements?composition=demo&limit=1", 200, shapes.PLACEMENTS, before=_placed),
    Case("POST", "/placements", 201, shapes.PlacementShape, before=_measured,
         json={"composition": "demo", "policy": "greedy", "limits": {"utilisation": 0.5}}),
    Case("POST", "/placements", 409, json={"composition": "demo"}, says="run `speck analyze demo`"),
    Case("POST", "/placements", 201, shapes.PlacementShape,
         json={"composition": "demo", "policy": "all-cloud", "move_unmeasured": True}),
    Case("POST", "/placements", 422, json={"composition": "demo", "move_unmeasured": True},
         says="by policy milp: it goes by measurements; use all-cloud"),
    Case("POST", "/placements", 404, json={"composition": "nothing"}),
    Case("POST", "/placements", 422, json={"composition": "demo", "policy": "best"},
         says="policy: there is no policy 'best', only milp"),
    Case("POST", "/placements", 422, json={"policy": "milp"}, says="composition: missing"),
    Case("PUT", "/compositions/demo/autopilot", 422, json={"on": True, "min_gain": 20},
         says="min_gain: must be at most 1: it is a share"),
    Case("POST", "/placements", 422, json={"composition": "demo", "limits": {"utilisation": -1}},
         says="limits.utilisation: must be a number greater than 0"),
    Case("POST", "/placements", 422, json={"composition": "demo", "limits": {"utilisation": 70}},
         says="limits.utilisation: must be at most 1: it is a share"),
    Case("POST", "/placements", 422, json={"composition": "demo", "limits": {"time_limit_s": 1e9}},
         says="limits.time_limit_s: must be at most 600"),
    Case("GET", "/placements/{placement}", 200, shapes.PlacementShape, before=_placed),
    Case("GET", "/placements/nothing", 404, says="cannot find placement 'nothing'"),
    Case("POST", "/placements/{placement}/apply", 200, C, before=_placed),
    Case("POST", "/placements/{placement}/apply", 202, C, before=_placed_then_failed),
    Case("POST", "/placements/{placement}/apply?wait=30", 200, C, before=_placed),
    Case("POST", "/placements/{placement}/apply?dry_run=true", 200, C, before=_placed),
    Case("POST", "/placements/{placement}/apply", 412, before=_outdated, says="is 2, not 1"),
    Case("POST", "/placements/nothing/apply", 404),
    # -- advice
    Case("POST", "/advice", 200, shapes.AdviceShape, before=_measured,
         json={"composition": "demo", "analysis": "a1"}),
    Case("POST", "/advice", 202, shapes.AdviceShape, before=_analysing,
         json={"composition": "demo", "analysis": "a2"}),
    Case("POST", "/advice", 422, json={"composition": "demo", "policy": "best"},
         says="there is no policy 'best', only milp"),
    Case("POST", "/advice", 422, json={"composition": "demo", "window": 5},
         says="window: unknown field; did you mean window_s?"),
    Case("POST", "/advice", 404, json={"composition": "nothing", "analysis": "a1"}),
    # -- autopilot
    Case("GET", "/compositions/demo/autopilot", 200, shapes.AutopilotShape),
    Case("GET", "/compositions/nothing/autopilot", 404),
    Case("PUT", "/compositions/demo/autopilot", 200, shapes.AutopilotShape, json={"on": True}),
    Case("PUT", "/compositions/demo/autopilot", 422, json={"on": True, "agreeing": 0},
         says="agreeing: must be from 1 to 100"),
    Case("PUT", "/compositions/demo/autopilot", 422, json={}, says="on: missing"),
    Case("PUT", "/compositions/demo/autopilot", 422, json={"on": True, "policy": "best"},
         says="policy: there is no policy 'best', only milp"),
    Case("PUT", "/compositions/nothing/autopilot", 404, json={"on": True}),
    # -- the metrics dataset
    Case("GET", "/metrics/export", 200, media="application/vnd.apache.parquet"),
    Case("GET", "/metrics/export?table=sites&format=csv", 200, media="text/csv"),
    Case("GET", "/metrics/export?since=2026-03-01T12:00:00", 400, says="a time with its zone"),
    Case("GET", "/metrics/export?table=task", 400, says="?table: must be one of tasks, links"),
    Case(
        "POST",
        "/metrics/import?format=csv&table=sites",
        200,
        shapes.ImportedShape,
        data="at,site,tier\n2026-03-01T12:00:00Z,edge-a,edge\n",
    ),
    Case(
        "POST",
        "/metrics/import?format=csv&name=x.csv",
        422,
        data="at,site,tier,cores\n2026-03-01T12:00:00Z,edge-a,edge,many\n",
        says="x.csv: line 2, column cores: is 'many'; write a number",
    ),
    Case("POST", "/metrics/import", 411),
    # -- artifacts
    Case("GET", "/artifacts", 200, shapes.ARTIFACTS, before=_artifact),
    Case("PUT", f"/artifacts/{SHA256}", 201, shapes.ArtifactShape, data=JAR),
    Case("PUT", f"/artifacts/{SHA256}", 200, shapes.ArtifactShape, data=JAR, before=_artifact),
    Case("PUT", f"/artifacts/{ZEROS}", 422, data=JAR),
    Case("PUT", "/artifacts/jar", 422, data=JAR),
    Case("PUT", f"/artifacts/{SHA256}", 411),
    Case("PUT", f"/artifacts/{NO_JAR_SHA256}", 422, data=NO_JAR, says="it is no artifact"),
    Case("DELETE", f"/artifacts/{SHA256}", 204, before=_artifact),
    Case("DELETE", f"/artifacts/{ZEROS}", 404, says="cannot find artifact"),
    Case("POST", "/artifacts/gc", 200, shapes.CollectedListShape, before=_artifact),
    Case("POST", "/artifacts/gc?dry_run=true", 200, shapes.CollectedListShape, before=_artifact),
    # -- the rest
    Case("GET", "/events", 200, shapes.EVENTS),
    Case("GET", "/events?after=2&limit=2&site=cloud", 200, shapes.EVENTS),
    Case("GET", "/events?after=x", 400, says="must be a whole number"),
    Case("GET", "/tokens", 200, shapes.TOKENS, before=_token),
    Case("POST", "/tokens", 201, shapes.TokenMadeShape, json={"name": "v", "role": "admin"}),
    Case("POST", "/tokens", 409, json={"name": "root", "role": "viewer"}, before=_token),
    Case("POST", "/tokens", 422, json={"name": "v", "role": "king"}),
    Case("POST", "/tokens", 422, json={"name": "v"}, says="role: missing"),
    Case("POST", "/tokens", 201, shapes.TokenMadeShape, before=_token,
         json={"name": "v", "role": "viewer", "compositions": ["a*"], "expires_in": "90d"}),
    Case("POST", "/tokens", 422, json={"name": "v", "role": "admin", "topics": ["a/#/b"]},
         says="cannot add this token"),
    Case("GET", "/tokens/self", 200, shapes.TokenShape),
    Case("GET", "/tokens/self", 200, shapes.TokenShape, before=_token),
    Case("POST", "/tokens/root/rotate", 200, shapes.TokenMadeShape, before=_token),
    Case("POST", "/tokens/root/rotate", 200, shapes.TokenMadeShape, json={"expires_in": "1d"},
         before=_token),
    Case("POST", "/tokens/root/rotate", 422, json={"expires_in": "soon"}, before=_token),
    Case("POST", "/tokens/nothing/rotate", 404),
    Case("DELETE", "/tokens/root", 409, before=_token, says="(?open=true)"),
    Case("DELETE", "/tokens/root?open=true", 204, before=_token),
    Case("DELETE", "/tokens/nothing", 404),
    Case("GET", "/audit", 200, shapes.AUDIT),
    Case("GET", "/audit?after=1&limit=2", 200, shapes.AUDIT),
    Case("GET", "/audit/verdict", 200, shapes.AuditVerdictShape),
    Case("GET", "/audit/verdict?contains=0", 200, shapes.AuditVerdictShape),
    Case("GET", "/backup", 200, media="application/gzip"),
    Case("GET", "/livez", 200, shapes.HealthShape),
    Case("GET", "/readyz", 200, shapes.HealthShape),
    Case("GET", "/readyz", 503, before=lambda bench: bench.service.runner.close()),
    Case("GET", "/readyz", 507, before=_full, says="the store's disk is full: free space on it"),
    Case("POST", "/compositions", 507, json=composition(job("X"), name="other"),
         before=_full, says="free space until"),
    Case("GET", "/metrics", 200, media="text/plain"),
    Case("GET", "/openapi.json", 200),
    Case("GET", "/docs", 200, media="text/html"),
    # -- no route at all
    Case("GET", "/nothing", 404, says="cannot find /nothing"),
    Case("GET", "/sites/", 404),
    Case("PATCH", "/sites", 405, says="cannot PATCH /sites: this route supports GET, HEAD, POST"),
    Case("OPTIONS", "/jobs", 405),
]  # fmt: skip


def _prepare(bench: Bench) -> Bench:
    bench.add_sites()
    deployed = bench.client.post("/compositions?wait=30", json=DEMO)
    assert deployed.json["state"] == "done"
    assert bench.client.post("/jobs", json=job("alone")).status_code == 201
    return bench


class TestOneApplication:
    """What changes nothing is asked of one application."""

    @pytest.fixture(scope="class")
    @classmethod
    def prepared(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
        with open_bench(tmp_path_factory.mktemp("routes")) as bench:
            yield _prepare(bench)

    @pytest.mark.parametrize("case", [each for each in CASES if each.changes_nothing], ids=str)
    def test_each_answer_has_its_status_and_shape(self, case: Case, prepared: Bench) -> None:
        _check(case, prepared)


@pytest.mark.parametrize("case", [each for each in CASES if not each.changes_nothing], ids=str)
def test_each_answer_has_its_status_and_shape(case: Case, bench: Bench) -> None:
    _check(case, _prepare(bench))


def _check(case: Case, prepared: Bench) -> None:
    done = prepared.client.get("/changes?composition=demo").json["changes"][0]["id"]
    case.before(prepared)
    under_way = [running.change.id for running in prepared.service.changes.all_under_way()]
    opened = prepared.service.agents.commands.open("edge-b", (), 0.0)
    command = next((each.id for each in opened), "none")
    placements = [each.id for each in prepared.service.placements.all()]
    path = case.path.format(
        change=done,
        running=(under_way or ["none"])[0],
        command=command,
        placement=(placements or ["none"])[0],
    )

    answer = prepared.client.open(
        path, method=case.method, json=case.json, data=case.data, headers=case.headers
    )

    assert answer.status_code == case.status, answer.text
    assert answer.headers["X-Request-Id"]
    if case.status >= 400:
        _assert_problem(answer, case.says)
    elif case.status == 204:
        assert answer.data == b"" and "Content-Type" not in answer.headers
    else:
        assert answer.mimetype == case.media
        if case.shape is not None:
            assert case.shape().validate(answer.json) == {}, answer.json
    if case.status == 202:
        noun = "analyses" if case.path in ("/analyses", "/advice") else "changes"
        about = answer.json["analysis"] if case.path == "/advice" else answer.json
        assert about.get("location", "") is None or answer.headers["Location"] == (
            f"/{noun}/{about.get('change') or about['id']}"
        )


def _assert_problem(answer: Any, says: str) -> None:
    assert answer.mimetype == "application/problem+json"
    assert PROBLEM().validate(answer.json) == {}, answer.json
    assert answer.json["status"] == answer.status_code
    assert answer.json["request_id"] == answer.headers["X-Request-Id"]
    assert answer.json["detail"].startswith("cannot ")
    assert says in answer.json["detail"] + str(answer.json["errors"])


def test_no_answer_of_any_route_is_left_out(bench: Bench) -> None:
    with bench.client.application.test_request_context():
        documented = {
            (method.upper(), path.replace("{", "<").replace("}", ">"), int(status))
            for path, operations in bench.client.get("/openapi.json").json["paths"].items()
            for method, operation in operations.items()
            if method != "parameters"
            for status in operation["responses"]
            if status != "default"
        }
    tried = set(_tried(bench.client.application))
    tried |= {(method, rule, 400) for method, rule in ACCESS}  # by the test below
    assert documented - tried == set()
    assert {(method, rule) for method, rule, _ in documented} == set(ACCESS)


def test_no_route_takes_a_query_parameter_that_is_not_declared(bench: Bench) -> None:
    for method, rule in ACCESS:
        answer = bench.client.open(re.sub("<[^>]+>", "x", rule) + "?no-such=1", method=method)
        assert answer.status_code == 400, (method, rule)
        _assert_problem(answer, "?no-such: unknown query parameter")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/events?limit=1&limit=2", "?limit: given more than once"),
        ("/events?limit=1_0", "?limit: must be a whole number from 1 to 10000"),
        ("/events?after=-1", "?after: must be a whole number from 0 to"),
        ("/metrics/export?since=2026-03-01T12:00:00", "?since: must be a time with its zone"),
        ("/metrics/export?since=today", "?since: must be a time with its zone"),
    ],
)
def test_a_query_parameter_is_read_strictly(bench: Bench, path: str, says: str) -> None:
    answer = bench.client.get(path)
    assert answer.status_code == 400
    _assert_problem(answer, says)


@pytest.mark.parametrize("wait", ["nan", "inf", "-1", "1e4", "soon"])
def test_a_wait_is_a_number_of_seconds(bench: Bench, wait: str) -> None:
    answer = bench.client.post(f"/jobs?wait={wait}", json=job("new"))
    assert answer.status_code == 400
    _assert_problem(answer, "?wait: must be seconds from 0 to 3600")


def test_all_faults_of_a_query_are_listed(bench: Bench) -> None:
    answer = bench.client.get("/jobs?state=broken&limit=0&stat=x")
    assert {fault["path"] for fault in answer.json["errors"]} == {"?state", "?limit", "?stat"}
    assert "did you mean state?" in str(answer.json["errors"])


def _tried(app: Flask) -> Iterator[tuple[str, str, int]]:
    adapter = app.url_map.bind("localhost")
    for case in CASES:
        if case.status not in (404, 405):
            path = case.path.partition("?")[0].format_map(defaultdict(lambda: "x"))
            rule, _ = adapter.match(path, case.method, return_rule=True)
            yield case.method, rule.rule, case.status


def test_every_noun_is_declared_the_same_way() -> None:
    assert all(isinstance(module.routes, Routes) for module in ROUTES)
