"""Placements: proposed from measurements, applied by the ordinary apply."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from binders.memory import MemoryEngine
from speck.clock import rfc3339
from speck.errors import ConflictError, InvalidError, NotFoundError, StaleRevisionError
from speck.model.site import AgentReport
from speck.model.values import JsonObject
from speck.placement.names import list_policies
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.schema import load_composition
from tests.analyses import (
    Given,
    analysis,
    describe_measured,
    describe_unmeasured,
    show_placement,
    site_told,
)
from tests.calibrating import put_calibration
from tests.service_helpers import DONE, composition, engine, job_body, look_anew

CLEAN = job_body("clean", "cloud", source_site="edge-a", source_topic="raw", sink_topic="tidy")
MERGE = job_body("merge", "cloud", source_topic="tidy", sink_topic="all")
ENDS = {
    "inputs": [{"site": "edge-a", "topic": "raw"}],
    "outputs": [{"site": "cloud", "topic": "all"}],
}
FILTERS = analysis(
    [
        describe_measured("clean", "cloud", selectivity=0.1),
        describe_measured("merge", "cloud", 10.0, selectivity=2.0),
    ]
)


@pytest.fixture
def placed(service: Service) -> Service:
    """Two jobs in the cloud, fed at edge-a; the first lets a tenth through."""
    service.compositions.apply(composition(CLEAN, MERGE, **ENDS), DONE)
    service.placements.analyses = Given(FILTERS)
    return service


def make_placement(service: Service, policy: str = "milp", **more: Any) -> JsonObject:
    placement = service.placements.make("c", policy, **more)
    assert service.placements.get(placement.id) == placement
    return show_placement(placement)


def test_a_filter_is_proposed_for_where_its_data_comes_from(placed: Service) -> None:
    placement = make_placement(placed)
    assert placement["today"]["wan_bytes_per_s"] == pytest.approx(10_000)
    assert placement["proposed"]["wan_bytes_per_s"] == pytest.approx(1_000)
    # its state of 1 kB, and 2 s of 10 kB/s
    assert placement["gain"] == {
        "wan_bytes_per_s": pytest.approx(9_000),
        "share": pytest.approx(0.9),
        "cost_bytes": pytest.approx(21_000),
        "net_bytes_per_s": pytest.approx(9_000 - 21_000 / 3600),
        "break_even_s": pytest.approx(21 / 9),
    }
    (move,) = placement["proposed"]["moves"]
    assert (move["job_name"], move["from"], move["to"]) == ("clean", "cloud", "edge-a")
    assert move["saved_bytes_per_s"] == pytest.approx(9_000)
    assert (move["cost_bytes"], move["silence_s"]) == (pytest.approx(21_000), 2.0)
    assert move["break_even_s"] == pytest.approx(21 / 9)
    assert placement["today"]["sites"] == {"clean": "cloud", "merge": "cloud"}
    assert placement["proposed"]["utilisation"]["edge-a"] == pytest.approx(0.05)
    (clean, merge) = load_composition(placement["yaml"].encode(), None).jobs
    assert (clean.site, clean.sink_site, merge.site) == ("edge-a", "cloud", "cloud")


def rank(job_name: str, score: float | None, *against: str) -> JsonObject:
    row = {"job_name": job_name, "composition": "c", "edge": "edge-a", "score": score}
    return {**row, "against": list(against)}


def test_where_it_differs_from_the_ranking_it_says_why(placed: Service) -> None:
    ranking = [rank("merge", 12741.0), rank("clean", 9000.0), rank("other", 1.0)]
    placed.placements.analyses = Given({**FILTERS, "ranking": ranking})
    clean, merge = make_placement(placed)["jobs"]
    assert merge["why"] == [
        "the ranking suggests edge-a, but more bytes would be sent between sites if only this job"
        " were there: its output goes to cloud"
    ]
    assert (merge["saved_bytes_per_s"], merge["compared_with"]) == (1000.0, "edge-a")
    assert clean["why"] == ["at edge-a fewer bytes cross between sites than at cloud"]
    assert (clean["saved_bytes_per_s"], clean["compared_with"]) == (9000.0, "cloud")
    carried_out = make_placement(placed, "ranked", all_moves=True)
    assert carried_out["proposed"]["sites"] == {"clean": "edge-a", "merge": "edge-a"}


def test_a_move_that_does_not_pay_is_proposed_by_no_policy(placed: Service) -> None:
    """merge sends twice what it takes: at edge-a it would cost 1 kB/s."""
    placed.placements.analyses = Given({**FILTERS, "ranking": [rank("merge", 12741.0)]})
    for policy in list_policies():
        placement = make_placement(placed, policy)
        assert placement["proposed"]["sites"]["merge"] == "cloud"
        assert placement["gain"]["net_bytes_per_s"] > 0 or placement["proposed"]["moves"] == []
    carried_out = make_placement(placed, "ranked")
    assert carried_out["dropped"] == ["merge"]
    assert carried_out["jobs"][1]["why"] == ["a move would not save what it costs within 1 h"]


def test_the_horizon_is_a_limit_that_can_be_set(placed: Service) -> None:
    moves = [
        make_placement(placed, limits={"horizon_s": seconds})["proposed"]["moves"]
        for seconds in (2.0, 3.0)
    ]
    assert [len(each) for each in moves] == [0, 1]


def test_the_same_evidence_gets_the_same_answer(placed: Service) -> None:
    first = make_placement(placed)
    again = make_placement(placed)
    assert (again["repeats"], again["proposed"]) == (first["id"], first["proposed"])
    other = make_placement(placed, limits={"utilisation": 0.5})
    assert other["repeats"] is None
    placed.placements.analyses = Given(scale_rates(1.1))
    third = make_placement(placed)  # by the first evidence, not by that of the one before
    assert third["repeats"] == first["id"]
    placed.placements.analyses = Given(scale_rates(2.0))
    assert make_placement(placed)["repeats"] is None


def scale_rates(factor: float) -> JsonObject:
    jobs = [
        {**job, "in_rate": factor * job["in_rate"], "out_rate": factor * job["out_rate"]}
        for job in FILTERS["jobs"]
    ]
    return {**FILTERS, "jobs": jobs}


def test_silences_are_those_of_past_moves(placed: Service) -> None:
    assert make_placement(placed)["silences"]["stateless"] == {"seconds": 2.0, "moves": 0}
    placed.placements.apply(make_placement(placed)["id"], DONE)
    (change, *_) = reversed(list(placed.records.changes.heads()))
    starts = [o for o in placed.records.changes.operations(change.id) if o.kind == "start"]
    stops = [o for o in placed.records.changes.operations(change.id) if o.kind == "stop"]
    begun, ended = "2026-01-31T12:00:00.000Z", "2026-01-31T12:00:07.500Z"
    for operation, times in ((stops[0], {"started": begun}), (starts[0], {"ended": ended})):
        outcome = replace(operation, **times)
        placed.records.write(placed.records.changes.put_outcomes(change.id, [outcome]))
    silences = make_placement(placed)["silences"]
    assert silences == {
        "stateless": {"seconds": 7.5, "moves": 1},
        "stateful": {"seconds": 10.0, "moves": 0},
    }


def test_an_applied_placement_moves_the_job_and_no_other(placed: Service) -> None:
    placement = make_placement(placed)
    answer = placed.placements.apply(placement["id"], DONE)
    assert answer.state == "done"
    assert [job.action for job in answer.plan.jobs] == ["move", "unchanged"]
    assert {j.job_name: j.site for j in placed.jobs.all()} == {
        "clean": "edge-a",
        "merge": "cloud",
    }
    again = make_placement(placed)
    assert again["proposed"]["moves"] == []
    assert again["gain"]["wan_bytes_per_s"] == 0


def test_what_changed_meanwhile_is_not_overwritten(placed: Service) -> None:
    placement = make_placement(placed)
    placed.compositions.apply(composition({**CLEAN, "args": ["x"]}, MERGE, **ENDS), DONE)
    with pytest.raises(StaleRevisionError, match="newest revision is 2, not 1 as in If-Match"):
        placed.placements.apply(placement["id"], ApplyRequest())


def test_without_an_analysis_it_says_what_to_run(placed: Service) -> None:
    placed.placements.analyses = Given()
    with pytest.raises(ConflictError, match="run `speck analyze c`"):
        placed.placements.make("c")


def test_jobs_that_were_never_measured_move_to_the_cloud_when_asked(placed: Service) -> None:
    at_edge = {**CLEAN, "site": "edge-a", "sink_site": "cloud"}
    placed.compositions.apply(composition(at_edge, MERGE, **ENDS), DONE)
    placed.placements.analyses = Given()
    placement = show_placement(placed.placements.make("c", "all-cloud", move_unmeasured=True))
    assert placement["analysis"] is None
    assert placement["proposed"]["sites"] == {"clean": "cloud", "merge": "cloud"}
    assert placed.placements.apply(placement["id"], DONE).state == "done"
    (clean, _) = load_composition(placement["yaml"].encode(), None).jobs
    assert (clean.site, clean.source_site) == ("cloud", "edge-a")
    assert {job.site for job in placed.jobs.all()} == {"cloud"}
    with pytest.raises(
        InvalidError, match="by policy milp: it goes by measurements; use all-cloud"
    ):
        placed.placements.make("c", "milp", move_unmeasured=True)


def test_an_analysis_of_another_composition_or_not_done_is_refused(placed: Service) -> None:
    other = {**FILTERS, "id": "a2", "composition": "other"}
    running = {**FILTERS, "id": "a3", "state": "running"}
    placed.placements.analyses = Given(other, running)
    with pytest.raises(ConflictError, match="it is of composition 'other'"):
        placed.placements.make("c", analysis_id="a2")
    with pytest.raises(ConflictError, match="it is running"):
        placed.placements.make("c", analysis_id="a3")


def test_what_is_not_there_is_not_found(placed: Service) -> None:
    with pytest.raises(NotFoundError, match="composition 'nothing'"):
        placed.placements.make("nothing")
    with pytest.raises(InvalidError, match="by policy best: there is none, only milp"):
        placed.placements.make("c", "best")
    with pytest.raises(NotFoundError, match="placement 'p'"):
        placed.placements.get("p")


def test_a_job_that_was_not_measured_stays_and_is_told(placed: Service) -> None:
    analysis_body = analysis(
        [
            describe_unmeasured("clean", "cloud"),
            describe_measured("merge", "cloud", 10.0, selectivity=2.0),
        ]
    )
    placed.placements.analyses = Given(analysis_body)
    placement = make_placement(placed)
    assert placement["proposed"]["moves"] == []
    assert placement["doubts"] == {"clean": "busy for 0.2 s only"}
    assert placement["jobs"][0]["why"] == ["it stays, for lack of evidence: busy for 0.2 s only"]
    assert placement["jobs"][0]["confidence"] is None
    assert "topic:edge-a/raw -> clean was not measured" in " ".join(placement["notes"])


def test_a_site_that_does_not_answer_gets_nothing(placed: Service) -> None:
    engine("edge-a").unreachable = True
    placed.changes.touch()
    placement = make_placement(placed)
    assert placement["proposed"]["moves"] == []
    assert "no job is moved to or from sites that do not answer: edge-a" in placement["notes"]
    placed.placements.analyses = Given({**FILTERS, "ranking": [rank("clean", 9000.0)]})
    assert make_placement(placed)["jobs"][0]["why"] == [
        "the ranking suggests edge-a, but edge-a does not answer"
    ]


def test_slots_that_others_hold_are_not_given_again(placed: Service) -> None:
    others = [job_body(f"o{n}", "edge-a") for n in range(16)]
    placed.compositions.apply(composition(*others, name="others"), DONE)
    placement = make_placement(placed)
    assert placement["proposed"]["moves"] == []
    assert "o0, o1, o10" in next(
        note for note in placement["notes"] if "load of other jobs on site edge-a" in note
    )


def test_calibration_decides_what_a_site_can_do(placed: Service) -> None:
    placed.records.write(put_calibration(placed, "edge-a", 0.25, 0.5))
    placement = make_placement(placed)  # 0.1 core-seconds a second of 0.125: over the limit of 70 %
    assert placement["proposed"]["moves"] == []
    assert make_placement(placed, limits={"utilisation": 0.9})["proposed"]["moves"]


def test_memory_is_a_limit_and_the_shortage_is_told(placed: Service) -> None:
    """clean needs 300 MB. 250 MB are left of 80 % of edge-a's heap."""
    heap = {"heap_bytes": 150e6, "heap_max_bytes": 500e6}
    analysis_body = {
        **FILTERS,
        "jobs": [
            {**FILTERS["jobs"][0], "heap_bytes": 300000000.0, "heap_bytes_per_s": 0.0},
            *FILTERS["jobs"][1:],
        ],
        "sites": [
            {**each, **(heap if each["name"] == "edge-a" else {})} for each in FILTERS["sites"]
        ],
        "ranking": [rank("clean", 9000.0)],
    }
    placed.placements.analyses = Given(analysis_body)
    placement = make_placement(placed)
    assert placement["proposed"]["moves"] == []
    assert placement["memory_available_bytes"]["edge-a"] == 250e6
    assert placement["jobs"][0]["why"] == [
        "the ranking suggests edge-a, but with it at edge-a, jobs at edge-a need 300 MB, 250 MB are"
        " free"
    ]


