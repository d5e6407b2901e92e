"""From an analysis to the question for policies."""

from __future__ import annotations

from typing import Any

import pytest

from speck.model.values import JsonObject
from speck.placement.instance import close_places
from speck.placement.model import Candidate, Flow, Kind, Limits
from speck.placement.places import Condition
from speck.placement.problem import Question, pose_question
from speck.placement.wiring import At, wire
from speck.spec.schema import composition_from_data
from speck.spec.site_schema import site_from_data
from tests.analyses import analysis, as_result, describe_measured, describe_unmeasured, site_told
from tests.memory_fog import site_body
from tests.service_helpers import job_body

SITES = {name: site_from_data(site_body(name)) for name in ("cloud", "edge-a", "edge-b")}
IDLE = {name: Condition(free=4) for name in SITES}
FEED = [{"site": "edge-a", "topic": "raw"}]


def pose(
    analysis_body: JsonObject,
    *jobs: JsonObject,
    conditions: dict[str, Condition] = IDLE,
    **more: Any,
) -> Question:
    description = composition_from_data({"name": "c", "jobs": list(jobs), **more})
    wiring = wire(description, SITES, more.pop("foreign", ()))
    return pose_question(wiring, "c", as_result(analysis_body), SITES, conditions, Limits())


def flows(question: Question) -> dict[tuple[str, str], Flow]:
    return {(flow.start, flow.end): flow for flow in question.problem.flows}


CLEAN = job_body("clean", "cloud", source_site="edge-a", source_topic="raw", sink_topic="tidy")
MERGE = job_body("merge", "cloud", source_topic="tidy", sink_topic="all")
COUNT = job_body("count", "cloud", source_topic="tidy", sink_topic="counts")


def test_what_is_offered_goes_through_by_topic() -> None:
    """A job that is behind takes 40 a second; its producer sends 50."""
    analysis_body = analysis(
        [
            describe_measured("clean", "cloud", selectivity=0.5),
            describe_measured("merge", "cloud", 40.0),
        ]
    )
    question = pose(analysis_body, CLEAN, MERGE, inputs=FEED)
    loads = {load.name: load for load in question.problem.loads}
    assert loads["merge"].rate == 50.0
    assert loads["merge"].work == pytest.approx(0.05)
    assert flows(question)["clean", "merge"] == Flow("clean", "merge", 50.0, 5000.0)
    assert flows(question)["topic:edge-a/raw", "clean"].bytes_per_s == 10_000.0
    assert flows(question)["merge", "topic:cloud/all"].records_per_s == 50.0


def test_what_the_analysis_says_of_memory_output_and_rank_is_in_the_problem() -> None:
    clean = describe_measured(
        "clean", "cloud", heap_bytes=20e6, heap_bytes_per_s=1e4, trueOutputProcessingRate=700.0
    )
    heap = {"heap_bytes": 50e6, "heap_max_bytes": 200e6}
    ranks = [
        {"job_name": name, "composition": owner, "edge": "edge-a", "score": 9.0, "against": ["a"]}
        for name, owner in (("clean", "c"), ("clean", "other"))
    ]
    body = analysis([clean], ranking=ranks)
    body["sites"] = [site_told(name, **(heap if name == "cloud" else {})) for name in SITES]
    problem = pose(body, CLEAN, inputs=FEED).problem
    (load,) = [load for load in problem.loads if load.name == "clean"]
    assert (load.memory_bytes, load.true_output_rate) == (26e6, 700.0)
    memory = {place.name: place.memory_bytes for place in problem.places}
    assert memory == {"cloud": 160e6 - 50e6 + 20e6, "edge-a": None, "edge-b": None}
    assert problem.ranking == (Candidate("clean", "edge-a", 9.0, ("a",)),)


def test_a_topic_of_two_readers_is_a_load_that_may_move() -> None:
    analysis_body = analysis(
        [describe_measured(name, "cloud") for name in ("clean", "merge", "count")]
    )
    question = pose(analysis_body, CLEAN, MERGE, COUNT, inputs=FEED)
    (topic,) = [load for load in question.problem.loads if load.name == "topic:cloud/tidy"]
    assert (topic.kind, topic.pinned, topic.slots) == (Kind.TOPIC, None, 0)
    assert {end for start, end in flows(question) if start == topic.name} == {"merge", "count"}
    assert flows(question)["clean", topic.name].bytes_per_s == 10_000.0


