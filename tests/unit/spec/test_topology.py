"""The graph of a composition: edges, order, cycles, warnings, drawings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.errors import InvalidError, Problem
from speck.model.composition import CompositionDescription, Port
from speck.model.link import Link
from speck.spec.topology import Edge, End, Graph, Node, check
from tests.sample_graph import described, graph, node


def test_edges_follow_from_links() -> None:
    edges = graph("A: x -> y", "B: x -> y", "C: y -> z", "D: y -> w")
    y = Link("b", "y")
    assert edges.edges == (
        Edge("A", "C", y),
        Edge("A", "D", y),
        Edge("B", "C", y),
        Edge("B", "D", y),
    )


def test_the_same_topic_on_another_broker_is_another_link() -> None:
    one = node(0, "A: x -> y")
    other = Node("B", "s", Link("other", "y"), (Link("b", "z"),), 1)
    assert Graph((one, other)).edges == ()


def test_the_order_puts_what_feeds_first_and_breaks_ties_by_name() -> None:
    assert graph("D: w -> v", "C: y -> w", "B: x -> y", "A: x -> y", "E: q -> r").order() == (
        "A",
        "B",
        "C",
        "D",
        "E",
    )


def test_there_is_no_order_in_a_cycle() -> None:
    with pytest.raises(InvalidError) as error:
        graph("A: x -> y", "B: y -> x", "C: y -> z").order()
    assert str(error.value) == "cannot order jobs in a cycle: A -> B -> A"


@pytest.mark.parametrize(
    ("texts", "problems"),
    [
        (("A: x -> y", "B: y -> z"), []),
        (
            ("A: x -> y", "B: y -> x"),
            [Problem("jobs[1].sink_topic", "closes the cycle A -> B -> A")],
        ),
        (
            ("Z: x -> y", "B: y -> z", "A: z -> x", "In: in -> x", "Out: y -> out"),
            [Problem("jobs[2].sink_topic", "closes the cycle Z -> B -> A -> Z")],
        ),
        (
            ("A: x -> y", "B: y -> x", "C: p -> q", "D: q -> p"),
            [
                Problem("jobs[1].sink_topic", "closes the cycle A -> B -> A"),
                Problem("jobs[3].sink_topic", "closes the cycle C -> D -> C"),
            ],
        ),
        (
            ("A: x -> x",),
            [Problem("jobs[0].sink_topic", "A reads what it writes: topic 'x' on b")],
        ),
        (
            ("A: x -> y", "A: y -> z"),
            [Problem("jobs[1].job_name", "jobs[0] has the name 'A' already")],
        ),
    ],
)
def test_what_makes_a_graph_impossible(texts: tuple[str, ...], problems: list[Problem]) -> None:
    assert graph(*texts).problems() == problems


def test_a_long_cycle_is_told_in_short() -> None:
    texts = [f"J{n:02}: t{n} -> t{(n + 1) % 30}" for n in range(30)]
    (problem,) = graph(*texts).problems()
    assert problem == Problem(
        "jobs[29].sink_topic",
        "closes the cycle J00 -> J01 -> J02 -> J03 -> J04 -> J05 -> ... -> "
        "J26 -> J27 -> J28 -> J29 -> J00",
    )


def test_ten_thousand_jobs_on_one_topic_are_checked_without_their_edges() -> None:
    writers = [f"W{n}: in -> x" for n in range(5_000)]
    readers = [f"R{n}: x -> out" for n in range(5_000)]
    many = graph(*writers, *readers)
    assert many.problems() == [
        Problem(
            "jobs",
            "topics join 25000000 pairs of a writer and a reader, at most 250000 are taken; topic"
            " 'x' on b has 5000 writers and 5000 readers",
        )
    ]
    assert many.order()[5_000].startswith("R")
    assert "edges" not in vars(many)


def test_a_session_belongs_to_one_topic() -> None:
    ends = (
        End("output", Link("b", "y"), 0, "me"),
        End("output", Link("b", "x"), 1, "me"),
        End("output", Link("c", "y"), 2, "me"),
    )
    assert graph("A: x -> y", ends=ends).problems() == [
        Problem(
            "outputs[1].client_id",
            "outputs[0] has the client id 'me' already on b; a session belongs to one topic",
        )
    ]


def test_warnings_for_topics_that_nobody_writes_or_reads() -> None:
    assert graph("A: x -> y", "B: x -> z", "C: z -> y").warnings() == [
        "no job writes topic 'x' on b (read by A, B); "
        "list it under inputs if it is fed from outside",
        "no job reads topic 'y' on b (written by A, C); "
        "list it under outputs if it is read from outside",
    ]


@pytest.mark.parametrize(
    ("written", "read", "difference"),
    [
        ("caf\u00e9", "cafe\u0301", r"in different ways, 'cafe\u0301' and 'caf\xe9'"),
        ("T-1", "t-1", "differ in upper and lower case"),
        ("a/b", "a/b/", "differ in slashes at the ends"),
        ("ab", "a\u200bb", r"look alike or are invisible, 'a\u200bb' and 'ab'"),
        ("a b", "a\u00a0b", r"look alike or are invisible, 'a\xa0b' and 'a b'"),
    ],
)  # fmt: skip
def test_topics_that_look_alike_are_told_apart(written: str, read: str, difference: str) -> None:
    ends = (End("input", Link("b", "x"), 0), End("output", Link("b", "z"), 0))
    warnings = Graph(
        (Node("A", "s", Link("b", "x"), (Link("b", written),), 0),
         Node("B", "s", Link("b", read), (Link("b", "z"),), 1)), ends
    ).warnings()  # fmt: skip
    (warning,) = [each for each in warnings if "look alike, but" in each]
    assert difference in warning and "to brokers they are two topics" in warning


def test_a_long_topic_is_cut_in_a_warning() -> None:
    assert max(map(len, graph(f"A: {'x' * 60_000} -> {'y' * 60_000}").warnings())) < 300


def test_many_such_topics_are_one_warning() -> None:
    jobs = [f"J{n}: in{n} -> out" for n in range(5)]
    assert graph(*jobs, "R: out -> in0").warnings() == [
        "no job writes 4 topics that are read: topic 'in1' on b, topic 'in2' on b, topic 'in3' on b"
        " and 1 more; list each under inputs if it is fed from outside",
    ]


def test_inputs_and_outputs_silence_the_warnings() -> None:
    ends = (End("input", Link("b", "x"), 0), End("output", Link("b", "y"), 0))
    assert graph("A: x -> y", ends=ends).warnings() == []


def test_warnings_for_inputs_and_outputs_that_no_job_has() -> None:
    ends = (
        End("input", Link("b", "x"), 0),
        End("input", Link("b", "p"), 1),
        End("output", Link("b", "y"), 0),
        End("output", Link("b", "q"), 1),
    )
    assert graph("A: x -> y", ends=ends).warnings() == [
        "no job reads the input topic 'p' on b",
        "no job writes the output topic 'q' on b",
    ]


def test_a_description_is_checked_without_sites() -> None:
    description = CompositionDescription(
        "c",
        (
            described("A", "x", "y", site="a"),
            described("B", "y", "z", site="b", source_site="a"),
            described("C", "z", "x", site="c", source_site="b", sink_site="a"),
        ),
    )
    problems, warnings = check(description)
    assert problems == [Problem("jobs[2].sink_topic", "closes the cycle A -> B -> C -> A")]
    assert warnings == []


def test_addresses_of_a_description_are_compared_normalised() -> None:
    description = CompositionDescription(
        "c",
        (
            described("A", "x", "y", spe_address="http://h:8081/", sink_broker="mqtt://D/"),
            described("B", "y", "x", spe_address="http://h:8081", source_broker="tcp://d:1883"),
        ),
    )
    problems, _ = check(description)
    assert problems == [Problem("jobs[1].sink_topic", "closes the cycle A -> B -> A")]


def test_no_warning_where_two_names_may_mean_one_broker() -> None:
    description = CompositionDescription(
        "c",
        (
            described("A", "x", "y", site="a", sink_broker="tcp://d:1883"),
            described("B", "y", "z", site="d"),
        ),
        inputs=(Port("x", broker="tcp://a:1883"),),
        outputs=(Port("z", site="d"),),
    )
    _, warnings = check(description)
    assert warnings == ["no job reads the input topic 'x' on tcp://a:1883"]


def with_port(node: Node, *topics: str) -> Node:
    return replace(node, port=tuple(Link("b", topic) for topic in topics))


def test_a_job_feeds_the_readers_of_each_link_of_its_port() -> None:
    nodes = (with_port(node(0, "A: x -> y"), "y", "z"), node(1, "C: z -> w"), node(2, "B: y -> v"))
    ports = Graph(nodes)
    assert ports.edges == (Edge("A", "B", Link("b", "y")), Edge("A", "C", Link("b", "z")))
    assert ports.order() == ("A", "B", "C")


def test_a_cycle_through_any_link_of_a_port_is_found() -> None:
    nodes = (with_port(node(0, "A: x -> y"), "y", "z"), node(1, "B: z -> v"), node(2, "C: v -> x"))
    assert Graph(nodes).cycles() == [("A", "B", "C", "A")]
    loop = Graph((with_port(node(0, "A: x -> y"), "y", "x"),))
    assert loop.problems() == [
        Problem("jobs[0].sink_topic", "A reads what it writes: topic 'x' on b")
    ]
