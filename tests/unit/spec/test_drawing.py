"""Drawings of the graph of a composition."""

from __future__ import annotations

from speck.model.composition import Composition, CompositionDescription, Port, Reader
from speck.model.job import Job
from speck.model.link import Link
from speck.spec.drawing import to_dot, to_json, to_mermaid
from speck.spec.topology import End, Graph, Node
from tests.sample_graph import described, graph
from tests.sample_job import make_job


def test_json() -> None:
    description = CompositionDescription(
        "c",
        (described("B", "y", "z", site="d"), described("A", "x", "y", site="a", sink_site="d")),
        inputs=(Port("x", site="a"),),
        outputs=(Port("z", site="d", client_id="dashboard"),),
    )
    assert to_json(Graph.of_description(description)) == {
        "nodes": [
            {"id": "A", "kind": "job", "job_name": "A", "site": "a"},
            {"id": "B", "kind": "job", "job_name": "B", "site": "d"},
            {
                "id": "input:a/x",
                "kind": "input",
                "job_name": None,
                "topic": "x",
                "broker": "a",
            },
            {
                "id": "output:d/z@dashboard",
                "kind": "output",
                "job_name": None,
                "topic": "z",
                "broker": "d",
                "client_id": "dashboard",
            },
        ],
        "edges": [
            {"from": "A", "to": "B", "topic": "y", "broker": "d"},
            {"from": "input:a/x", "to": "A", "topic": "x", "broker": "a"},
            {"from": "B", "to": "output:d/z@dashboard", "topic": "z", "broker": "d"},
        ],
    }


def resolved(name: str, site: str, source: Link, sink: Link) -> Job:
    return make_job(name, source, sink, site)


def test_a_resolved_composition_has_its_readers_as_outputs() -> None:
    x, y = Link("a", "x"), Link("a", "y")
    composition = Composition("c", (resolved("A", "a", x, y),), (Reader("me", y, "a"),))
    document = to_json(Graph.of_composition(composition))
    assert [n["id"] for n in document["nodes"]] == ["A", "output:a/y@me"]
    assert document["edges"] == [
        {
            "from": "A",
            "to": "output:a/y@me",
            "topic": "y",
            "broker": "a",
        }
    ]


def test_mermaid_escapes_everything_that_could_mean_something() -> None:
    topic = 'x"] --> evil["<b>'
    drawing = to_mermaid(
        Graph(
            (
                Node("A.1", "s", Link("b", "in"), (Link("b", topic),), 0),
                Node("B", "s", Link("b", topic), (Link("b", "é"),), 1),
            ),
            (End("output", Link("b", "é"), 0),),
        )
    )
    assert drawing == (
        "flowchart LR\n"
        '  n0["A.1<br/>s"]\n'
        '  n1["B<br/>s"]\n'
        '  n2(["output<br/>b"])\n'
        '  n0 -->|"x#34;#93; --#62; evil#91;#34;#60;b#62;"| n1\n'
        '  n1 -->|"é"| n2\n'
    )


def test_dot_escapes_quotes_and_backslashes() -> None:
    topic = 'x"\\'
    drawing = to_dot(
        Graph(
            (
                Node("A", "s", Link("b", "in"), (Link("b", topic),), 0),
                Node("B", "s", Link("b", topic), (Link("b", "out"),), 1),
            ),
            (End("input", Link("b", "in"), 0),),
        )
    )
    assert drawing == (
        "digraph composition {\n"
        "  rankdir=LR;\n"
        "  node [shape=box];\n"
        '  "A" [label="A\\ns"];\n'
        '  "B" [label="B\\ns"];\n'
        '  "input:b/in" [label="input\\nb", shape=oval];\n'
        '  "A" -> "B" [label="x\\"\\\\"];\n'
        '  "input:b/in" -> "A" [label="in"];\n'
        "}\n"
    )


def test_drawings_do_not_depend_on_the_order_of_jobs() -> None:
    texts = ["A: x -> y", "B: y -> z", "C: y -> w"]
    one, other = graph(*texts), graph(*reversed(texts))
    assert to_json(one) == to_json(other)
    assert to_mermaid(one) == to_mermaid(other)
    assert to_dot(one) == to_dot(other)
