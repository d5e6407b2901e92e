"""From a placement to a new description, by example."""

from __future__ import annotations

from typing import Any

from speck.model.composition import CompositionDescription
from speck.model.values import JsonObject
from speck.placement.evaluate import evaluate
from speck.placement.model import Limits
from speck.placement.move_costs import DEFAULT_SILENCES, Silence, Silences
from speck.placement.places import Condition
from speck.placement.problem import Question, pose_question
from speck.placement.rendering import HEADING, lay_out, render, render_yaml
from speck.placement.wiring import At, wire
from speck.spec.schema import composition_from_data, load_composition
from speck.spec.site_schema import site_from_data
from tests.analyses import analysis, as_result, describe_measured, describe_unmeasured
from tests.memory_fog import site_body
from tests.service_helpers import job_body

SITES = {name: site_from_data(site_body(name)) for name in ("cloud", "edge-a", "edge-b")}
BY_ADDRESS = {
    "job_name": "clean",
    "spe_address": "http://cloud.test:8081/",
    "source_broker": "tcp://edge-a.test:1883",
    "sink_broker": "tcp://cloud.test",
    "source_topic": "raw",
    "sink_topic": "tidy",
    "entry_class": "package.ExampleJob",
    "job_path": "test-1.jar",
}
FREE = Silences(Silence(0.0), Silence(0.0))
CLEAN = job_body("clean", "cloud", source_site="edge-a", source_topic="raw", sink_topic="tidy")
MERGE = job_body("merge", "cloud", source_topic="tidy", sink_topic="all")
COUNT = job_body("count", "cloud", source_topic="tidy", sink_topic="counts")


def pose(
    *jobs: JsonObject, silences: Silences = FREE, **more: Any
) -> tuple[CompositionDescription, Question]:
    description = composition_from_data({"name": "c", "jobs": list(jobs), **more})
    analysis_body = analysis([describe_measured(job["job_name"], "cloud") for job in jobs])
    conditions = {name: Condition(free=9) for name in SITES}
    wiring = wire(description, SITES)
    question = pose_question(
        wiring, "c", as_result(analysis_body), SITES, conditions, Limits(), silences=silences
    )
    return description, question


def place(
    description: CompositionDescription,
    question: Question,
    other_links: tuple[At, ...] = (),
    **to: str,
) -> tuple[CompositionDescription, tuple[str, ...]]:
    layout = lay_out(
        question, {name.replace("__", "/"): site for name, site in to.items()}, other_links
    )
    return render(description, question.wiring, layout, SITES), layout.notes


def test_a_job_goes_and_its_links_are_named() -> None:
    new, _ = place(*pose(CLEAN, MERGE), clean="edge-a")
    clean, merge = new.jobs
    assert (clean.site, clean.source_site, clean.sink_site) == ("edge-a", "edge-a", "cloud")
    assert merge == pose(CLEAN, MERGE)[0].jobs[1]


def test_who_wrote_addresses_gets_addresses() -> None:
    new, _ = place(*pose(BY_ADDRESS, MERGE), clean="edge-a", merge="edge-b")
    clean, merge = new.jobs
    assert clean.spe_address == "http://edge-a.test:8081"
    assert clean.source_broker == "tcp://edge-a.test:1883"
    assert clean.sink_broker == "tcp://edge-b.test:1883"
    assert (merge.site, merge.source_site, merge.sink_site) == ("edge-b", None, "cloud")


def test_what_stays_is_spelt_as_it_was() -> None:
    description, question = pose(BY_ADDRESS, MERGE)
    assert place(description, question)[0] == description


def test_a_link_follows_its_reader_and_a_shared_topic_the_policy() -> None:
    description, question = pose(CLEAN, MERGE, COUNT)
    layout = lay_out(question, {"clean": "edge-a", "topic:cloud/tidy": "edge-a"})
    assert layout.links[At("cloud", "tidy")] == "edge-a"
    new = render(description, question.wiring, layout, SITES)
    assert [job.source_site for job in new.jobs] == ["edge-a", "edge-a", "edge-a"]


def test_a_link_at_a_third_site_comes_to_its_reader_even_if_no_job_moves() -> None:
    apart = {**CLEAN, "sink_site": "edge-b"}, {**MERGE, "source_site": "edge-b"}
    new, _ = place(*pose(*apart))
    assert [job.site for job in new.jobs] == ["cloud", "cloud"]
    assert (new.jobs[0].sink_site, new.jobs[1].source_site) == ("cloud", "cloud")


def test_two_links_of_one_topic_never_become_one() -> None:
    """clean-a -> tidy -> merge-a at edge-a and likewise at edge-b: both to the cloud."""
    jobs = [
        job_body(f"{name}-{s}", f"edge-{s}", source_topic=source, sink_topic=sink)
        for s in "ab"
        for name, source, sink in (("clean", f"raw-{s}", "tidy"), ("merge", "tidy", f"all-{s}"))
    ]
    description, question = pose(*jobs)
    layout = lay_out(question, {job["job_name"]: "cloud" for job in jobs})
    assert sorted(layout.links[At(f"edge-{s}", "tidy")] for s in "ab") == ["cloud", "edge-b"]
    assert "tidy at edge-b is not moved to cloud: there is another link of that topic" in (
        " ".join(layout.notes)
    )
    new = render(description, question.wiring, layout, SITES)
    assert new.jobs[2].sink_site == new.jobs[3].source_site == "edge-b"