def test_what_something_outside_uses_cannot_move() -> None:
    analysis_body = analysis(
        [describe_measured("clean", "cloud"), describe_measured("merge", "cloud")]
    )
    for more in (
        {"outputs": [{"site": "cloud", "topic": "tidy"}]},
        {"outputs": [{"site": "cloud", "topic": "tidy", "client_id": "dashboard"}]},
        {"foreign": {At("cloud", "tidy")}},
    ):
        description = {"name": "c", "jobs": [CLEAN, MERGE]}
        outside = more.pop("foreign", ())
        wiring = wire(composition_from_data({**description, **more}), SITES, outside)
        question = pose_question(wiring, "c", as_result(analysis_body), SITES, IDLE, Limits())
        pins = {load.name: load.pinned for load in question.problem.loads}
        assert pins["topic:cloud/tidy"] == "cloud"
        assert pins["topic:cloud/all"] == "cloud"  # nobody reads it, so somebody outside does


def test_the_feed_of_two_readers_is_taken_in_once() -> None:
    twice = {**COUNT, "source_topic": "raw", "source_site": "edge-a"}
    analysis_body = analysis(
        [describe_measured("clean", "cloud"), describe_measured("count", "cloud", 90.0)]
    )
    question = pose(analysis_body, CLEAN, twice, inputs=FEED)
    fed = [flow for flow in question.whole.flows if flow.start.startswith("outside:")]
    assert fed == [Flow("outside:edge-a/raw", "topic:edge-a/raw", 100.0, 0.0)]
    assert flows(question)["topic:edge-a/raw", "count"].records_per_s == 100.0


def test_producers_outside_that_tell_their_numbers_say_what_is_offered() -> None:
    sensor = {"client_id": "replay", "job_name": None, "site": None}
    link = {
        "composition": "c",
        "broker_site": "edge-a",
        "topic": "raw",
        "producers": [{**sensor, "records_per_s": 300.0, "bytes_per_s": 30_000.0}],
        "readers": [],
        "wan_bytes_per_s": None,
    }
    analysis_body = analysis([describe_measured("clean", "cloud", 100.0)], links=[link])
    assert pose(analysis_body, CLEAN, inputs=FEED).rates[At("edge-a", "raw")] == 300.0


@pytest.mark.parametrize(
    ("growth", "fit", "offered"),
    [(60.0, 0.9, 100.0), (60.0, 0.2, 40.0), (-3.0, 0.9, 40.0), (None, None, 40.0)],
)
def test_what_waits_before_the_first_job_is_offered_too(
    growth: float | None, fit: float | None, offered: float
) -> None:
    """It takes 40 a second, and by how much its queue grows besides."""
    reader = {"client_id": "reader", "job_name": "clean", "site": "cloud", "records_per_s": 40.0}
    reader |= {"bytes_per_s": 4000.0, "lag": 9000, "lag_per_s": growth, "lag_fit": fit}
    link = {"composition": "c", "broker_site": "edge-a", "topic": "raw", "wan_bytes_per_s": None}
    analysis_body = analysis(
        [describe_measured("clean", "cloud", 40.0), describe_measured("merge", "cloud", 40.0)],
        links=[{**link, "producers": [], "readers": [reader]}],
    )
    question = pose(analysis_body, CLEAN, MERGE, inputs=FEED)
    assert question.rates == dict.fromkeys((At("edge-a", "raw"), At("cloud", "tidy")), offered) | {
        At("cloud", "all"): offered
    }


def test_a_topic_that_jobs_and_others_feed_carries_both() -> None:
    analysis_body = analysis(
        [describe_measured("clean", "cloud"), describe_measured("merge", "cloud", 130.0)]
    )
    both = [*FEED, {"site": "cloud", "topic": "tidy"}]
    assert pose(analysis_body, CLEAN, MERGE, inputs=both).rates[At("cloud", "tidy")] == 130.0
    assert pose(analysis_body, CLEAN, MERGE, inputs=FEED).rates[At("cloud", "tidy")] == 100.0


def test_what_was_not_measured_stays_and_its_neighbour_tells_what_it_can() -> None:
    analysis_body = analysis(
        [describe_unmeasured("clean", "cloud"), describe_measured("merge", "cloud", 40.0)]
    )
    question = pose(analysis_body, CLEAN, MERGE, inputs=FEED)
    loads = {load.name: load for load in question.problem.loads}
    assert loads["clean"].work is None
    assert loads["merge"].rate == 40.0
    assert question.doubts == {"clean": "busy for 0.2 s only"}
    assert flows(question)["topic:cloud/tidy", "merge"].records_per_s == 40.0
    assert ("topic:edge-a/raw", "clean") not in flows(question)


def test_a_link_whose_bytes_are_not_known_holds_both_its_ends() -> None:
    analysis_body = analysis(
        [
            describe_measured("clean", "cloud", bytes_out_per_record=None),
            describe_measured("merge", "cloud", bytes_in_per_record=None),
        ]
    )
    question = pose(analysis_body, CLEAN, MERGE, inputs=FEED)
    assert {load.name for load in question.problem.loads if load.work is None} == {"clean", "merge"}
    assert "clean -> topic:cloud/tidy was not measured" in " ".join(question.notes)


