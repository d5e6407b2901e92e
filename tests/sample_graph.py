"""Graphs of a composition in short: a job is `A: x -> y`."""

from speck.model.job import JobDescription
from speck.model.link import Link
from speck.spec.topology import End, Graph, Node


def node(index: int, text: str, site: str = "s") -> Node:
    """`A: x -> y` as a job on one broker."""
    name, links = text.split(": ")
    source, sink = links.split(" -> ")
    return Node(name, site, Link("b", source), (Link("b", sink),), index)


def graph(*texts: str, ends: tuple[End, ...] = ()) -> Graph:
    return Graph(tuple(node(index, text) for index, text in enumerate(texts)), ends)


def described(name: str, source: str, sink: str, **places: str) -> JobDescription:
    return JobDescription(
        job_name=name,
        source_topic=source,
        sink_topic=sink,
        entry_class="E",
        job_path="j",
        **places,  # type: ignore[arg-type]
    )
