"""Links that bridges between brokers may make one."""

from __future__ import annotations

from typing import Any

import pytest

from speck.deploy.bridges import LABEL, Bridges, find_loops, find_repeated_topics, warn_of_repeats
from speck.model.link import JobLinks, Link
from speck.model.site import Site
from speck.spec.site_schema import site_from_data
from speck.store.link_index import LinkIndex
from tests.memory_fog import site_body


def site(name: str, **labels: str) -> Site:
    return site_from_data({**site_body(name), "labels": labels})


def job(name: str, source: str, sink: str) -> JobLinks:
    """Links are written `site/topic`."""
    (source_site, _, source_topic), (sink_site, _, sink_topic) = (
        text.partition("/") for text in (source, sink)
    )
    return JobLinks(name, Link(source_site, source_topic), (Link(sink_site, sink_topic),))


def bridges(names: dict[str, set[str]], *labelled: Site) -> Bridges:
    frozen = {name: frozenset(some) for name, some in names.items()}
    return Bridges.of(frozen, {each.name: each for each in labelled})


ONE = bridges({"a": {"host.up"}, "b": {"host.up"}, "c": set()})
LOOPS: dict[str, Any] = {
    "one job": ([job("P", "a/T", "b/T")], []),
    "a chain": ([job("P", "a/T", "a/U"), job("Q", "a/U", "b/T")], []),
    "through a job of others": ([job("P", "a/T", "a/U")], [job("X", "b/U", "a/T")]),
    "the other way round": ([job("P", "b/T", "c/U"), job("Q", "c/U", "a/T")], []),
}


@pytest.mark.parametrize("shape", LOOPS)
def test_a_loop_over_a_bridge_is_found_and_says_how_to_end_it(shape: str) -> None:
    own, others = LOOPS[shape]
    (problem,) = find_loops(own, others, ONE)
    assert problem.path.endswith(".sink_topic")
    assert problem.message.startswith("the brokers of a, b are bridged (host.up), and what")
    assert "closes the cycle" in problem.message and LABEL in problem.message
    assert find_loops(own, others, bridges({"a": set(), "b": set()})) == []


def test_bridges_join_brokers_through_a_third_one() -> None:
    joined = bridges({"a": {"to-hub"}, "b": {"b-to-hub"}, "hub": {"to-hub", "b-to-hub"}})
    assert joined.find_joined(Link("a", "T")) == {"a", "b", "hub"}
    (problem,) = find_loops([job("P", "a/T", "b/T")], [], joined)
    assert "the brokers of a, b, hub are bridged (b-to-hub, to-hub)" in problem.message


def test_brokers_that_a_third_one_joins_are_named_with_its_bridges() -> None:
    joined = bridges({"a": {"to-hub"}, "b": {"b-to-hub"}, "hub": {"to-hub", "b-to-hub"}})
    (warning,) = warn_of_repeats([Link("a", "T"), Link("b", "T")], joined)
    assert warning.startswith("the brokers of a, b are bridged (b-to-hub, to-hub): if a bridge ")


def test_a_bridge_to_a_broker_that_is_no_sites_joins_nothing() -> None:
    assert bridges({"a": {"to-office"}, "b": set()}).groups == ()


def test_only_what_a_label_says_is_carried() -> None:
    names = {"a": {"up"}, "b": {"up"}}
    labelled = bridges(names, site("a"), site("b", **{LABEL: "alarms/#, beat"}))
    assert find_loops([job("P", "a/T", "b/T")], [], labelled) == []
    assert find_loops([job("P", "a/alarms/x", "b/alarms/x")], [], labelled)
    assert find_loops([job("P", "a/beat", "b/beat")], [], labelled)


def test_what_may_come_twice_is_a_warning() -> None:
    links = [Link("a", "T"), Link("b", "T"), Link("c", "T"), Link("a", "U")]
    (warning,) = warn_of_repeats(links, ONE)
    assert warning.startswith("the brokers of a, b are bridged (host.up): if a bridge carries T, ")
    assert find_loops([job("P", "a/T", "c/x"), job("Q", "b/T", "c/x")], [], ONE) == []


def test_only_topics_at_several_sites_matter() -> None:
    assert find_repeated_topics([Link("a", "T"), Link("a", "U"), Link("b", "V")]) == set()
    assert find_repeated_topics([Link("a", "T"), Link("b", "T"), Link("c", "V")]) == {"a", "b"}


def test_a_loop_through_any_link_of_a_port_names_that_link() -> None:
    port = JobLinks("P", Link("a", "T"), (Link("c", "U"), Link("b", "T")))
    (problem,) = find_loops([port], [], ONE)
    assert "Give T another name" in problem.message


def test_bridges_bring_what_any_link_of_a_port_has_to_the_jobs_of_others() -> None:
    index = LinkIndex()
    index.put("c", [JobLinks("X", Link("a", "in"), (Link("a", "u"), Link("a", "v")))])
    index.put("d", [JobLinks("Y", Link("a", "v"), (Link("a", "w"),))])
    downstream = index.find_downstream([Link("a", "in")], ())
    assert [(scope, job.job_name) for scope, job in downstream] == [("c", "X"), ("d", "Y")]
    assert all(index.is_written(Link("a", topic), ()) for topic in "uv")
    index.put("c", ())
    assert not any(index.is_written(Link("a", topic), ()) for topic in "uv")
