"""Jobs and sites as they are described."""

from __future__ import annotations

import json
from typing import Any

import pytest
from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin

from speck.errors import InvalidError
from speck.model.composition import Drift
from speck.model.job import Batching, Compression, Delivery, DesiredState, JobDescription, Upgrade
from speck.model.site import Broker, Engine, Site, Tier
from speck.spec.documents import load_document
from speck.spec.schema import (
    CompositionSchema,
    JobSchema,
    composition_from_data,
    dump_composition,
    dump_job,
    job_from_data,
    read_valid_job,
)
from speck.spec.site_schema import SiteSchema, dump_site, site_from_data
from tests.unit.spec.described import JOB, faults

SITE: dict[str, Any] = {
    "name": "edge-a",
    "tier": "edge",
    "spe": {"kind": "flink", "address": "http://172.16.39.7:8081/"},
    "broker": {"kind": "mqtt", "address": "tcp://172.16.39.7", "credentials": "edge-a"},
    "uplink_mbps": 10,
    "labels": {"state_uri": "file:///state"},
}


def job_faults(**changes: Any) -> list[str]:
    data = {key: value for key, value in {**JOB, **changes}.items() if value is not ...}
    assert read_valid_job(data) is None
    return faults(lambda: job_from_data(data))


def site_faults(**changes: Any) -> list[str]:
    return faults(lambda: site_from_data({**SITE, **changes}))


def test_a_job_with_its_defaults() -> None:
    assert job_from_data(JOB) == JobDescription(
        job_name="A",
        site="edge-a",
        source_topic="T-1",
        sink_topic="T-2",
        entry_class="package.ExampleJob",
        job_path="test-1.jar",
        args=(),
        parallelism=1,
        state=DesiredState.RUNNING,
        delivery=Delivery.AT_LEAST_ONCE,
        upgrade=Upgrade.SAVEPOINT,
        pinned=False,
    )


def test_a_job_with_everything() -> None:
    data = JOB | {
        "source_broker": "tcp://172.16.39.7:1883",
        "sink_site": "cloud",
        "args": ["--window", "10s"],
        "parallelism": 4,
        "state": "stopped",
        "delivery": "exactly_once",
        "upgrade": "stateless",
        "pinned": True,
        "stateful": False,
        "link": {"batch_records": 10, "linger_ms": 60_000, "compression": "zstd"},
    }
    job = job_from_data(data)
    assert job.args == ("--window", "10s")
    assert job.state is DesiredState.STOPPED
    assert dump_job(job) == data
    assert job_from_data(dump_job(job)) == job


def test_what_a_link_leaves_out_is_as_it_was_before_there_was_one() -> None:
    assert job_from_data(JOB | {"link": {}}) == job_from_data(JOB)
    assert "link" not in dump_job(job_from_data(JOB))
    some = job_from_data(JOB | {"link": {"batch_records": 7}})
    assert some.link == Batching(7, 0, Compression.NONE)


