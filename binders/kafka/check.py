"""Finds settings of a Kafka cluster, and of the topics that are links, that would lose data or
starve jobs."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import AuthorizationError

from binders.kafka.client import Call, hosts_of, is_encrypted
from binders.kafka.logs import list_topics
from speck.model.finding import Finding
from speck.sites.credentials import Credentials

Settings = Mapping[str, str | None]

RECOMMENDED_MESSAGE = 1048576
RECOMMENDED_RETENTION_MIN = 30 * 24 * 60
_DEFAULT_RETENTION_MIN = 7 * 24 * 60
"""Of places; Kafka's own default, for a cluster that does not show its settings."""


def read_kept_s(call: Call) -> float:
    """For how many seconds the cluster keeps the place of a reader that is away."""
    minutes = _read_of_brokers(call).get("offsets.retention.minutes")
    return 60.0 * _number(minutes, _DEFAULT_RETENTION_MIN)


def check(call: Call, login: Credentials, links: Collection[str]) -> list[Finding]:
    """Return all findings, errors first. Raises SpeckError if the cluster does not answer."""
    nodes = call.ask("describe the cluster", lambda admin: admin.describe_cluster())["brokers"]
    findings = list(access_findings(call.address, login))
    if settings := _read_of_brokers(call):
        findings += cluster_findings(settings, len(nodes))
    else:
        findings.append(_unseen())
    parts = {topic: len(numbers) for topic, (_, numbers) in list_topics(call, links).items()}
    for topic, settings in _read(call, ConfigResourceType.TOPIC, sorted(parts)).items():
        findings += link_findings(topic, settings, parts[topic])
    return sorted(findings, key=lambda finding: finding.severity != "error")


def _read_of_brokers(call: Call) -> Settings:
    """The settings of one of the brokers; empty if they may not be read."""
    cluster = call.ask("describe the cluster", lambda admin: admin.describe_cluster())
    node = str(min(broker["broker_id"] for broker in cluster["brokers"]))
    return _read(call, ConfigResourceType.BROKER, [node]).get(node, {})


def _read(call: Call, kind: Any, names: Collection[str]) -> dict[str, Settings]:
    """The settings of brokers or topics, by name; those of others may not be read."""
    if not names:
        return {}

    def ask(admin: Any) -> dict[str, Settings]:
        wanted = [ConfigResource(kind, name) for name in names]
        try:
            answer = admin.describe_configs(wanted, config_filter="all")
        except AuthorizationError:
            return {}
        return {
            str(name): {key: entry["value"] for key, entry in entries.items()}
            for resources in answer.values()
            for name, entries in resources.items()
        }

    return call.ask("read its settings", ask)


def cluster_findings(settings: Settings, nodes: int) -> Iterator[Finding]:
    """Findings from the settings of a broker of a cluster of so many."""
    minutes = _number(settings.get("offsets.retention.minutes"), _DEFAULT_RETENTION_MIN)
    if minutes < RECOMMENDED_RETENTION_MIN:
        yield Finding(
            "warning",
            "offsets.retention.minutes",
            str(minutes),
            "the place of a reader outside speck that is away longer, or commits nothing for so"
            " long, is forgotten (speck renews those of its own readers)",
            f"offsets.retention.minutes={RECOMMENDED_RETENTION_MIN}",
        )
    if settings.get("unclean.leader.election.enable") == "true":
        yield Finding(
            "error",
            "unclean.leader.election.enable",
            "true",
            "a replica that lacks acknowledged records may become leader: they are lost",
            "unclean.leader.election.enable=false",
        )
    if settings.get("auto.create.topics.enable") == "true":
        yield Finding(
            "warning",
            "auto.create.topics.enable",
            "true",
            "a program that names a topic that is not there makes it, with the cluster's default"
            " retention and partitions, which lose and reorder what a link has to keep",
            "auto.create.topics.enable=false",
        )
    largest = _number(settings.get("message.max.bytes"), RECOMMENDED_MESSAGE)
    if largest < RECOMMENDED_MESSAGE:
        yield Finding(
            "warning",
            "message.max.bytes",
            str(largest),
            "larger records are left out, or fail the job",
            f"message.max.bytes={RECOMMENDED_MESSAGE}",
        )
    yield from _replica_findings(settings, nodes)


def _replica_findings(settings: Settings, nodes: int) -> Iterator[Finding]:
    if nodes == 1:
        return
    replicas = _number(settings.get("default.replication.factor"), 1)
    if replicas < min(nodes, 3):
        yield Finding(
            "warning",
            "default.replication.factor",
            str(replicas),
            f"the links that speck makes are lost with a disk, though there are {nodes} brokers",
            f"default.replication.factor={min(nodes, 3)}",
        )
    elif _number(settings.get("min.insync.replicas"), 1) < 2:
        yield Finding(
            "warning",
            "min.insync.replicas",
            "1",
            "a record counts as delivered that one broker alone has: with its disk it is lost",
            "min.insync.replicas=2",
        )


def link_findings(topic: str, settings: Settings, parts: int) -> Iterator[Finding]:
    """Findings about a topic that is a link."""
    if parts > 1:
        yield Finding(
            "warning",
            f"partitions of {topic}",
            str(parts),
            "a job reads all of them, but between them there is no order",
            f"kafka-topics --create --topic NAME --partitions 1  # instead of {topic}",
        )
    if "compact" in (settings.get("cleanup.policy") or ""):
        yield Finding(
            "error",
            f"cleanup.policy of {topic}",
            str(settings["cleanup.policy"]),
            "of records with the same key only the last is kept, whether the others were read or"
            " not",
            f"kafka-configs --alter --topic {topic} --add-config cleanup.policy=delete",
        )
    kept_ms = _number(settings.get("retention.ms"), -1)
    if 0 <= kept_ms < RECOMMENDED_RETENTION_MIN * 60_000:
        yield Finding(
            "warning",
            f"retention.ms of {topic}",
            str(kept_ms),
            "records that a reader has not taken for so long are deleted (and counted as lost)",
            f"kafka-configs --alter --topic {topic} --add-config retention.ms=-1",
        )


def access_findings(address: str, login: Credentials) -> Iterator[Finding]:
    """Findings about access; none for a cluster at loopback addresses."""
    if all(_is_loopback(host) for host, _ in hosts_of(address)):
        return
    if login.user is None and login.tls.cert is None:
        yield Finding(
            "warning",
            "listeners",
            "no login",
            "anyone who can connect can read everything, and move the places of all readers",
            "listeners=SASL_SSL://:9093\nsasl.enabled.mechanisms=SCRAM-SHA-512",
        )
    if login.user is not None and not is_encrypted(address, login):
        is_clear = login.mechanism == "PLAIN"
        yield Finding(
            "error" if is_clear else "warning",
            "listeners",
            "SASL_PLAINTEXT",
            f"records{' and the password' if is_clear else ''} are sent in plain text",
            "listeners=SASL_SSL://:9093  # and kafka+ssl:// in the site's address",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _unseen() -> Finding:
    return Finding(
        "warning",
        "settings of the brokers",
        "may not be read",
        "whether they would lose data cannot be seen",
        "kafka-acls --add --allow-principal User:NAME --operation DescribeConfigs --cluster",
    )


def _number(text: str | None, default: int) -> int:
    try:
        return int(text or "")
    except ValueError:
        return default
