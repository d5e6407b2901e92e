from __future__ import annotations

import pytest
from speck_link.arguments import ArgumentFaultError, Arguments, read_contract

PLAIN = {
    "--job-name": "J",
    "--client-id": "speck-1-J-a",
    "--source-broker": "tcp://a:1883",
    "--source-topic": "in",
    "--sink-broker": "mqtts://b",
    "--sink-topic": "out",
}


def read(**other: str) -> str:
    words = PLAIN | {f"--{name.replace('_', '-')}": value for name, value in other.items()}
    return read_contract(Arguments([word for pair in words.items() for word in pair])).producer


def test_brokers_of_mqtt_are_taken() -> None:
    assert read() == read(source_broker="SSL://a") == "1-J"


@pytest.mark.parametrize("end", ["source_broker", "sink_broker"])
def test_another_kind_of_broker_is_refused_at_once(end: str) -> None:
    with pytest.raises(ArgumentFaultError) as fault:
        read(**{end: "kafka://a:9092"})
    assert str(fault.value) == (
        f'cannot use --{end.replace("_", "-")} "kafka://a:9092": this client reads and writes MQTT'
        " (tcp, mqtt, ssl, mqtts), not kafka"
    )
