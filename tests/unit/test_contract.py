"""What a job's `main` is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.contract import args_faults, link_fault, render_args
from speck.model import Compression, Delivery, Job, Link, Sending, source_client_id

INSTALLATION = "0f8fad5b-d9cb-469f-a165-70867728950e"
JOB = Job(
    job_name="A",
    site="edge-a",
    spe_address="http://e:8081",
    source=Link("tcp://a:1883", "T-1"),
    sink=Link("tcp://b:1883", "T-2"),
    source_site="edge-a",
    sink_site="edge-b",
    entry_class="E",
    jar="0" * 64,
    args=("--window", "10s"),
    delivery=Delivery.EXACTLY_ONCE,
)
CLIENT = source_client_id(INSTALLATION, "A", JOB.source)
KNOWN = (
    "{job_name}, {source_broker}, {source_topic}, {sink_broker}, {sink_topic}, {client_id}, "
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
        *("--epoch", "7"),
        *("--delivery", "exactly_once"),
        *("--sink-readers", "some"),
        *("--window", "10s"),
    )


BATCHED = Sending(500, 20, Compression.ZSTD)


def test_how_a_sink_sends_comes_before_the_jobs_own_too() -> None:
    told = render_args(replace(JOB, link=BATCHED), INSTALLATION, 7, True)
    assert told[-8:] == (
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
    assert link_fault(Sending(), args) is None
    assert link_fault(BATCHED, ["--x"]) is None
    assert link_fault(BATCHED, [*args, "{linger_ms}"]) is None
    assert link_fault(BATCHED, args) == (
        "args have placeholders, but none of {batch_records}, {compression}, {linger_ms}:"
        " the job would not be told"
    )


def test_what_link_says_is_not_said_in_args() -> None:
    assert args_faults(["--linger-ms", "5"]) == {
        0: "--linger-ms is given by speck itself; write link: {linger_ms: ...}"
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
    odd = replace(JOB, source=Link("tcp://a:1883", "{epoch}"), args=("{source_topic}",))
    assert render_args(odd, INSTALLATION, 7, True) == ("{epoch}",)


def test_an_unknown_placeholder_is_a_fault() -> None:
    assert args_faults(["--x", "{source}"]) == {
        1: f"unknown placeholder {{source}}; known are {KNOWN}; "
        "write {{source}} for the text {source}"
    }


@pytest.mark.parametrize("arg", ["--epoch", "--client-id=x"])
def test_what_speck_gives_is_not_given_again(arg: str) -> None:
    flag = arg.partition("=")[0]
    assert args_faults([arg]) == {0: f"{flag} is given by speck itself; leave it out"}


def test_with_placeholders_a_job_spells_its_arguments_as_it_likes() -> None:
    assert args_faults(["--epoch", "{epoch}"]) == {}