def test_null_places_count_as_absent() -> None:
    assert job_from_data(JOB | {"spe_address": None, "source_site": None}) == job_from_data(JOB)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"args": ["--window", "10s"], "parallelism": 4, "delivery": "exactly_once"},
        {"pinned": True, "stateful": None, "state": "stopped", "upgrade": "stateless"},
        {"link": {"batch_records": 7, "compression": "zstd"}},
        {"link": {}, "sink_site": "cloud", "source_broker": "tcp://172.16.39.7"},
        {"site": None, "spe_address": "http://172.16.39.7:8081/"},
    ],
)
def test_a_valid_job_is_read_as_its_schema_reads_it(changes: dict[str, Any]) -> None:
    job = read_valid_job({**JOB, **changes})
    assert job is not None
    assert job == job_from_data({**JOB, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sink_topic": ...}, "sink_topic: missing"),
        ({"sink_topic": None}, "sink_topic: must not be null; leave the field out"),
        ({"args": None}, "args: must not be null; leave the field out"),
        ({"args": [None]}, "args[0]: must not be null; leave the field out"),
        ({"delivery": None}, "delivery: must not be null; leave the field out"),
        ({"job_name": 17}, "job_name: must be text, not 17; put it in quotes"),
        ({"job_name": True}, "job_name: must be text, not true; put it in quotes"),
        ({"job_name": ["A"]}, "job_name: must be text"),
        (
            {"job_name": "../etc"},
            "job_name: '../etc' is not a name: 1 to 63 letters, digits, '_', '.' or '-', "
            "the first a letter or digit",
        ),
        (
            {"job_name": "a" * 100},
            f"job_name: '{'a' * 47}...{'a' * 30}' is not a name: 1 to 63 letters, digits, "
            "'_', '.' or '-', the first a letter or digit",
        ),
        ({"sinktopic": "T"}, "sinktopic: unknown field; did you mean sink_topic?"),
        (
            {"zzz": 1},
            "zzz: unknown field; known are spe_address, site, engine, source_broker, source_site, "
            "sink_broker, sink_site, args, parallelism, state, delivery, upgrade, pinned, "
            "stateful, link, memory_mb, job_name, source_topic, sink_topic, entry_class, job_path",
        ),
        ({"site": ...}, "site: missing: give site or spe_address"),
        ({"spe_address": "http://x:8081"}, "site: give site or spe_address, not both"),
        (
            {"source_site": "b", "source_broker": "tcp://x"},
            "source_site: give source_site or source_broker, not both",
        ),
        (
            {"sink_site": "b", "sink_broker": "tcp://x"},
            "sink_site: give sink_site or sink_broker, not both",
        ),
        ({"args": "--window 10s"}, "args: must be a list of text"),
        ({"args": ["--window", 10]}, "args[1]: must be text, not 10; put it in quotes"),
        ({"args": ["x"] * 1_001}, "args: must be at most 1000 arguments"),
        ({"args": ["a\0"]}, "args[0]: must be Unicode text without the character NUL"),
        ({"args": ["\ud800"]}, "args[0]: must be Unicode text without the character NUL"),
        ({"parallelism": 0}, "parallelism: must be from 1 to 32768"),
        ({"parallelism": "2"}, "parallelism: must be a whole number"),
        ({"parallelism": 1.5}, "parallelism: must be a whole number"),
        ({"parallelism": True}, "parallelism: must be a whole number"),
        ({"link": {"batch_records": 0}}, "link.batch_records: must be from 1 to 10000"),
        ({"link": {"linger_ms": 60_001}}, "link.linger_ms: must be from 0 to 60000"),
        ({"link": {"linger_ms": 0.5}}, "link.linger_ms: must be a whole number"),
        ({"link": {"compression": "lz4"}}, "link.compression: must be one of none, zstd"),
        (
            {"link": {"batch_record": 5}},
            "link.batch_record: unknown field; did you mean batch_records?",
        ),
        ({"link": None}, "link: must not be null; leave the field out"),
        ({"state": "paused"}, "state: must be one of running, stopped"),
        (
            {"delivery": "once"},
            "delivery: must be one of at_most_once, at_least_once, exactly_once",
        ),
        ({"delivery": []}, "delivery: must be one of at_most_once, at_least_once, exactly_once"),
        ({"upgrade": "restart"}, "upgrade: must be one of savepoint, stateless"),
        ({"pinned": "NO"}, "pinned: must be true or false"),
        ({"pinned": 1}, "pinned: must be true or false"),
        ({"stateful": "yes"}, "stateful: must be true or false"),
        ({"job_path": ""}, "job_path: must be a path without control characters"),
        ({"job_path": "a\n"}, "job_path: must be a path without control characters"),
        (
            {"job_path": "artifact:12AB"},
            "job_path: must be artifact: and the 64 lower-case hex digits of a SHA-256",
        ),
        (
            {"source_broker": "http://x"},
            "source_broker: 'http://x' is not an address like kafka://host:9092 or tcp://host:1883",
        ),
        (
            {"source_broker": "tcp://x/path"},
            "source_broker: 'tcp://x/path' is not an address like kafka://host:9092 or tcp://host:1883:"
            " such an address has no path",
        ),
        (
            {"source_broker": "tcp://x:99999"},
            "source_broker: 'tcp://x:99999' is not an address like kafka://host:9092 or tcp://host:1883:"
            " a port is a number from 1 to 65535",
        ),
        (
            {"source_broker": "tcp://me:secret@x"},
            "source_broker: must hold no user, password, query or fragment; "
            "credentials belong to the site",
        ),
        (
            {"site": ..., "spe_address": "host"},
            "spe_address: 'host' is not an address like http://host:8081",
        ),
        (
            {"site": ..., "spe_address": "http://a b"},
            "spe_address: 'http://a b' is not an address like http://host:8081",
        ),
        (
            {"site": ..., "spe_address": "http://[::1"},
            "spe_address: 'http://[::1' is not an address like http://host:8081",
        ),
    ],
)
def test_what_is_wrong_with_a_job(changes: dict[str, Any], message: str) -> None:
    assert job_faults(**changes) == [message]


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("", "must not be empty"),
        ("a/+/b", "'a/+/b' holds a wildcard (+ or #); name one topic"),
        ("a/#", "'a/#' holds a wildcard (+ or #); name one topic"),
        ("$share/g/a", "must not begin with $share: sharing would split a job's input"),
        ("$SYS/x", "must not begin with $: such topics belong to the broker"),
        ("a\0b", "must be Unicode text without the character NUL"),
        ("a\nb", "must hold no control characters"),
        ("speck/taken/x", "must not lie below speck/: such topics belong to speck"),
        ("é" * 32_640, "must be at most 65279 bytes of UTF-8"),
        (
            "/" * 190,
            "has 191 levels, the parts between slashes; brokers take some 200, of which"
            " speck needs a few: at most 190",
        ),
    ],
)
def test_topics_that_no_job_may_have(topic: str, message: str) -> None:
    assert job_faults(source_topic=topic) == [f"source_topic: {message}"]
    assert job_faults(sink_topic=topic) == [f"sink_topic: {message}"]


