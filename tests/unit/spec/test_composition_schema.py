"""Compositions as they are described, and what is told of their faults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from speck.errors import InvalidError
from speck.model.composition import CompositionDescription, Port
from speck.model.job import Delivery
from speck.spec.schema import composition_from_data, dump_composition, load_composition
from tests.unit.spec.described import JOB, faults

COMPOSITION = """\
name: traffic
defaults: {delivery: at_most_once, parallelism: 2, site: cloud, job_path: x.jar}
requirements: {max_latency_ms: 500, min_rate: 1000}
jobs:
- job_name: A
  spe_address: http://172.16.39.7:8081/
  source_topic: T-1
  sink_topic: T-2
  entry_class: package.ExampleJob
- job_name: B
  source_topic: T-2
  sink_topic: T-3
  entry_class: package.ExampleJob
  job_path: y.jar
  parallelism: 1
inputs: [{site: edge-a, topic: T-1}]
outputs: [{broker: "tcp://d", topic: T-3, client_id: dashboard}]
"""


def test_a_composition_and_its_defaults() -> None:
    composition = load_composition(COMPOSITION.encode(), "application/yaml; charset=utf-8")
    one, two = composition.jobs
    assert (one.spe_address, one.site) == ("http://172.16.39.7:8081/", None)
    assert (one.delivery, one.parallelism, one.job_path) == (Delivery.AT_MOST_ONCE, 2, "x.jar")
    assert (two.spe_address, two.site) == (None, "cloud")
    assert (two.delivery, two.parallelism, two.job_path) == (Delivery.AT_MOST_ONCE, 1, "y.jar")
    assert composition.inputs == (Port("T-1", site="edge-a"),)
    assert composition.outputs == (Port("T-3", broker="tcp://d", client_id="dashboard"),)
    assert composition.requirements == {"max_latency_ms": 500.0, "min_rate": 1000.0}


def test_a_composition_survives_being_dumped() -> None:
    composition = load_composition(COMPOSITION.encode(), None)
    text = json.dumps(dump_composition(composition)).encode()
    assert load_composition(text, "application/json") == composition


def test_a_composition_needs_a_name_only_when_it_is_not_the_default() -> None:
    assert composition_from_data({"jobs": []}) == CompositionDescription("default", ())
    assert dump_composition(CompositionDescription("default", ())) == {
        "name": "default",
        "jobs": [],
    }


def test_every_fault_of_a_composition_is_told_with_its_line() -> None:
    text = b"""\
name: no name
jobs:
- job_name: A
  site: edge-a
  source_topic: T-1
  sinktopic: T-2
  entry_class: package.ExampleJob
  job_path: x.jar
  args: [--window, 10]
- 5
outputs:
- {topic: a/#, site: x, broker: "tcp://y"}
- {topic: a, site: x, client_id: speck-mine}
inputs: [{topic: a, site: x, client_id: me}]
requirements: {max_latency_ms: -1}
jbos: []
"""
    assert faults(lambda: load_composition(text, "text/yaml")) == [
        "name (line 1): 'no name' is not a name: 1 to 63 letters, digits, '_', '.' or '-', "
        "the first a letter or digit",
        "jobs[0].sink_topic (line 3): missing",
        "jobs[0].sinktopic (line 6): unknown field; did you mean sink_topic?",
        "jobs[0].args[1] (line 9): must be text, not 10; put it in quotes",
        "jobs[1] (line 10): must be a mapping of field names to values",
        "outputs[0].topic (line 12): 'a/#' holds a wildcard (+ or #); name one topic",
        "outputs[0].site (line 12): give exactly one of site and broker",
        "outputs[1].client_id (line 13): must not begin with speck-: such ids belong to speck, "
        "but for speck-out- and what follows",
        "inputs[0].client_id (line 14): unknown field; known are topic, site, broker",
        "requirements.max_latency_ms (line 15): must be a number greater than 0",
        "jbos (line 16): unknown field; did you mean jobs?",
    ]


def test_a_wrong_default_is_told_once() -> None:
    data = {
        "defaults": {"delivery": "once", "job_name": "A"},
        "jobs": [JOB, {**JOB, "job_name": "B"}],
    }
    messages = faults(lambda: composition_from_data(data))
    assert [fault.partition(":")[0] for fault in messages] == [
        "defaults.delivery",
        "defaults.job_name",
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "document: empty; a composition is a mapping of field names to values"),
        ([], "document: must be a mapping of field names to values"),
        ({}, "jobs: missing"),
        ({"jobs": None}, "jobs: must not be null; leave the field out"),
        ({"jobs": {}}, "jobs: must be a list"),
        ({"jobs": [JOB] * 10_001}, "jobs: must be at most 10000 jobs"),
        ({"jobs": [], "inputs": {}}, "inputs: must be a list"),
        ({"jobs": [], "defaults": 1}, "defaults: must be a mapping of field names to values"),
    ],
)
def test_what_is_no_composition(data: Any, message: str) -> None:
    assert faults(lambda: composition_from_data(data)) == [message]


def test_a_composition_of_ten_thousand_jobs_is_accepted() -> None:
    jobs = [JOB | {"job_name": f"job-{n:05d}", "args": ["--window", "10s"]} for n in range(10_000)]
    text = json.dumps({"name": "c", "jobs": jobs}).encode()
    assert len(load_composition(text, "application/json").jobs) == 10_000


def test_the_limit_of_jobs_may_be_another_but_not_for_what_was_accepted() -> None:
    data = {"name": "c", "jobs": [JOB | {"job_name": name} for name in ("a", "b", "c")]}
    assert faults(lambda: composition_from_data(data, most_jobs=2)) == [
        "jobs: must be at most 2 jobs"
    ]
    assert len(composition_from_data(data, most_jobs=3).jobs) == 3


def test_the_message_names_the_first_fault_and_counts_the_others() -> None:
    with pytest.raises(InvalidError) as error:
        composition_from_data({"name": "x", "a": 1, "b": 2})
    assert error.value.status == 422
    assert str(error.value) == "cannot read the composition: jobs: missing (and 2 more)"


def test_unknown_fields_are_told_in_the_order_in_which_they_were_written() -> None:
    names = [f"zz{n}" for n in (3, 1, 2, 9, 7)]
    messages = faults(lambda: composition_from_data({"jobs": []} | dict.fromkeys(names)))
    assert [fault.partition(":")[0] for fault in messages] == names


def test_no_more_faults_are_told_than_anyone_reads() -> None:
    data = {"jobs": [1] * 500, **{f"unknown-{n}": n for n in range(500)}}
    messages = faults(lambda: composition_from_data(data))
    assert len(messages) == 100