def test_no_job_goes_to_a_machine_that_is_too_small_for_its_engine(placed: Service) -> None:
    placed.placements.analyses = Given({**FILTERS, "ranking": [rank("clean", 9000.0)]})
    (move,) = make_placement(placed)["proposed"]["moves"]
    assert (move["job_name"], move["to"]) == ("clean", "edge-a")
    with patch.object(MemoryEngine, "machine_memory_mb", 4096, create=True):
        placed.sites.heartbeat("edge-a", AgentReport(memory_bytes=2 << 30))
        for policy in ("milp", "greedy", "ranked", "all-edge", "bottom-up"):
            placement = make_placement(placed, policy)
            moves = [each["to"] for each in placement["proposed"]["moves"]]
            assert "edge-a" not in moves, policy
        placement = make_placement(placed)
        assert placement["jobs"][0]["why"] == [
            "the ranking suggests edge-a, but edge-a cannot run it: its machine has 2.0 GB of"
            " memory, and an engine of kind memory needs one with 4 GB"
        ]
        placed.sites.heartbeat("edge-a", AgentReport(memory_bytes=8 << 30))
        assert make_placement(placed)["proposed"]["moves"]


def test_requirements_of_the_composition_are_limits(service: Service) -> None:
    needs = {"requirements": {"min_rate": 1000.0}}
    service.compositions.apply(composition(CLEAN, MERGE, **ENDS, **needs), DONE)
    service.records.write(put_calibration(service, "edge-a", 0.5, 1.0))
    service.placements.analyses = Given(FILTERS)
    assert make_placement(service)["proposed"]["moves"] == []