def test_a_stopped_job_stays_takes_no_slot_and_sends_nothing() -> None:
    analysis_body = analysis([describe_measured("merge", "cloud", 40.0)])
    question = pose(analysis_body, {**CLEAN, "state": "stopped"}, MERGE, inputs=FEED)
    loads = {load.name: load for load in question.problem.loads}
    assert (loads["clean"].work, loads["clean"].slots) == (None, 0)
    assert "clean" not in question.doubts
    assert not any("clean" in ends for ends in flows(question))


def test_jobs_of_others_take_capacity_and_what_is_not_known_of_them_is_told() -> None:
    analysis_body = analysis(
        [
            describe_measured("clean", "cloud"),
            describe_measured("other", "edge-a", 200.0, composition="d"),
            describe_unmeasured("third", "edge-b", composition="d"),
        ]
    )
    question = pose(analysis_body, CLEAN, inputs=FEED)
    busy = {place.name: place.busy for place in question.problem.places}
    assert busy == {"cloud": 0.0, "edge-a": pytest.approx(0.2), "edge-b": 0.0}
    assert "the load of other jobs on site edge-b was not measured: third" in question.notes


def test_jobs_of_others_take_their_part_of_an_uplink() -> None:
    """One reads 100 records/s of 100 bytes from edge-a, one sends 20 of 100 away from there."""
    far, near = {"site": "cloud", "topic": "x"}, {"site": "edge-a", "topic": "y"}
    analysis_body = analysis(
        [
            describe_measured("clean", "cloud"),
            describe_measured("reads", "cloud", composition="d", source=near, sink=far),
            describe_measured("sends", "edge-a", 20.0, composition="d", source=near, sink=far),
            describe_unmeasured("third", "edge-b", composition="d"),
        ]
    )
    sites = {**SITES, "edge-a": site_from_data({**site_body("edge-a"), "uplink_mbps": 0.2})}
    wiring = wire(composition_from_data({"name": "c", "jobs": [CLEAN]}), sites)
    places = pose_question(
        wiring, "c", as_result(analysis_body), sites, IDLE, Limits()
    ).problem.places
    assert {p.name: p.uplink for p in places} == {"cloud": None, "edge-a": 10_500.0, "edge-b": None}


def test_a_reader_without_sizes_gets_the_mean_size_of_its_writers() -> None:
    second = job_body(
        "second", "cloud", source_site="edge-a", source_topic="raw", sink_topic="tidy"
    )
    analysis_body = analysis(
        [
            describe_measured("clean", "cloud", bytes_out_per_record=100.0),
            describe_measured("second", "cloud", bytes_out_per_record=300.0),
            describe_measured("merge", "cloud", 200.0, bytes_in_per_record=None),
        ]
    )
    question = pose(analysis_body, CLEAN, second, MERGE, inputs=FEED)
    (flow,) = [flow for flow in question.whole.flows if flow.end == "merge"]
    assert (flow.records_per_s, flow.bytes_per_s) == (200.0, 40_000.0)


def test_sites_are_as_they_were_calibrated_then_as_they_told() -> None:
    analysis_body = analysis([describe_measured("clean", "cloud")], sites=[])
    analysis_body["sites"] = [site_told("edge-a", cores=4.0, core_speed=None), site_told("cloud")]
    conditions = {
        "cloud": Condition(free=3, held=2),
        "edge-a": Condition(free=None),
        "edge-b": Condition(free=1, cores=0.25, core_speed=0.8),
    }
    question = pose(analysis_body, CLEAN, inputs=FEED, conditions=conditions)
    places = {place.name: place for place in question.problem.places}
    assert (places["cloud"].slots, places["cloud"].capacity) == (5, 2.0)
    assert (places["edge-a"].slots, places["edge-a"].cores) == (None, 4.0)
    assert places["edge-b"].capacity == pytest.approx(0.2)
    assert "at sites that are not calibrated: edge-a" in " ".join(question.notes)
    away = pose(analysis_body, CLEAN, inputs=FEED, conditions={"cloud": Condition(free=3, held=2)})
    assert {p.name: p.slots for p in away.problem.places} == {"cloud": 5, "edge-a": 0, "edge-b": 0}


