from __future__ import annotations

import pytest
from speck_link.arguments import ArgumentFaultError, Arguments, Contract, Link, read_contract

PLAIN = {
    "--job-name": "J",
    "--client-id": "speck-1-J-a",
    "--source-broker": "tcp://a:1883",
    "--source-topic": "in",
    "--sink-broker": "mqtts://b",
    "--sink-topic": "out",
}


def read(**other: str) -> Contract:
    words = PLAIN | {f"--{name.replace('_', '-')}": value for name, value in other.items()}
    return read_contract(Arguments([word for pair in words.items() for word in pair]))


def read_links(**other: str) -> tuple[str, str]:
    contract = read(**other)
    return contract.source.broker, contract.sink.broker


def test_brokers_of_mqtt_are_taken() -> None:
    assert read().producer == read(source_broker="SSL://a").producer == "1-J"
    assert read_links() == ("tcp://a:1883", "mqtts://b")


def test_brokers_of_kafka_have_one_spelling() -> None:
    assert read_links(source_broker="kafka://B,a:9093/", sink_broker="KAFKA+SSL://[::1]") == (
        "kafka://a:9093,b:9092",
        "kafka+ssl://[::1]:9093",
    )


def test_a_log_gets_records_one_by_one() -> None:
    """Kafka's client makes batches of its own."""
    batches = {"batch_records": "50", "compression": "zstd"}
    of_mqtt = read(source_broker="kafka://a", **batches)
    assert (of_mqtt.batch_records, of_mqtt.zstd) == (50, True)
    of_kafka = read(sink_broker="kafka://a", **batches)
    assert (of_kafka.batch_records, of_kafka.zstd) == (1, False)


@pytest.mark.parametrize("end", ["source_broker", "sink_broker"])
def test_another_kind_of_broker_is_refused_at_once(end: str) -> None:
    with pytest.raises(ArgumentFaultError) as fault:
        read(**{end: "nats://a:4222"})
    assert str(fault.value) == (
        f'cannot use --{end.replace("_", "-")} "nats://a:4222": this client reads and writes links'
        " over MQTT and Kafka (tcp://, mqtt://, ssl://, mqtts://, kafka://, kafka+ssl://)"
    )


@pytest.mark.parametrize(
    "address", ["kafka://", "kafka://a,,b", "kafka://a:x", "kafka://u@a", "kafka://a/b"]
)
def test_an_address_that_kafka_cannot_have_is_refused(address: str) -> None:
    with pytest.raises(ArgumentFaultError) as fault:
        read(source_broker=address)
    assert str(fault.value) == (
        f'cannot use --source-broker: the broker address "{address}" must be kafka://host:port,'
        " kafka+ssl://host:port, or several hosts joined by commas"
    )


@pytest.mark.parametrize("topic", ["a/b", "", ".", "x" * 250])
def test_a_topic_that_kafka_cannot_have_is_refused(topic: str) -> None:
    with pytest.raises(ArgumentFaultError) as fault:
        read(sink_broker="kafka://a", sink_topic=topic)
    assert str(fault.value) == (
        f'cannot use --sink-topic: the topic "{topic}" at kafka://a:9092 must be a name of Kafka:'
        " 1 to 249 letters, digits, dots, hyphens and underscores"
    )


def test_topics_of_mqtt_may_have_slashes() -> None:
    assert read(source_topic="a/b", sink_broker="kafka://a").source.topic == "a/b"


def test_a_port_has_several_links_of_one_broker() -> None:
    contract = read(port="out/speck-1-J-a-out;a%2Fb%3B/speck-1-J-b-out;")
    assert contract.port == (contract.sink, Link(contract.sink.broker, "a/b;", "speck-1-J-b-out"))
    assert [contract.producer_of(link) for link in contract.port] == ["1-J-a", "1-J-b"]
    alone = read(port="out/speck-1-J-a-out")
    assert (alone.port, alone.producer_of(alone.sink)) == ((alone.sink,), "1-J-a")
    usual = read()
    assert (usual.port, usual.producer_of(usual.sink)) == ((usual.sink,), "1-J")


@pytest.mark.parametrize(
    ("port", "fault"),
    [
        ("out", '"out": it must be <topic>/<client id>'),
        ("out/a/b", '"out/a/b": it must be <topic>/<client id>'),
        ("/speck-1-J-a-out", '"/speck-1-J-a-out": it must be <topic>/<client id>'),
        ("other/speck-1-J-a-out", '"other": the first link must be that of --sink-topic'),
        ("out/speck-1-J-b-out", '"out": the first link must be that of --sink-topic'),
        ("out/speck-1-J-a-out;out/speck-1-J-a-out", ": it names a link twice"),
    ],
)
def test_a_port_that_makes_no_sense_is_refused(port: str, fault: str) -> None:
    with pytest.raises(ArgumentFaultError) as caught:
        read(port=port)
    assert str(caught.value) == f"cannot use --port{fault if fault[0] == ':' else f' {fault}'}"


def test_a_port_of_kafka_has_topics_of_kafka() -> None:
    with pytest.raises(ArgumentFaultError, match=r'cannot use --port: the topic "a/b" at kafka'):
        read(sink_broker="kafka://a", port="out/speck-1-J-a-out;a%2Fb/speck-1-J-b-out")
