"""Addresses that are given without a kind, where two kinds share a scheme."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from speck.binding import AddressRules, addresses, kind_of_address, normalise_address
from speck.binding.addresses import is_encrypted
from speck.model.addresses import AddressError, Scheme
from speck.model.site import Broker
from tests.third_party_kinds import forget_kinds

POST = AddressRules(
    {"tcp": Scheme(9092), "ssl": Scheme(9093), "post": Scheme(25), "mqtt": Scheme(1883)},
    "post://host:25",
)
"""A broker whose schemes mean something else, and which does not encrypt over `ssl`."""


@pytest.fixture(autouse=True)
def post(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kinds, rules, is_simulated = addresses.kinds, addresses.address_rules, addresses.is_simulated
    monkeypatch.setattr(
        addresses,
        "kinds",
        lambda group: (*kinds(group), *(["post"] if group == addresses.BROKERS else [])),
    )
    monkeypatch.setattr(
        addresses,
        "address_rules",
        lambda group, kind: POST if kind == "post" else rules(group, kind),
    )
    monkeypatch.setattr(
        addresses,
        "is_simulated",
        lambda group, kind: kind != "post" and is_simulated(group, kind),
    )
    forget_kinds()
    yield
    forget_kinds()


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("tcp://pi", "tcp://pi:1883 (broker memory), tcp://pi:1883 (broker mqtt), tcp://pi:9092"),
        ("ssl://pi/", "ssl://pi:8883"),
        ("mqtt://pi:1883", "mqtt://pi:1883 (broker post)"),
    ],
)
def test_an_address_that_means_two_things_is_refused(address: str, meant: str) -> None:
    """Silently one kind would take over the addresses of the other."""
    with pytest.raises(AddressError) as refused:
        normalise_address(address)
    assert meant in str(refused.value)
    assert str(refused.value).endswith("write it out, or name the site")


def test_one_that_means_the_same_to_all_is_taken() -> None:
    assert normalise_address("tcp://Pi:1883/") == "tcp://pi:1883"
    assert normalise_address("post://pi") == "post://pi:25"


def test_who_connects_without_a_kind_must_be_told() -> None:
    assert kind_of_address(addresses.BROKERS, "post://pi") == ("post", "post://pi:25")
    assert kind_of_address(addresses.BROKERS, "mqtts://pi") == ("mqtt", "ssl://pi:8883")
    with pytest.raises(AddressError, match="one of kind mqtt or post: name a registered site"):
        kind_of_address(addresses.BROKERS, "tcp://pi:1883")


def test_whether_a_connection_is_encrypted_is_said_by_its_kind() -> None:
    address = "ssl://pi:9093"
    assert is_encrypted(Broker("mqtt", address))
    assert not is_encrypted(Broker("post", address))


def test_an_address_may_name_several_hosts_if_its_kind_says_so() -> None:
    rules = AddressRules({"log": Scheme(9092)}, "log://a,b", several_hosts=True)
    assert rules.normalise("log://B:1,a") == rules.normalise("log://a:9092,b:1,A")
    assert rules.normalise("log://b:1,a") == "log://a:9092,b:1"
    assert rules.normalise("log://a") == "log://a:9092"
    for wrong in ("log://a,", "log://a,b/c", "log://a,log://b", "log://a,b:0"):
        with pytest.raises(AddressError, match="is not an address like"):
            rules.normalise(wrong)
    with pytest.raises(AddressError):
        normalise_address("post://a,b")
