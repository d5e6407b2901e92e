"""For any policy: the graph and all links to the outside stay, and the YAML says so."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from speck.model.composition import CompositionDescription
from speck.model.values import JsonObject
from speck.placement.evaluate import evaluate
from speck.placement.instance import Instance
from speck.placement.measurements import load_name_of
from speck.placement.model import Limits
from speck.placement.places import Condition
from speck.placement.problem import Question, pose_question
from speck.placement.rendering import lay_out, render, render_yaml
from speck.placement.wiring import At, Wiring, wire
from speck.spec.schema import composition_from_data, load_composition
from speck.spec.site_schema import site_from_data
from tests.analyses import analysis, as_result, describe_measured, describe_unmeasured
from tests.memory_fog import site_body

NAMES = ("cloud", "edge-a", "edge-b")
SITES = {name: site_from_data(site_body(name)) for name in NAMES}
SITE = st.sampled_from(NAMES)
LINKS = st.lists(
    st.builds(At, SITE, st.sampled_from(("x", "y", "z"))), min_size=3, max_size=7, unique=True
)
STATEFUL = st.sampled_from((False, True, None))
SIZE = st.sampled_from((100.0, 90.0, 110.0))


def few(draw: Any) -> bool:
    """Whether this is one of a few cases, a quarter."""
    return draw(st.integers(0, 3)) == 3


def spelt(draw: Any, side: str, broker: str, site: str) -> JsonObject:
    """One of the ways to name a broker."""
    ways: list[JsonObject] = [
        {f"{side}_site": broker},
        {f"{side}_broker": f"tcp://{broker}.test"},
    ]
    if broker == site:
        ways.append({})
    return draw(st.sampled_from(ways))  # type: ignore[no-any-return]


@st.composite
def compositions(draw: Any) -> CompositionDescription:
    """Jobs from earlier links to later ones, so that there is no cycle."""
    links = draw(LINKS)
    jobs = []
    written: set[At] = set()
    for number in range(draw(st.integers(2, 6))):
        starts = links[:-1]
        if not few(draw):  # of a job before it, if there is one
            starts = [link for link in starts if link in written] or starts
        source = draw(st.sampled_from(starts))
        sink = draw(st.sampled_from(links[links.index(source) + 1 :]))
        written.add(sink)
        site = draw(SITE)
        engine = draw(
            st.sampled_from([{"site": site}, {"spe_address": f"http://{site}.test:8081/"}])
        )
        jobs.append(
            {
                "job_name": f"j{number}",
                "source_topic": source.topic,
                "sink_topic": sink.topic,
                "entry_class": "package.ExampleJob",
                "job_path": "test-1.jar",
                "pinned": few(draw),
                "state": "stopped" if few(draw) and few(draw) else "running",
                **engine,
                **spelt(draw, "source", source.site, site),
                **spelt(draw, "sink", sink.site, site),
            }
        )
    outputs = draw(st.lists(st.sampled_from(links), unique=True, max_size=2)) if few(draw) else []
    return composition_from_data(
        {
            "name": "c",
            "jobs": jobs,
            "outputs": [{"site": link.site, "topic": link.topic} for link in outputs],
        }
    )


@st.composite
def cases(draw: Any) -> tuple[CompositionDescription, Question, frozenset[At], dict[str, str]]:
    """A composition, its measurements, links of others, and a policy's placement."""
    description = draw(compositions())
    links = st.builds(At, SITE, st.sampled_from(("x", "y", "w")))
    foreign = draw(st.frozensets(links, max_size=3)) if few(draw) else frozenset()
    wiring = wire(description, SITES, foreign)
    jobs = [
        describe_measured(
            job.name,
            job.site,
            float(draw(st.integers(1, 9))),
            stateful=draw(STATEFUL),
            bytes_in_per_record=draw(SIZE),
            bytes_out_per_record=draw(SIZE),
        )
        if not few(draw)
        else describe_unmeasured(job.name, job.site)
        for job in wiring.jobs
    ]
    analysis_body = analysis(draw(st.permutations(jobs)))
    conditions = {name: Condition(free=9) for name in NAMES}
    question = pose_question(wiring, "c", as_result(analysis_body), SITES, conditions, Limits())
    instance = Instance(question.problem)  # any policy's answer keeps to its sites
    placed = {
        load.name: instance.fixed_sites.get(load.name)
        or draw(st.sampled_from([site.name for site in instance.sites_for(load.name)]))
        for load in question.problem.loads
        if load.pinned or load.work is not None or draw(st.booleans())
    }
    return description, question, foreign, placed