def test_only_the_newest_are_kept(placed: Service) -> None:
    ids = [make_placement(placed, "all-cloud")["id"] for _ in range(103)]
    assert [head.id for head in placed.placements.all("c")] == ids[:2:-1]
    assert placed.placements.all("other") == []


def test_a_job_that_is_lost_holds_no_slot(placed: Service) -> None:
    """Else its site seems to have more slots than it has."""
    engine("cloud").forget_jobs()
    look_anew(placed)
    sites = placed.records.sites.all()
    assert placed.placements._conditions("c", sites)["cloud"].held == 0


def test_a_link_that_finds_no_room_is_no_reason_to_move_its_jobs(service: Service) -> None:
    """What grow sends is much; both ends of it would go to edge-a, where another link of that
    topic is: it would have to stay at edge-b, and all would cross twice."""
    jobs = [
        job_body("write", "edge-a", source_topic="raw-1", sink_topic="t"),
        job_body("read", "edge-a", source_topic="t", sink_topic="out-1"),
        job_body("grow", "edge-b", source_site="edge-a", source_topic="raw-2", sink_topic="t"),
        job_body("shrink", "edge-b", sink_site="edge-a", source_topic="t", sink_topic="out-2"),
    ]
    ends = {
        "inputs": [{"site": "edge-a", "topic": f"raw-{n}"} for n in (1, 2)],
        "outputs": [{"site": "edge-a", "topic": f"out-{n}"} for n in (1, 2)],
    }
    service.compositions.apply(composition(*jobs, **ends), DONE)
    measurements = [
        describe_measured("write", "edge-a"),
        describe_measured("read", "edge-a"),
        describe_measured("grow", "edge-b", selectivity=4.0),
        describe_measured("shrink", "edge-b", 400.0, selectivity=0.25),
    ]
    service.placements.analyses = Given(analysis(measurements))
    placement = make_placement(service)
    assert placement["today"]["wan_bytes_per_s"] == pytest.approx(20_000)
    assert placement["proposed"]["wan_bytes_per_s"] == pytest.approx(20_000)
    assert placement["proposed"]["moves"] == []
    assert any("there is another link of that topic" in note for note in placement["notes"])


