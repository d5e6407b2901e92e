from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from binders.mqtt.check import Open, access_findings, connack_findings
from speck.binding import Target
from speck.errors import BrokerRefusedError
from speck.sites.credentials import Credentials
from speck.tls.contexts import ClientTls

GOOD: dict[str, Any] = {"ReceiveMaximum": 1000, "TopicAliasMaximum": 10}


def test_good_settings_give_no_finding() -> None:
    assert list(connack_findings(GOOD)) == []


def test_an_absent_property_means_no_limit() -> None:
    assert list(connack_findings({"TopicAliasMaximum": 10})) == []


@pytest.mark.parametrize(
    ("limits", "severity", "mend"),
    [
        ({"ReceiveMaximum": 20}, "warning", "max_inflight_messages 1000"),
        ({"RetainAvailable": 0}, "error", "retain_available true"),
        ({"MaximumQoS": 0}, "error", "max_qos 2"),
        ({"MaximumPacketSize": 5000}, "warning", "max_packet_size 1048576"),
        ({"MaximumPacketSize": 200}, "error", "max_packet_size 1048576"),
        ({"TopicAliasMaximum": 0}, "warning", "max_topic_alias 10"),
        ({"SessionExpiryInterval": 3600}, "error", "persistent_client_expiration 30d"),
    ],
)
def test_each_limit_has_its_line(limits: dict[str, Any], severity: str, mend: str) -> None:
    (finding,) = connack_findings(GOOD | limits)

    assert (finding.severity, finding.mend) == (severity, mend)
    assert finding.value and finding.why


def test_missing_wildcards_are_an_error() -> None:
    (finding,) = connack_findings(GOOD | {"WildcardSubscriptionAvailable": 0})

    assert finding.severity == "error"


def open_to_all(*_: Any, **__: Any) -> Any:
    return nullcontext()


def open_to_users(*_: Any, anonymous: bool = False, **__: Any) -> Any:
    assert anonymous
    raise BrokerRefusedError("cannot connect: not authorised")


NAMED = Credentials("speck", "secret")


@pytest.mark.parametrize(
    ("address", "credentials", "open_", "settings"),
    [
        ("tcp://127.3.4.5:1883", Credentials(), open_to_all, []),
        ("tcp://[::1]:1883", Credentials(), open_to_all, []),
        ("tcp://192.0.2.1:1883", Credentials(), open_to_all, ["allow_anonymous"]),
        ("tcp://192.0.2.1:1883", NAMED, open_to_all, ["allow_anonymous"]),
        ("tcp://192.0.2.1:1883", NAMED, open_to_users, []),
        ("ssl://192.0.2.1:8883", NAMED, open_to_users, []),
        (
            "tcp://192.0.2.1:8883",
            Credentials("speck", "secret", ClientTls(Path("ca.pem"))),
            open_to_users,
            [],
        ),
    ],
)
def test_who_may_connect_matters_past_loopback(
    address: str, credentials: Credentials, open_: Any, settings: list[str]
) -> None:
    findings = access_findings(Target(address), credentials, cast(Open, open_))

    assert [finding.setting for finding in findings] == settings