@pytest.mark.parametrize("topic", ["/", "a b", "speckle/x", "é" * 32_639, "a$share/x"])
def test_topics_that_a_job_may_have(topic: str) -> None:
    assert job_from_data(JOB | {"source_topic": topic}).source_topic == topic


@pytest.mark.parametrize("data", [5, "text", [JOB], [], 1.5, True])
def test_a_job_is_a_mapping(data: Any) -> None:
    assert faults(lambda: job_from_data(data)) == [
        "document: must be a mapping of field names to values"
    ]


def test_a_site_has_normalised_addresses() -> None:
    site = site_from_data(SITE)
    assert site == Site(
        name="edge-a",
        tier=Tier.EDGE,
        spe=Engine("flink", "http://172.16.39.7:8081"),
        broker=Broker("mqtt", "tcp://172.16.39.7:1883", "edge-a"),
        uplink_mbps=10.0,
        labels={"state_uri": "file:///state"},
    )
    assert site_from_data(dump_site(site)) == site


def test_a_site_needs_little() -> None:
    site = site_from_data(
        {
            "name": "d",
            "tier": "cloud",
            "spe": {"address": "https://d"},
            "broker": {"address": "mqtts://D"},
        }
    )
    assert site.spe == Engine("flink", "https://d:443")
    assert site.broker == Broker("mqtt", "ssl://d:8883")
    assert dump_site(site) == {
        "name": "d",
        "tier": "cloud",
        "spe": {"kind": "flink", "address": "https://d:443"},
        "broker": {"kind": "mqtt", "address": "ssl://d:8883"},
        "labels": {},
    }


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"tier": "fog"}, ["tier: must be one of edge, cloud"]),
        ({"spe": "http://x"}, ["spe: must be a mapping of field names to values"]),
        ({"spe": {}}, ["spe.address: missing"]),
        (
            {"spe": {"adress": "http://x"}},
            ["spe.address: missing", "spe.adress: unknown field; did you mean address?"],
        ),
        (
            {"broker": {"address": "tcp://x", "password": "p"}},
            ["broker.password: unknown field; known are kind, address, credentials"],
        ),
        (
            {"broker": {"address": "tcp://x", "credentials": "../p"}},
            [
                "broker.credentials: '../p' is not a name: 1 to 63 letters, digits, '_', '.' or"
                " '-', the first a letter or digit"
            ],
        ),
        ({"uplink_mbps": 0}, ["uplink_mbps: must be a number greater than 0"]),
        ({"uplink_mbps": "10"}, ["uplink_mbps: must be a number greater than 0"]),
        ({"uplink_mbps": -1}, ["uplink_mbps: must be a number greater than 0"]),
        ({"uplink_mbps": 1e308}, ["uplink_mbps: must be at most 1,000,000"]),
        ({"uplink_mbps": float("inf")}, ["uplink_mbps: must be at most 1,000,000"]),
        ({"uplink_mbps": 10**400}, ["uplink_mbps: must be at most 1,000,000"]),
        (
            {"labels": {"max_queued_messages": "-1"}},
            ["labels.max_queued_messages: '-1' is no whole number of messages like '1000'"],
        ),
        ({"uplink_mbps": float("nan")}, ["uplink_mbps: must be a number greater than 0"]),
        ({"labels": []}, ["labels: must be a mapping of names to text"]),
        (
            {"labels": {"rack": 7, "a/b": "x"}},
            [
                "labels.rack: must be text on one line; put numbers in quotes",
                "labels.a/b: is not a name for a label",
            ],
        ),
    ],
)
def test_what_is_wrong_with_a_site(changes: dict[str, Any], messages: list[str]) -> None:
    assert site_faults(**changes) == messages