def test_a_label_tells_the_latency_and_nine_tenths_of_an_uplink_are_for_packets() -> None:
    body = {**site_body("edge-a"), "uplink_mbps": 10, "labels": {"latency_ms": "18.6"}}
    sites = {**SITES, "edge-a": site_from_data(body)}
    wiring = wire(composition_from_data({"name": "c", "jobs": [CLEAN]}), sites)
    analysis_body = analysis([describe_measured("clean", "cloud")])
    (place,) = [
        place
        for place in pose_question(
            wiring, "c", as_result(analysis_body), sites, IDLE, Limits()
        ).problem.places
        if place.name == "edge-a"
    ]
    assert (place.latency_ms, place.uplink) == (18.6, 1_125_000.0)


def test_a_link_that_an_outsider_was_seen_at_stays_though_it_was_not_declared() -> None:
    """Moved, it would be fed and read at the new broker; they know the old one only."""
    outsider = {"client_id": "other", "job_name": None, "site": None, "records_per_s": None}
    clean = {**CLEAN, "site": "edge-a", "sink_site": "edge-a"}
    merge = {**MERGE, "source_site": "edge-a"}
    jobs = [describe_measured("clean", "edge-a"), describe_measured("merge", "cloud")]
    tidy = At("edge-a", "tidy")
    for side, expected in (("producers", False), ("readers", False), (None, True)):
        link = {"composition": "c", "broker_site": "edge-a", "topic": "tidy"}
        link |= {"producers": [], "readers": []}
        link |= {side: [outsider]} if side else {}
        question = pose(analysis(jobs, links=[link]), clean, merge, inputs=FEED)
        assert question.wiring.is_movable(tidy) is expected


@pytest.mark.parametrize("silent", ["cloud", "edge-a"])
def test_nothing_moves_away_from_a_site_that_does_not_answer(silent: str) -> None:
    """Its job could not be stopped, nor be told of another broker: the change would stand."""
    analysis_body = analysis(
        [
            describe_measured("clean", "cloud", selectivity=0.1),
            describe_measured("merge", "cloud", 10.0),
        ]
    )
    merge = {**MERGE, "site": "edge-a", "source_site": "cloud"}
    conditions = {**IDLE, silent: Condition(answers=False, held=2)}
    question = pose(analysis_body, CLEAN, merge, inputs=FEED, conditions=conditions)
    pins = {load.name: load.pinned for load in question.problem.loads if load.kind is Kind.JOB}
    there = {"cloud": "clean", "edge-a": "merge"}
    assert pins == {"clean": None, "merge": None} | {there[silent]: silent}
    assert not question.wiring.is_movable(At("cloud", "tidy"))
    assert f"no job is moved to or from sites that do not answer: {silent}" in question.notes


def test_a_link_whose_ends_disagree_holds_both_of_them_and_closes_their_sites() -> None:
    link = {"composition": "c", "broker_site": "cloud", "topic": "tidy", "producers": []}
    link |= {"readers": [], "evidence": "insufficient", "why": ["its ends disagree"]}
    reports = [describe_measured("clean", "edge-b"), describe_measured("merge", "cloud")]
    question = pose(analysis(reports, links=[link]), {**CLEAN, "site": "edge-b",
                    "sink_site": "cloud"}, MERGE, inputs=FEED)  # fmt: skip
    assert question.unmeasured == ("clean -> topic:cloud/tidy", "topic:cloud/tidy -> merge")
    assert question.closed.keys() == {"cloud", "edge-b"}
    (edge_b,) = [place for place in close_places(question.problem) if place.name == "edge-b"]
    assert edge_b.uplink_closed == "clean -> topic:cloud/tidy was not measured"


def test_what_a_job_without_a_cost_uses_is_not_free() -> None:
    """Its busy time was measured: it counts. Where nothing was, the site takes no more load."""
    weak = {"evidence": "insufficient", "why": ["only 9 input records"]}
    idle = describe_measured("clean", "cloud", reference_cores=0.25, **weak)
    other = describe_measured("other", "edge-a", composition="d", reference_cores=0.5, **weak)
    question = pose(analysis([idle, other]), CLEAN, inputs=FEED)
    assert {place.name: place.busy for place in question.problem.places} == {
        "cloud": 0.25,
        "edge-a": 0.5,
        "edge-b": 0.0,
    }
    assert not question.closed
    for unknown, closed in ((idle, "cloud"), (other, "edge-a")):
        jobs = [idle, other, {**unknown, "reference_cores": None}]
        jobs.remove(unknown)
        assert pose(analysis(jobs), CLEAN, inputs=FEED).closed.keys() == {closed}


def test_a_site_of_unknown_cores_takes_no_more_load() -> None:
    body = analysis([describe_measured("clean", "cloud")], sites=["cloud", "edge-b"])
    question = pose(body, CLEAN, inputs=FEED)
    assert question.closed == {"edge-a": "its number of cores is unknown"}
    assert [note for note in question.notes if "edge-a" in note and "load" in note] == [
        "no load is moved to sites whose number of cores is unknown: edge-a"
    ]