def test_an_old_analysis_says_that_it_is_old(placed: Service) -> None:
    for ago, expected in (
        (timedelta(minutes=59), []),
        (timedelta(hours=30), ["measured 30 h ago"]),
    ):
        until = rfc3339(placed.clock.now() - ago)
        window = {"from": until, "to": until, "seconds": 0.0}
        placed.placements.analyses = Given({**FILTERS, "window": window})
        notes = [note.split(":")[0] for note in make_placement(placed)["notes"]]
        assert [note for note in notes if "ago" in note] == expected


def scaled(service: Service, **clean: Any) -> JsonObject:
    """A placement with `scale`, of a first job with these figures."""
    jobs = [describe_measured("clean", "cloud", **clean), describe_measured("merge", "cloud", 10.0)]
    service.placements.analyses = Given(analysis(jobs))
    return make_placement(service, "stay", scale=True)


def test_a_job_gets_as_many_subtasks_as_its_records_need(placed: Service) -> None:
    # 100 records/s arrive, one subtask handles 30 at most, 24 with headroom
    placement = scaled(placed, true_processing_rate=30.0)
    (clean, merge) = placement["scales"]
    assert (clean["job_name"], clean["from"], clean["to"], clean["needed"]) == ("clean", 1, 5, 5)
    assert "100 records/s arrive, and one subtask handles 30/s at most" in clean["reason"]
    assert (merge["from"], merge["to"]) == (1, 1)
    assert placement["proposed"]["moves"] == []
    answer = placed.placements.apply(placement["id"], DONE)
    assert [job.action for job in answer.plan.jobs] == ["update", "unchanged"]
    assert engine("cloud").total - engine("cloud").free == 6