def test_another_media_type_is_refused() -> None:
    with pytest.raises(InvalidError) as error:
        load_document(b"", "text/html")
    assert error.value.status == 415
    assert str(error.value) == (
        "cannot read content type 'text/html'; send application/yaml or application/json"
    )


def test_the_schemas_can_be_published_as_openapi() -> None:
    spec = APISpec("speck", "1", "3.1.0", plugins=[MarshmallowPlugin()])
    for name, schema in (("Job", JobSchema), ("Site", SiteSchema), ("C", CompositionSchema)):
        spec.components.schema(name, schema=schema)
    job = spec.to_dict()["components"]["schemas"]["Job"]
    assert job["properties"]["delivery"]["enum"] == [
        "at_most_once",
        "at_least_once",
        "exactly_once",
    ]
    assert set(job["required"]) == {
        "job_name",
        "source_topic",
        "sink_topic",
        "job_path",
    }
    assert json.dumps(spec.to_dict())


def test_drift_is_repaired_unless_the_composition_says_otherwise() -> None:
    jobs = [JOB]
    silent = composition_from_data({"name": "c", "jobs": jobs})
    description = composition_from_data({"name": "c", "drift": "report", "jobs": jobs})

    assert (silent.drift, description.drift) == (Drift.MEND, Drift.REPORT)
    assert "drift" not in dump_composition(silent)
    assert dump_composition(description)["drift"] == "report"
    with pytest.raises(InvalidError, match="must be one of mend, report"):
        composition_from_data({"name": "c", "drift": "ignore", "jobs": jobs})


@pytest.mark.parametrize("value", ["fast", "-1", "1e3", "", "18,6", "nan", "60001", "999999999"])
def test_a_sites_latency_is_a_number(value: str) -> None:
    body = {
        "name": "edge-a",
        "tier": "edge",
        "spe": {"address": "http://edge-a:8081"},
        "broker": {"address": "tcp://edge-a:1883"},
        "labels": {"latency_ms": value},
    }
    with pytest.raises(InvalidError, match=r"labels.latency_ms: '.*' is no number of millisec"):
        site_from_data(body)
    site_from_data({**body, "labels": {"latency_ms": "18.6"}})
