"""Where a service may die in the middle of a change: the same for memory sites and real ones.

A scenario is a composition that runs, and the one it is turned into; on the way there operations
of several kinds are carried out, and the service dies at a point of one of them. All pass on
numbers from `in` at edge-a to `out` at cloud, where `checker` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from speck.failpoints import AFTER_INTENT, AFTER_REQUEST, BEFORE_OUTCOME, POINTS
from speck.model.values import JsonObject

MakeJob = Callable[..., JsonObject]
"""(name, site, source topic, sink topic, more) -> a job's description."""

IMPOSSIBLE: dict[tuple[str, str], str] = {
    ("drain", AFTER_INTENT): "a drain asks for nothing; it reads numbers",
    ("drain", AFTER_REQUEST): "a drain asks for nothing; it reads numbers",
    ("handover", AFTER_INTENT): "a handover asks for nothing; it reads numbers",
    ("handover", AFTER_REQUEST): "a handover asks for nothing; it reads numbers",
    ("switch", AFTER_INTENT): "a switch asks for nothing; it reads numbers",
    ("switch", AFTER_REQUEST): "a switch asks for nothing; it reads numbers",
    **{
        (kind, BEFORE_OUTCOME): "its answer is its outcome: the moment is after-answer"
        for kind in ("upload", "try", "reserve", "release", "forget", "clear", "handover", "switch")
    },
}
"""(kind, point) that cannot be reached, and why."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`first` runs; `then` is asked for (None: its removal); `kinds` are met on the way."""

    name: str
    first: JsonObject
    then: JsonObject | None
    kinds: tuple[str, ...]

    @property
    def wanted(self) -> dict[str, str]:
        """Job name -> site, of what runs in the end."""
        jobs = self.then["jobs"] if self.then is not None else []
        return {job["job_name"]: job["site"] for job in jobs if job.get("state") != "stopped"}


@dataclass(frozen=True, slots=True)
class Crash:
    """One death: in which scenario, at which operation, where in it."""

    scenario: Scenario
    kind: str
    point: str

    @property
    def at(self) -> str:
        """As SPECK_CRASH_AT wants it."""
        return f"{self.kind}:{self.point}"

    def __str__(self) -> str:
        return f"{self.scenario.name}-{self.kind}-{self.point}"


def scenarios(job: MakeJob, prefix: str = "", *, apart: bool = False) -> list[Scenario]:
    """All scenarios; `prefix` begins every name, so that several may share brokers. Where sites
    are `apart`, without shared storage, state is carried."""

    def topic(name: str) -> str:
        return f"{prefix}{name}"

    def a(sink: str = "x", **more: object) -> JsonObject:
        source = more.pop("source", "in")
        return job(f"{prefix}A", "edge-a", topic(str(source)), topic(sink), **more)

    def b(site: str = "edge-a", source: str = "x", sink: str = "y", **more: object) -> JsonObject:
        places = {"source_site": "edge-a", "sink_site": "edge-a"}
        return job(f"{prefix}B", site, topic(source), topic(sink), **{**places, **more})

    def c(source: str = "y", **more: object) -> JsonObject:
        places = {"source_site": "edge-a", "sink_site": "cloud"}
        return job(f"{prefix}C", "cloud", topic(source), topic("out"), **{**places, **more})

    side = job(
        f"{prefix}D", "edge-b", topic("x"), topic("side"), source_site="edge-a", sink_site="edge-b"
    )

    between = job(
        f"{prefix}E", "edge-b", topic("x"), topic("x2"), source_site="edge-a", sink_site="edge-a"
    )

    def describe(*jobs: JsonObject) -> JsonObject:
        return {
            "name": f"{prefix}c",
            "jobs": list(jobs),
            "inputs": [{"site": "edge-a", "topic": topic("in")}],
            "outputs": [{"site": "cloud", "topic": topic("out"), "client_id": f"{prefix}checker"}],
        }

    whole = describe(a(), b(), c())
    return [
        Scenario("grow", whole, describe(a(), b(), c(), side), ("upload", "reserve", "start")),
        Scenario("update", whole, describe(a(), b(parallelism=2), c()), ("try", "stop", "start")),
        Scenario(
            "move",
            whole,
            describe(a(), b("edge-b"), c()),
            ("upload", "try", "stop", *(["carry"] if apart else []), "start"),
        ),
        Scenario(
            "rewire",
            whole,
            describe(a("x2", sink_site="edge-b"), b(source="x2", source_site="edge-b"), c()),
            ("reserve", "drain", "stop", "start", "release"),
        ),
        # a sink keeps its number as long as its link has readers that speck knows
        Scenario(
            "aside",
            describe(a(), b(), c(), side),
            describe(a(), b(), c(), {**side, "sink_topic": topic("side2")}),
            ("stop", "start", "clear"),
        ),
        Scenario(
            "insert",
            whole,
            describe(a(), between, b(source="x2"), c()),
            ("reserve", "drain", "stop", "handover", "start", "release"),
        ),
        Scenario(
            "middle",
            whole,
            describe(a(), c("x")),
            ("reserve", "drain", "stop", "forget", "release"),
        ),
        Scenario("end", describe(a(), b(), c(), side), whole, ("cancel", "forget", "release")),
        Scenario(
            "exchange",
            describe(a("out", sink_site="cloud"), b(source="in", sink="side")),
            describe(a("side"), b(source="in", sink="out", sink_site="cloud")),
            ("stop", "switch", "start"),
        ),
        Scenario("all", whole, None, ("drain", "stop", "forget", "release")),
    ]


def crashes(scenarios: list[Scenario]) -> Iterator[Crash]:
    """Every point of every kind in every scenario that meets it."""
    for scenario in scenarios:
        for kind in scenario.kinds:
            for point in POINTS:
                if (kind, point) not in IMPOSSIBLE:
                    yield Crash(scenario, kind, point)


def one_of_each(scenarios: list[Scenario]) -> list[Crash]:
    """Every point of every kind once."""
    by_point: dict[tuple[str, str], Crash] = {}
    for crash in crashes(scenarios):
        by_point.setdefault((crash.kind, crash.point), crash)
    return list(by_point.values())
