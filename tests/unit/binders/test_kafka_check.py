"""Which settings of a Kafka cluster lose data, and what of Kafka is known without its client."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

from binders.kafka.check import access_findings, cluster_findings, link_findings
from binders.kafka.kind import KafkaKind
from speck.binding import BROKERS, Target, kind_of_address, normalise_address, topic_fault
from speck.errors import BrokerRefusedError, PermanentError
from speck.sites.credentials import Credentials

GOOD = {
    "offsets.retention.minutes": "43200",
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
    "message.max.bytes": "1048588",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}
LINK = {"cleanup.policy": "delete", "retention.ms": "-1"}


def test_a_well_set_cluster_has_no_findings() -> None:
    assert list(cluster_findings(GOOD, 3)) == []
    assert list(cluster_findings({**GOOD, "default.replication.factor": "1"}, 1)) == []
    assert list(link_findings("t", LINK, 1)) == []


@pytest.mark.parametrize(
    ("setting", "value", "severity"),
    [
        ("offsets.retention.minutes", "10080", "warning"),
        ("unclean.leader.election.enable", "true", "error"),
        ("auto.create.topics.enable", "true", "warning"),
        ("message.max.bytes", "1000", "warning"),
        ("default.replication.factor", "1", "warning"),
        ("min.insync.replicas", "1", "warning"),
    ],
)
def test_a_setting_that_loses_is_named_with_its_line(
    setting: str, value: str, severity: str
) -> None:
    (finding,) = cluster_findings({**GOOD, setting: value}, 3)
    assert (finding.setting, finding.value, finding.severity) == (setting, value, severity)
    assert finding.mend.startswith(f"{setting}=")


@pytest.mark.parametrize(
    ("settings", "parts", "setting", "severity"),
    [
        (LINK, 6, "partitions of t", "warning"),
        ({**LINK, "cleanup.policy": "compact,delete"}, 1, "cleanup.policy of t", "error"),
        ({**LINK, "retention.ms": "604800000"}, 1, "retention.ms of t", "warning"),
    ],
)
def test_a_topic_that_forgets_is_named(
    settings: dict[str, str], parts: int, setting: str, severity: str
) -> None:
    (finding,) = link_findings("t", settings, parts)
    assert (finding.setting, finding.severity) == (setting, severity)


@pytest.mark.parametrize(
    ("address", "login", "severities"),
    [
        ("kafka://127.0.0.1:9092", Credentials(), []),
        ("kafka://k:9092", Credentials(), ["warning"]),
        ("kafka://k:9092", Credentials("u", "p"), ["warning"]),
        ("kafka://k:9092", Credentials("u", "p", mechanism="PLAIN"), ["error"]),
        ("kafka+ssl://k:9093", Credentials("u", "p", mechanism="PLAIN"), []),
    ],
)
def test_what_is_open_to_all_is_named(
    address: str, login: Credentials, severities: list[str]
) -> None:
    assert [each.severity for each in access_findings(address, login)] == severities


@pytest.mark.parametrize(
    ("address", "normal"),
    [
        ("kafka://Host", "kafka://host:9092"),
        ("kafka+ssl://host", "kafka+ssl://host:9093"),
        ("kafka://b:9,a", "kafka://a:9092,b:9"),
    ],
)
def test_addresses(address: str, normal: str) -> None:
    assert normalise_address(address) == normal
    assert kind_of_address(BROKERS, address) == ("kafka", normal)


@pytest.mark.parametrize(
    "topic", ["traffic/a", "", ".", "..", "__consumer_offsets", "ü", "x" * 250]
)
def test_what_is_no_topic(topic: str) -> None:
    assert topic_fault("kafka", topic)
    with pytest.raises(BrokerRefusedError, match=r"cannot use .* as a link's topic"):
        KafkaKind(Target("kafka://127.0.0.1:1")).reserve("r", topic)


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(BrokerRefusedError, match="cannot use this broker"):
        KafkaKind(Target("tcp://host:1883"))


def test_without_its_client_the_kind_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """All other kinds work on: the addresses of all kinds are asked for whenever one is parsed."""
    real = builtins.__import__

    def without_client(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "kafka" or name.startswith("kafka."):
            raise ModuleNotFoundError("No module named 'kafka'", name="kafka")
        return real(name, *args, **kwargs)

    for name in [each for each in sys.modules if each.startswith(("binders.kafka.", "kafka"))]:
        if name not in ("binders.kafka.kind", "binders.kafka.topics"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without_client)
    assert normalise_address("kafka://host") == "kafka://host:9092"
    with pytest.raises(PermanentError, match=r"pip install 'speck\[kafka\]'"):
        KafkaKind(Target("kafka://host:9092"))
    with pytest.raises(PermanentError, match=r"pip install 'speck\[kafka\]'"):
        KafkaKind.links("kafka://host:9092")
