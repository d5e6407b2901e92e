"""What a job's `main` is given."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speck.model.ids import sink_client_id, source_client_id
from speck.model.job import Batching, Compression, Delivery
from speck.model.link import Link
from speck.model.observation import TakenEpoch
from speck.spec.job_contract import (
    args_faults,
    link_fault,
    parse_port,
    parse_taken,
    render_args,
    render_taken,
)
from tests.sample_job import make_job

INSTALLATION = "0f8fad5b-d9cb-469f-a165-70867728950e"
JOB = make_job(
    "A",
    Link("edge-a", "T-1"),
    Link("edge-b", "T-2"),
    source_broker="tcp://a:1883",
    sink_broker="tcp://b:1883",
    args=("--window", "10s"),
    delivery=Delivery.EXACTLY_ONCE,
)
CLIENT = source_client_id(INSTALLATION, "A", JOB.source)
SINK_CLIENT = sink_client_id(INSTALLATION, "A", JOB.source, JOB.sink)
KNOWN = (
    "{job_name}, {source_broker}, {source_topic}, {sink_broker}, {sink_topic}, {client_id}, "
    "{sink_client_id}, "
    "{epoch}, {delivery}, {sink_readers}, {batch_records}, {linger_ms}, {compression}"
)


def rendered(*args: str) -> tuple[str, ...]:
    return render_args(replace(JOB, args=args), INSTALLATION, 7, False)


def test_standard_arguments_come_before_the_jobs_own() -> None:
    assert render_args(JOB, INSTALLATION, 7, True) == (
        *("--job-name", "A"),
        *("--source-broker", "tcp://a:1883"),
        *("--source-topic", "T-1"),
        *("--sink-broker", "tcp://b:1883"),
        *("--sink-topic", "T-2"),
        *("--client-id", CLIENT),
        *("--sink-client-id", SINK_CLIENT),
        *("--epoch", "7"),
        *("--delivery", "exactly_once"),
        *("--sink-readers", "some"),
        *("--window", "10s"),
    )


BATCHED = Batching(500, 20, Compression.ZSTD)


def test_how_a_sink_sends_comes_before_the_jobs_own_too() -> None:
    args = render_args(replace(JOB, link=BATCHED), INSTALLATION, 7, True)
    assert args[-8:] == (
        *("--batch-records", "500"),
        *("--linger-ms", "20"),
        *("--compression", "zstd"),
        *("--window", "10s"),
    )
    own = replace(JOB, link=BATCHED, args=("{batch_records} {linger_ms} {compression}",))
    assert render_args(own, INSTALLATION, 7, True) == ("500 20 zstd",)
    assert rendered("{batch_records} {linger_ms} {compression}") == ("1 0 none",)


def test_a_job_that_would_not_be_told_of_its_link_is_a_fault() -> None:
    args = ["{sink_topic}"]
    assert link_fault(Batching(), args) is None
    assert link_fault(BATCHED, ["--x"]) is None
    assert link_fault(BATCHED, [*args, "{linger_ms}"]) is None
    assert link_fault(BATCHED, args) == (
        "args have placeholders, but none of {batch_records}, {compression}, {linger_ms}:"
        " the job would not receive them"
    )


def test_what_link_says_is_not_said_in_args() -> None:
    assert args_faults(["--linger-ms", "5"]) == {
        0: "--linger-ms is set by speck itself; write link: {linger_ms: ...}"
    }


def test_with_placeholders_only_the_jobs_own_are_passed() -> None:
    assert rendered(
        "in={source_broker}/{source_topic}",
        "out={sink_broker}/{sink_topic}",
        "{job_name}:{client_id}:{epoch}:{delivery}:{sink_readers}",
        "plain",
    ) == (
        "in=tcp://a:1883/T-1",
        "out=tcp://b:1883/T-2",
        f"A:{CLIENT}:7:exactly_once:none",
        "plain",
    )


@pytest.mark.parametrize("arg", ['{"a": {"b": 1}}', "{}", "{0}", "{A}", "${HOME}", "a{2,3}"])
def test_other_braces_are_left_alone(arg: str) -> None:
    assert args_faults([arg]) == {}
    assert rendered(arg)[-1] == arg
    assert rendered(arg)[0] == "--job-name"


def test_doubled_braces_stand_for_single_ones() -> None:
    assert rendered("{{client_id}}")[-1] == "{client_id}"
    assert rendered("{{client_id}}")[0] == "--job-name"
    assert rendered("{{any}}", "{epoch}") == ("{any}", "7")


def test_values_are_not_rendered_again() -> None:
    odd = replace(JOB, source=Link("edge-a", "{epoch}"), args=("{source_topic}",))
    assert render_args(odd, INSTALLATION, 7, True) == ("{epoch}",)


def test_an_unknown_placeholder_is_a_fault() -> None:
    assert args_faults(["--x", "{source}"]) == {
        1: f"unknown placeholder {{source}}; known are {KNOWN}; "
        "write {{source}} for the text {source}"
    }


@pytest.mark.parametrize("arg", ["--epoch", "--client-id=x", "--taken", "--taken=p/1/2", "--until"])
def test_what_speck_gives_is_not_given_again(arg: str) -> None:
    flag = arg.partition("=")[0]
    assert args_faults([arg]) == {0: f"{flag} is set by speck itself; leave it out"}


def test_with_placeholders_a_job_spells_its_arguments_as_it_likes() -> None:
    assert args_faults(["--epoch", "{epoch}"]) == {}


TAKEN = (
    TakenEpoch("01234567-A", (1 << 32) + 1, 40, ((42, 42), (45, 50))),
    TakenEpoch("01234567-A", (2 << 32) + 1, 0),
)
RENDERED = "01234567-A/4294967297/40/42-42,45-50;01234567-A/8589934593/0"


def test_what_others_have_taken_comes_before_the_jobs_own() -> None:
    args = render_args(replace(JOB, link=BATCHED), INSTALLATION, 7, True, TAKEN)
    assert args[-6:] == ("--compression", "zstd", "--taken", RENDERED, "--window", "10s")


def test_a_job_that_follows_nobody_is_not_told_what_others_have_taken() -> None:
    assert "--taken" not in render_args(JOB, INSTALLATION, 7, True)


def test_a_job_that_stops_at_a_record_is_told_where() -> None:
    args = render_args(JOB, INSTALLATION, 7, True, TAKEN[1:], until=TAKEN)
    at = args.index("--until")
    assert args[at - 2 : at + 2] == ("--taken", "01234567-A/8589934593/0", "--until", RENDERED)


def test_with_placeholders_a_job_is_not_told_what_others_have_taken() -> None:
    own = replace(JOB, args=("--in={source_topic}",))
    assert render_args(own, INSTALLATION, 7, True, TAKEN) == ("--in=T-1",)


def test_with_placeholders_a_job_may_have_a_taken_of_its_own() -> None:
    assert args_faults(["--taken", "{epoch}"]) == {}


def test_what_was_taken_is_read_back() -> None:
    assert render_taken(TAKEN) == RENDERED
    assert parse_taken(RENDERED) == TAKEN
    assert (render_taken(()), parse_taken("")) == ("", ())


def test_the_marks_of_the_format_are_encoded_in_a_producers_name() -> None:
    odd = (TakenEpoch("a/b;c,d-e%2F +\u00fc", 1, 2, ((4, 5),)), TakenEpoch("f", 1, 3))
    assert render_taken(odd) == "a%2Fb%3Bc%2Cd-e%252F%20%2B%C3%BC/1/2/4-5;f/1/3"
    assert parse_taken(render_taken(odd)) == odd


NUMBERS = st.integers(0, 1 << 62)
RANGES = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4).map(tuple)


@given(st.lists(st.builds(TakenEpoch, st.text(min_size=1), NUMBERS, NUMBERS, RANGES)))
def test_whatever_was_taken_is_read_back(taken: list[TakenEpoch]) -> None:
    assert parse_taken(render_taken(taken)) == tuple(taken)


@pytest.mark.parametrize(
    "text",
    ["p", "p/1", "p/x/1", "p/1/", "p/1/2/", "p/1/2/3", "p/1/2/3-", "p/1/2/3-4,", "p/1/2/a-b"],
)
def test_what_is_not_of_the_format_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_taken(text)


def test_a_job_with_a_port_of_several_links_is_told_each_with_its_client_id() -> None:
    port = (JOB.sink, JOB.sink._replace(topic="a;b/c"))
    args = render_args(JOB.with_port(port), INSTALLATION, 7, True)
    value = args[args.index("--port") + 1]
    assert parse_port(value) == tuple(
        (link.topic, sink_client_id(INSTALLATION, "A", JOB.source, link)) for link in port
    )
    assert "--port" not in render_args(JOB, INSTALLATION, 7, True)
    assert args_faults(["--port=x"]) == {0: "--port is set by speck itself; leave it out"}
