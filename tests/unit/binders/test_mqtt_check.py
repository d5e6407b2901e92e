from typing import Any

import pytest

from binders.mqtt.check import connack_findings

GOOD: dict[str, Any] = {"ReceiveMaximum": 1000, "TopicAliasMaximum": 10}


def test_good_settings_give_no_finding() -> None:
    assert list(connack_findings(GOOD)) == []


def test_an_absent_property_means_no_limit() -> None:
    assert list(connack_findings({"TopicAliasMaximum": 10})) == []


@pytest.mark.parametrize(
    ("said", "severity", "mend"),
    [
        ({"ReceiveMaximum": 20}, "warning", "max_inflight_messages 1000"),
        ({"RetainAvailable": 0}, "error", "retain_available true"),
        ({"MaximumQoS": 0}, "error", "max_qos 2"),
        ({"MaximumPacketSize": 1000}, "warning", "max_packet_size 1048576"),
        ({"TopicAliasMaximum": 0}, "warning", "max_topic_alias 10"),
        ({"SessionExpiryInterval": 3600}, "error", "persistent_client_expiration 30d"),
    ],
)
def test_each_limit_has_its_line(said: dict[str, Any], severity: str, mend: str) -> None:
    (finding,) = connack_findings(GOOD | said)

    assert (finding.severity, finding.mend) == (severity, mend)
    assert finding.found and finding.why


def test_missing_wildcards_are_an_error() -> None:
    (finding,) = connack_findings(GOOD | {"WildcardSubscriptionAvailable": 0})

    assert finding.severity == "error"