def test_a_program_gets_no_more_subtasks_and_needs_no_heap(placed: Service) -> None:
    """It is one process, which more slots make no faster."""
    with patch.object(MemoryEngine, "own_process", True, create=True):
        placement = scaled(placed, true_processing_rate=30.0)
    assert placement["scales"] == []
    assert placement["today"]["memory_bytes"]["cloud"] == 0
    assert scaled(placed, true_processing_rate=30.0)["scales"]


def test_a_scale_ends_at_the_task_slots_of_the_site(placed: Service) -> None:
    placement = scaled(placed, true_processing_rate=5.0)  # 25 subtasks
    free_slots = engine("cloud").free
    clean = placement["scales"][0]
    assert (clean["to"], clean["needed"]) == (1 + free_slots, 25)
    assert "it needs 25, but cloud has no more task slots" in clean["reason"]
    assert placement["violations"] == []


def test_a_scale_ends_at_the_memory_of_the_site(placed: Service) -> None:
    """80 % of 130 MB, of which 74 are used, leave 30: enough for three more of 10 MB each."""
    jobs = [
        describe_measured("clean", "cloud", true_processing_rate=5.0, heap_bytes=10e6),
        describe_measured("merge", "cloud", 10.0, heap_bytes=10e6),
    ]
    sites = [site_told("cloud", heap_bytes=74e6, heap_max_bytes=130e6), site_told("edge-a")]
    placed.placements.analyses = Given({**analysis(jobs), "sites": sites})
    placement = make_placement(placed, "stay", scale=True)
    clean = placement["scales"][0]
    assert (clean["to"], clean["needed"]) == (4, 25)
    assert "it needs 25, but cloud has no more memory" in clean["reason"]
    assert placement["today"]["memory_bytes"]["cloud"] == 20e6
    assert placement["proposed"]["memory_bytes"]["cloud"] == 50e6
    assert placement["memory_available_bytes"]["cloud"] == pytest.approx(50e6)
    assert placement["violations"] == []


def test_what_was_measured_with_fewer_subtasks_is_not_scaled_again(placed: Service) -> None:
    """The analysis is of one subtask, which handles 70 records/s; there are two by now."""
    wide = {**CLEAN, "parallelism": 2}
    placed.compositions.apply(composition(wide, MERGE, **ENDS), DONE)
    clean = scaled(placed, true_processing_rate=70.0)["scales"][0]
    assert (clean["from"], clean["to"], clean["true_processing_rate"]) == (2, 2, 140.0)


def test_todays_figures_are_those_of_todays_subtasks(placed: Service) -> None:
    """One subtask has 20 ms of work a record: 100 records/s keep two cores busy."""
    placement = scaled(placed, reference_core_s_per_record=0.02, true_processing_rate=50.0)
    (speed,) = [each for each in placement["today"]["violations"] if each.startswith("speed: ")]
    assert "its subtasks can use 1" in speed
    assert not any(each.startswith("speed: ") for each in placement["violations"])


def test_a_job_that_needs_less_gives_its_slots_to_another(placed: Service) -> None:
    wide = {**CLEAN, "parallelism": 15}
    placed.compositions.apply(composition(wide, MERGE, **ENDS), DONE)
    jobs = [
        describe_measured("clean", "cloud", true_processing_rate=1500.0, subtasks=15),
        describe_measured("merge", "cloud", true_processing_rate=40.0),
    ]
    placed.placements.analyses = Given(analysis(jobs))
    placement = make_placement(placed, "stay", scale=True)
    assert [(each["from"], each["to"]) for each in placement["scales"]] == [(15, 2), (1, 4)]


def test_what_was_not_measured_keeps_its_parallelism(placed: Service) -> None:
    jobs = [describe_unmeasured("clean", "cloud"), describe_measured("merge", "cloud", 10.0)]
    placed.placements.analyses = Given(analysis(jobs))
    assert [each["job_name"] for each in make_placement(placed, "stay", scale=True)["scales"]] == [
        "merge"
    ]
    assert make_placement(placed, "stay")["scales"] == []