def test_a_link_keeps_away_from_links_of_others() -> None:
    new, notes = place(*pose(CLEAN, MERGE), other_links=(At("edge-b", "tidy"),), merge="edge-b")
    assert (new.jobs[0].sink_site, new.jobs[1].source_site) == (None, "cloud")
    assert notes == ()  # where it is now is as good: it crosses once


def test_the_yaml_says_what_it_does_not_keep_and_loads_to_the_same() -> None:
    description, question = pose(
        {**CLEAN, "args": ["--n", "1e3", "on", "~", "a: b"], "pinned": True},
        MERGE,
        requirements={"min_rate": 10},
        inputs=[{"site": "edge-a", "topic": "raw"}],
        outputs=[{"site": "cloud", "topic": "all", "client_id": "dashboard"}],
        drift="report",
    )
    text = render_yaml(place(description, question)[0])
    assert text.splitlines()[0] == HEADING
    assert "comments" in HEADING
    assert load_composition(text.encode(), None) == description
    assert "parallelism" not in text


def test_a_link_that_may_not_go_to_its_reader_counts_where_it_is() -> None:
    """Both jobs run at edge-a, their link is in the cloud. What another job uses of edge-a was not
    measured, so the link stays, and all that it carries crosses twice, 20 kB/s in all."""
    jobs = [
        {**CLEAN, "site": "edge-a", "sink_site": "cloud"},
        {**MERGE, "site": "edge-a", "source_site": "cloud"},
        {**COUNT, "site": "edge-a", "source_topic": "raw"},
    ]
    description = composition_from_data({"name": "c", "jobs": jobs})
    reports = [describe_measured(name, "edge-a") for name in ("clean", "merge")]
    reports.append(describe_unmeasured("count", "edge-a"))
    conditions = {name: Condition(free=9) for name in SITES}
    wiring = wire(description, SITES)
    question = pose_question(wiring, "c", as_result(analysis(reports)), SITES, conditions, Limits())
    here = {load.name: load.site or "" for load in question.problem.loads}
    assert lay_out(question, here).links[At("cloud", "tidy")] == "cloud"
    counted = evaluate(question.problem, here).wan_bytes_per_s
    assert counted == evaluate(question.whole, question.today()).wan_bytes_per_s == 20_000


def test_a_link_carries_as_many_bytes_to_its_reader_as_its_writers_send() -> None:
    """Its ends measured 100 and 110 bytes a record: where its broker is changes no sum."""
    jobs = {**CLEAN, "site": "edge-a", "sink_site": "edge-a"}, {**MERGE, "source_site": "edge-a"}
    reports = [
        describe_measured("clean", "edge-a", bytes_out_per_record=100.0),
        describe_measured("merge", "cloud", bytes_in_per_record=110.0),
    ]
    conditions = {name: Condition(free=9) for name in SITES}
    wiring = wire(composition_from_data({"name": "c", "jobs": list(jobs)}), SITES)
    question = pose_question(wiring, "c", as_result(analysis(reports)), SITES, conditions, Limits())
    here = {load.name: load.site or "" for load in question.problem.loads}
    counted = evaluate(question.problem, here).wan_bytes_per_s
    assert counted == evaluate(question.whole, question.today()).wan_bytes_per_s == 10_000


def test_a_link_is_not_moved_for_less_than_the_restarts_of_its_jobs() -> None:
    """Both jobs run at edge-a, their link is in the cloud: all crosses twice, 20 kB/s in all."""
    jobs = (
        {**CLEAN, "site": "edge-a", "sink_site": "cloud"},
        {**MERGE, "site": "edge-a", "source_site": "cloud"},
    )
    tidy = At("cloud", "tidy")
    for seconds, expected in ((10.0, "edge-a"), (8000.0, "cloud")):
        _, question = pose(*jobs, silences=Silences(Silence(seconds), Silence(seconds)))
        layout = lay_out(question, {})
        assert layout.links[tidy] == expected
    assert layout.kept_away == (tidy,)  # the policy counted on it
    assert layout.notes == (
        "the topic tidy at cloud is not moved to edge-a: that would not save what the restarts of"
        " its jobs cost",
    )


def test_a_link_that_moves_with_its_jobs_costs_nothing_more() -> None:
    _, question = pose(CLEAN, MERGE, silences=Silences(Silence(8000.0), Silence(8000.0)))
    layout = lay_out(question, {"clean": "edge-a", "merge": "edge-a"})
    assert layout.links[At("cloud", "tidy")] == "edge-a"


def test_a_link_between_jobs_that_may_keep_state_is_not_moved_for_a_few_bytes() -> None:
    jobs = [
        describe_measured(name, "edge-a", rate=0.3, stateful=None) for name in ("clean", "merge")
    ]
    description = composition_from_data(
        {
            "name": "c",
            "jobs": [
                {**CLEAN, "site": "edge-a", "sink_site": "cloud"},
                {**MERGE, "site": "edge-a", "source_site": "cloud"},
            ],
        }
    )
    conditions = {name: Condition(free=9) for name in SITES}
    wiring = wire(description, SITES)
    question = pose_question(
        wiring,
        "c",
        as_result(analysis(jobs)),
        SITES,
        conditions,
        Limits(),
        silences=DEFAULT_SILENCES,
    )
    assert lay_out(question, {}).links[At("cloud", "tidy")] == "cloud"