def edges(wiring: Wiring) -> set[tuple[str, str]]:
    return {
        (writer.name, reader.name)
        for link, writers in wiring.writers.items()
        for writer in writers
        for reader in wiring.readers.get(link, ())
    }


def ends(wiring: Wiring, link: At) -> tuple[set[str], set[str]]:
    writers, readers = wiring.writers.get(link, ()), wiring.readers.get(link, ())
    return {job.name for job in writers}, {job.name for job in readers}


@given(cases())
def test_the_graph_and_what_is_outside_stay(
    case: tuple[CompositionDescription, Question, frozenset[At], dict[str, str]],
) -> None:
    description, question, foreign, placed = case
    before = question.wiring
    layout = lay_out(question, placed, foreign)
    after = wire(render(description, before, layout, SITES), SITES, foreign)

    assert edges(after) == edges(before)
    assert len(after.links) == len(before.links)
    for job in after.jobs:
        assert job.site == placed.get(job.name, before.jobs[job.index].site)
    for link in before.links:
        now = At(layout.links[link], link.topic)
        assert ends(after, now) == ends(before, link)
        if link in before.fixed_links or link not in before.writers or link not in before.readers:
            assert now == link
        elif now != link:
            assert now not in foreign
            assert now not in before.links


@given(cases())
def test_yaml_loads_to_what_was_rendered(
    case: tuple[CompositionDescription, Question, frozenset[At], dict[str, str]],
) -> None:
    description, question, foreign, placed = case
    rendered = render(description, question.wiring, lay_out(question, placed, foreign), SITES)
    assert load_composition(render_yaml(rendered).encode(), None) == rendered
    assert [job.job_name for job in rendered.jobs] == [job.job_name for job in description.jobs]


@given(cases())
def test_applied_once_there_is_nothing_left_to_do(
    case: tuple[CompositionDescription, Question, frozenset[At], dict[str, str]],
) -> None:
    """The same answer again, to what was rendered, changes nothing; nor does staying."""
    description, question, foreign, placed = case
    layout = lay_out(question, placed, foreign)
    assume(not layout.notes)  # else a name that was taken may be free now
    once = render(description, question.wiring, layout, SITES)
    analysis_body = analysis(
        describe_measured(load.name, layout.jobs[load.name], load.rate)
        if load.rate is not None
        else describe_unmeasured(load.name, layout.jobs[load.name])
        for load in question.whole.loads
        if load.name in layout.jobs
    )
    wiring = wire(once, SITES, foreign)
    links = {
        load_name_of(At(site, link.topic)): site
        for link, site in layout.links.items()
        if load_name_of(link) in placed
    }
    anew = pose_question(wiring, "c", as_result(analysis_body), SITES, {}, Limits())
    again = lay_out(anew, {**layout.jobs, **links}, foreign)
    assert render(once, wiring, again, SITES) == once


@given(cases())
def test_no_more_crosses_than_the_policy_counted_unless_it_is_told(
    case: tuple[CompositionDescription, Question, frozenset[At], dict[str, str]],
) -> None:
    _, question, foreign, some = case
    placed = {load.name: some.get(load.name, load.site or "") for load in question.problem.loads}
    layout = lay_out(question, placed, foreign)
    counted = evaluate(question.problem, placed).wan_bytes_per_s
    rendered = evaluate(question.whole, {**question.today(), **layout.loads()}).wan_bytes_per_s
    assert rendered <= counted * (1 + 1e-9) or layout.notes
