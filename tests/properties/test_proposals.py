"""Whatever a policy answers: what is proposed pays for itself, and the same evidence gets the same
answer, asked again or carried out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from speck.model.analysis_result import NOTHING_MEASURED
from speck.model.composition import CompositionDescription
from speck.model.values import JsonObject
from speck.placement.comparison import compare
from speck.placement.consistency import Earlier
from speck.placement.evaluate import evaluate
from speck.placement.model import Limits
from speck.placement.names import list_policies
from speck.placement.places import Condition
from speck.placement.policies import find_policy
from speck.placement.problem import Question, pose_question
from speck.placement.proposal import Proposal, Wish, price_of, propose
from speck.placement.record import PlacementRecord
from speck.placement.rendering import render
from speck.placement.wiring import wire
from speck.spec.schema import composition_from_data
from speck.spec.site_schema import site_from_data
from speck.store.codec import from_json, to_json
from tests.analyses import analysis, as_result, describe_measured, predict
from tests.memory_fog import site_body
from tests.service_helpers import job_body

NAMES = ("cloud", "edge-a", "edge-b")
SITES = {name: site_from_data(site_body(name)) for name in NAMES}
QUICK = Limits(time_limit_s=5.0)
FACTORS = st.floats(0.9, 1.1)


@dataclass(frozen=True)
class Job:
    """Reads an input of its own (`upstream` -1) or what an earlier job sends."""

    upstream: int
    site: str
    bytes_in: float
    selectivity: float
    stateful: bool | None
    state_bytes: int


JOBS = st.lists(
    st.builds(
        Job,
        upstream=st.integers(-1, 3),
        site=st.sampled_from(NAMES),
        bytes_in=st.sampled_from([1.0, 20.0, 100.0, 400.0]),
        selectivity=st.sampled_from([0.05, 0.5, 0.9, 1.0, 2.0]),
        stateful=st.sampled_from([False, False, None, True]),
        state_bytes=st.sampled_from([0, 1000, 50_000_000]),
    ),
    min_size=1,
    max_size=5,
)


def describe(jobs: list[Job], edges: Mapping[int, str]) -> CompositionDescription:
    bodies, inputs = [], []
    for index, job in enumerate(jobs):
        upstream = min(job.upstream, index - 1)
        feed = edges[index % len(edges)] if upstream < 0 else jobs[upstream].site
        topic = f"raw-{index}" if upstream < 0 else f"t-{upstream}"
        inputs += [{"site": feed, "topic": topic}] if upstream < 0 else []
        ends = {"source_site": feed, "source_topic": topic, "sink_topic": f"t-{index}"}
        bodies.append(job_body(f"job-{index}", job.site, **ends))
    outputs = [{"site": "cloud", "topic": f"t-{len(jobs) - 1}"}]
    if jobs[-1].site != "cloud":
        bodies[-1]["sink_site"] = "cloud"
    return composition_from_data(
        {"name": "c", "jobs": bodies, "inputs": inputs, "outputs": outputs}
    )


def measure(
    jobs: list[Job], description: CompositionDescription, noise: Mapping[str, float]
) -> JsonObject:
    """An analysis: 100 records/s enter at each input. `noise`: a factor on the rate at each end of
    a job (`job-0 in`), and with `#` on the size of its records there."""
    rates: dict[str, float] = {}
    reports = []
    for index, (job, body) in enumerate(zip(jobs, description.jobs, strict=True)):
        source, sink = body.source_topic, body.sink_topic
        taken = rates.setdefault(source, 100.0)
        rates[sink] = taken * job.selectivity
        name = f"job-{index}"
        rate = taken * noise.get(f"{name} in", 1.0)
        sent = rates[sink] * noise.get(f"{name} out", 1.0)
        reader_bytes = [
            jobs[n].bytes_in for n, each in enumerate(description.jobs) if each.source_topic == sink
        ]
        figures: dict[str, Any] = {
            "out_rate": sent,
            "selectivity": sent / rate,
            "bytes_in_per_record": job.bytes_in * noise.get(f"{name} in#", 1.0),
            "bytes_out_per_record": (reader_bytes or [50.0])[0] * noise.get(f"{name} out#", 1.0),
            "stateful": job.stateful,
            "state_bytes": job.state_bytes,
        }
        site = body.site or ""
        reports.append(describe_measured(name, site, rate, **figures))
    return analysis(reports)


def ask(
    description: CompositionDescription,
    analysis_body: JsonObject,
    policy: str,
    earlier: list[Earlier],
) -> Proposal:
    conditions = {name: Condition(free=9, cores=4.0, core_speed=1.0) for name in NAMES}

    def pose(staying: Any) -> Question:
        wiring = wire(description, SITES, set(staying))
        return pose_question(wiring, "c", as_result(analysis_body), SITES, conditions, QUICK)

    return propose(pose, Wish(find_policy(policy)), (), earlier)


def keep(proposal: Proposal) -> Earlier:
    """The proposal as the next one goes by it, once it has been stored."""
    record = replace(
        predict(), comparison=compare(proposal.question, proposal, "c", NOTHING_MEASURED)
    )
    return from_json(json.loads(json.dumps(to_json(record))), PlacementRecord).as_earlier


def carry_out(description: CompositionDescription, proposal: Proposal) -> CompositionDescription:
    return render(description, proposal.question.wiring, proposal.layout, SITES)


CASES = {
    "jobs": JOBS,
    "edges": st.sampled_from(
        [{0: "edge-a"}, {0: "edge-a", 1: "edge-b"}, {0: "cloud", 1: "edge-a"}]
    ),
    "policy": st.sampled_from(list_policies()),
}


def noise_of(draw: Any) -> dict[str, float]:
    ends = [f"job-{n} {end}{size}" for n in range(5) for end in ("in", "out") for size in ("", "#")]
    return {end: draw(FACTORS) for end in ends}


@given(data=st.data(), **CASES)
def test_the_same_rates_get_the_same_answer(
    data: Any, jobs: list[Job], edges: Mapping[int, str], policy: str
) -> None:
    description = describe(jobs, edges)
    first = ask(description, measure(jobs, description, {}), policy, [])
    kept = [keep(first)]
    for noise in ({}, noise_of(data.draw), dict.fromkeys(noise_of(data.draw), 0.9)):
        again = ask(description, measure(jobs, description, noise), policy, kept)
        assert again.layout.jobs == first.layout.jobs
        assert again.layout.links == first.layout.links
        placed = carry_out(description, first)
        after = ask(placed, measure(jobs, placed, noise), policy, kept)
        assert carry_out(placed, after) == placed


@given(**CASES)
def test_what_is_proposed_pays_for_itself(
    jobs: list[Job], edges: Mapping[int, str], policy: str
) -> None:
    description = describe(jobs, edges)
    proposal = ask(description, measure(jobs, description, {}), policy, [])
    question, layout = proposal.question, proposal.layout
    before = evaluate(question.whole, question.today())
    after = evaluate(question.whole, {**question.today(), **layout.loads()})
    if before.violations:
        return  # limits come first
    saved = before.wan_bytes_per_s - after.wan_bytes_per_s
    changes = carry_out(description, proposal) != description
    assert saved > price_of(question, layout) if changes else saved == 0
    sites = proposal.answer.sites
    for load in question.problem.loads:
        if load.stateful is False or not load.silence_s or sites[load.name] == load.site:
            continue
        back = {**sites, load.name: load.site or ""}
        alone = evaluate(question.problem, back).objective
        assert alone - evaluate(question.problem, dict(sites)).objective >= 100


@given(data=st.data(), **CASES)
def test_without_a_memory_no_move_is_undone_by_the_next_analysis(
    data: Any, jobs: list[Job], edges: Mapping[int, str], policy: str
) -> None:
    """Even if no earlier placement is known, a job that was moved is not moved back."""
    description = describe(jobs, edges)
    first = ask(description, measure(jobs, description, {}), policy, [])
    placed = carry_out(description, first)
    after = ask(placed, measure(jobs, placed, noise_of(data.draw)), policy, [])
    was = {job.name: job.site for job in first.question.wiring.jobs}
    moved = {name for name, site in first.layout.jobs.items() if site != was[name]}
    undone = {name for name in moved if after.layout.jobs[name] == was[name]}
    changed = {name for name, site in after.layout.jobs.items() if site != first.layout.jobs[name]}
    assert not (undone and undone == changed == moved)


def test_a_limit_that_any_answer_exceeds_by_now_is_no_reason_for_another_one() -> None:
    """The job needs 0.99 of a core, then 1.09 of one, wherever it is."""
    jobs = [Job(-1, "cloud", 100.0, 0.5, False, 0)]
    description = describe(jobs, {0: "edge-a"})
    busy, busier = (
        measure(jobs, description, {"job-0 in": factor, "job-0 out": factor})
        for factor in (1.0, 1.1)
    )
    for body in (busy, busier):
        body["jobs"][0]["reference_core_s_per_record"] = 0.0099
    first = ask(description, busy, "ranked", [])
    assert first.layout.jobs == {"job-0": "edge-a"}
    again = ask(description, busier, "ranked", [keep(first)])
    assert (again.repeats, again.layout.jobs) == ("p1", first.layout.jobs)
