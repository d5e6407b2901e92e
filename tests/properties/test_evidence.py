"""What was not measured moves nothing and frees nothing, by every policy."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from speck.analyzer.links import join_links
from speck.model.shown import render
from speck.model.values import JsonObject
from speck.placement.model import Kind, Limits, Problem
from speck.placement.names import list_policies
from speck.placement.places import Condition
from speck.placement.policies import find_policy
from speck.placement.problem import Question, pose_question
from speck.placement.rendering import lay_out
from speck.placement.wiring import At, wire
from speck.spec.schema import composition_from_data
from speck.spec.site_schema import site_from_data
from tests import rows_of_jobs
from tests.analyses import analysis, as_result, describe_measured, describe_unmeasured
from tests.memory_fog import site_body
from tests.placement_problems import limit_memory, random_problem
from tests.service_helpers import job_body

SEEDS = st.integers(0, 10**6)
SITES = ("cloud", "edge-a", "edge-b", "edge-c")


def forget_flows(problem: Problem, seed: int) -> Problem:
    """The problem where each load is where it is pinned, and some flows were not measured."""
    chance = random.Random(f"flows {seed}")
    silence_s = chance.choice([0.0, 5.0])
    loads = tuple(
        load
        if load.kind is Kind.END
        else replace(load, pinned=load.site if load.pinned else None, silence_s=silence_s)
        for load in problem.loads
    )
    flows = [flow for flow in problem.flows if chance.random() > 0.2]
    gone = tuple((flow.start, flow.end) for flow in problem.flows if flow not in flows)
    return replace(problem, loads=loads, flows=tuple(flows), unmeasured=gone)


@given(SEEDS, st.sampled_from(list_policies()), st.booleans())
def test_a_flow_without_evidence_moves_nothing_and_frees_nothing(
    seed: int, name: str, short: bool
) -> None:
    problem = random_problem(seed)
    problem = forget_flows(limit_memory(problem, seed) if short else problem, seed)
    sites = find_policy(name).place(problem).sites
    today = {load.name: load.site for load in problem.loads}
    for start, end in problem.unmeasured:
        assert sites[start] == today[start] and sites[end] == today[end]
        arrived = {load for load, site in sites.items() if site != today[load]}
        assert not {load for load in arrived if sites[load] in (today[start], today[end])}
        if today[start] != today[end]:
            sent = sum_sent(problem, sites, today[start])
            assert sent <= sum_sent(problem, today, today[start]) * (1 + 1e-5)


@given(SEEDS, st.sampled_from(list_policies()), st.booleans())
def test_no_job_moves_to_a_site_that_cannot_run_it(seed: int, name: str, short: bool) -> None:
    chance = random.Random(f"barred {seed}")
    problem = random_problem(seed)
    problem = limit_memory(problem, seed) if short else problem
    names = [place.name for place in problem.places]
    loads = tuple(
        replace(load, barred={site: "small" for site in names if chance.random() < 0.4})
        if load.kind is Kind.JOB
        else load
        for load in problem.loads
    )
    sites = find_policy(name).place(replace(problem, loads=loads)).sites
    for load in loads:
        is_free = load.pinned is None and load.work is not None and len(load.barred) < len(names)
        if is_free and sites[load.name] != load.site:
            assert sites[load.name] not in load.barred, load.name


def sum_sent(problem: Problem, sites: Any, site: str | None) -> float:
    return sum(
        flow.bytes_per_s
        for flow in problem.flows
        if sites[flow.start] == site and sites[flow.end] != site
    )


# -- from an analysis --------------------------------------------------------------------------


def make_case(chance: random.Random) -> tuple[Question, JsonObject]:
    """A merge of three edges with jobs and inner links anywhere, a job of another composition, and
    an analysis of which some figures, jobs and sites are missing."""
    bodies, reports = [], []
    for edge in "abc":
        clean = {"source_site": f"edge-{edge}", "source_topic": "raw"}
        link = {"sink_site": chance.choice(SITES), "sink_topic": f"clean-{edge}"}
        bodies.append(job_body(f"clean-{edge}", chance.choice(SITES), **clean, **link))
        source = {"source_site": link["sink_site"], "source_topic": f"clean-{edge}"}
        bodies.append(
            job_body(
                f"pass-{edge}", chance.choice(SITES), **source, sink_site="cloud", sink_topic="all"
            )
        )
    bodies.append(job_body("merge", chance.choice(SITES), source_site="cloud",
                           source_topic="all", sink_site="cloud", sink_topic="total"))  # fmt: skip
    for body in bodies:
        rate = 300.0 if body["job_name"] == "merge" else 100.0
        selectivity = chance.choice([0.1, 1.0])
        reports.append(describe_measured(body["job_name"], body["site"], rate,
                                         selectivity=selectivity, reference_cores=0.1))  # fmt: skip
    reports.append(describe_measured("other", chance.choice(SITES), composition="d"))
    measured = [forgotten for each in reports if (forgotten := forget(chance, each)) is not None]
    known_sites = [site for site in SITES if chance.random() > 0.05]
    body = analysis(measured, sites=known_sites, links=dispute(chance, bodies))
    inputs = [{"site": f"edge-{edge}", "topic": "raw"} for edge in "abc"]
    outputs = [{"site": "cloud", "topic": "total"}]
    description = composition_from_data(
        {"name": "c", "jobs": bodies, "inputs": inputs, "outputs": outputs}
    )
    sites = {name: site_from_data(site_body(name)) for name in SITES}
    conditions = {name: Condition(free=9) for name in SITES}
    others = {"other": reports[-1]["site"]}
    wiring = wire(description, sites)
    return pose_question(wiring, "c", as_result(body), sites, conditions, Limits(), others), body


def dispute(chance: random.Random, bodies: list[JsonObject]) -> list[JsonObject]:
    """Inner links, at some of which the two ends measured different rates."""
    return [
        {
            "composition": "c",
            "broker_site": body["sink_site"],
            "topic": body["sink_topic"],
            "evidence": "insufficient" if chance.random() < 0.1 else "sufficient",
            "producers": [],
            "readers": [],
        }
        for body in bodies[:-1]
    ]


def forget(chance: random.Random, report: JsonObject) -> JsonObject | None:
    """The report without some of its figures; None: it is missing altogether."""
    fate = chance.random()
    if fate < 0.05:
        return None
    if fate < 0.1:
        return describe_unmeasured(report["job_name"], report["site"], report["composition"])
    gone: JsonObject = {}
    for figure in ("in_rate", "out_rate", "selectivity", "bytes_in_per_record",
                   "bytes_out_per_record", "reference_core_s_per_record"):  # fmt: skip
        if chance.random() < 0.03:
            gone[figure] = None
    if chance.random() < 0.05:
        gone |= {"evidence": "insufficient", "why": ["2 usable pairs of samples"]}
        gone["rate_evidence"] = chance.choice(["sufficient", "insufficient"])
    return {**report, **gone}


def is_measured(report: JsonObject | None) -> bool:
    return report is not None and report["evidence"] == "sufficient"


@given(SEEDS, st.sampled_from(list_policies()))
def test_no_move_rests_on_a_figure_without_evidence(seed: int, name: str) -> None:
    question, body = make_case(random.Random(seed))
    answer = find_policy(name).place(question.problem)
    layout = lay_out(question, answer.sites)
    reports = {job["job_name"]: job for job in body["jobs"]}
    known_sites = {site["name"] for site in body["sites"]}
    jobs = {job.name: job for job in question.wiring.jobs}
    for job in jobs.values():
        to = layout.jobs[job.name]
        if to == job.site:
            continue
        assert is_measured(reports.get(job.name)) and to in known_sites
        assert reports[job.name]["reference_core_s_per_record"] is not None
        assert job.name not in question.doubts
        for other in (*jobs, "other"):
            here = jobs[other].site if other in jobs else reports.get(other, {}).get("site")
            report = reports.get(other)
            if here == to and report is not None and not is_measured(report):
                assert report.get("rate_evidence") == "sufficient"
    for link, site in layout.links.items():
        assert site == link.site or site not in question.closed
    disputed = {At(each["broker_site"], each["topic"]) for each in body["links"]
                if each["evidence"] == "insufficient"}  # fmt: skip
    for job in jobs.values():
        if disputed & {job.source, job.sink}:
            assert layout.jobs[job.name] == job.site
            assert all(layout.links[link] == link.site for link in disputed)
    ends = {end for flow in question.problem.unmeasured for end in flow}
    assert all(layout.jobs[end] == jobs[end].site for end in ends if end in jobs)
    links = [At(*end.removeprefix("topic:").split("/")) for end in ends - {*jobs}]
    assert all(layout.links[link] == link.site for link in links)


# -- from what was measured of each job --------------------------------------------------------


def make_measured_case(chance: random.Random) -> tuple[Question, set[str]]:
    """The merge of three edges, from rows of jobs of which some are missing, weak or wrong; and the
    jobs of which enough is known. Links, origins and the ranking are those of the analyzer."""
    rows, known = [], set()
    brokers = {topic: chance.choice(SITES) for topic in ("clean-a", "clean-b", "clean-c", "all")}
    wires = [(f"clean-{e}", (f"edge-{e}", "raw"), f"clean-{e}") for e in "abc"]
    wires += [(f"pass-{e}", (brokers[f"clean-{e}"], f"clean-{e}"), "all") for e in "abc"]
    wires.append(("merge", (brokers["all"], "all"), "total"))
    bodies = []
    for name, (source_site, source), sink in wires:
        site_of_sink = brokers.get(sink, "cloud")
        rate = 300.0 if name == "merge" else 100.0
        where = {"source_site": source_site, "source_topic": source}
        where |= {"sink_site": site_of_sink, "sink_topic": sink}
        bodies.append(job_body(name, chance.choice(SITES), **where))
        row = rows_of_jobs.job(
            name,
            site=bodies[-1]["site"],
            in_rate=rate,
            bytes_in_rate=50 * rate,
            out_rate=rate,
            bytes_out_rate=50 * rate,
            selectivity=1.0,
            reference_cores=0.001 * rate,
            source_is_input=source == "raw",
            **where,
        )
        fate = chance.random()
        if fate < 0.06:
            continue
        if fate < 0.12:  # a burst after an outage, seen by two samples
            row |= {"evidence": "insufficient", "rate_evidence": "insufficient"}
            row |= {"in_rate": 3 * rate, "bytes_in_rate": 150 * rate, "rate_why": ["2 pairs"]}
        else:
            known.add(name)
        rows.append(row)
    inputs = [{"site": f"edge-{e}", "topic": "raw"} for e in "abc"]
    outputs = [{"site": "cloud", "topic": "total"}]
    composition = {"name": "c", "jobs": bodies, "inputs": inputs, "outputs": outputs}
    ranked = rows_of_jobs.rank(rows, [rows_of_jobs.site(name) for name in SITES])
    jobs = [rows_of_jobs.show(row) for row in rows]
    links = list(map(render, join_links(rows, [])))
    body = analysis(jobs, SITES, links, ranking=ranked)
    sites = {name: site_from_data(site_body(name)) for name in SITES}
    conditions = {name: Condition(free=9) for name in SITES}
    wiring = wire(composition_from_data(composition), sites)
    return pose_question(wiring, "c", as_result(body), sites, conditions, Limits()), known


@given(SEEDS, st.sampled_from(list_policies()))
def test_no_move_rests_on_a_job_of_which_too_little_is_known(seed: int, name: str) -> None:
    question, known = make_measured_case(random.Random(seed))
    layout = lay_out(question, find_policy(name).place(question.problem).sites)
    unknown = [job for job in question.wiring.jobs if job.name not in known]
    shut = {at for job in unknown for at in (job.site, job.sink.site)}
    for job in question.wiring.jobs:
        to = layout.jobs[job.name]
        assert to == job.site or (job.name in known and to not in shut)
    for link, to in layout.links.items():
        assert to == link.site or to not in shut
        if any(link == job.sink for job in unknown):
            assert to == link.site


def test_some_of_these_cases_move_jobs_and_some_close_sites() -> None:
    """Otherwise the properties above would hold for nothing."""
    moves, closed = 0, 0
    for seed in range(60):
        question, _ = make_case(random.Random(seed))
        sites = find_policy("milp").place(question.problem).sites
        moves += any(sites[job.name] != job.site for job in question.wiring.jobs)
        closed += bool(question.closed)
    assert moves > 10 and closed > 10
    moves = 0
    for seed in range(60):
        question, known = make_measured_case(random.Random(seed))
        sites = find_policy("ranked").place(question.problem).sites
        is_moved = any(sites[job.name] != job.site for job in question.wiring.jobs)
        moves += is_moved and len(known) < len(question.wiring.jobs)
    assert moves > 10
