"""The one grammar of addresses: what every program that connects to one takes."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speck.binding import normalise_address
from speck.model.addresses import AddressError, SecretsInAddressError

# the connector's own test reads the same table
TABLE = Path("edge_jobs/mqtt/src/test/resources/addresses.txt")
ADDRESSES = [line.split(" ") for line in TABLE.read_text().splitlines()]
LABEL = "a" * 63


@pytest.mark.parametrize(("spelling", "normalised"), ADDRESSES)
def test_an_address_has_one_form(spelling: str, normalised: str) -> None:
    assert normalise_address(spelling) == normalised
    assert normalise_address(normalised) == normalised
    parts = urlsplit(normalised)
    assert parts.hostname is not None and parts.port is not None
    parts.hostname.encode("idna")  # as `getaddrinfo` does


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("tcp://plant_broker.test:1883", "Java takes no host name with an underscore"),
        ("ssl://_mqtt", "underscore"),
        ("tcp://a..b:1883", "1 to 63 characters"),
        ("tcp://.a", "1 to 63 characters"),
        ("tcp://a..", "1 to 63 characters"),
        (f"tcp://{LABEL}a", "1 to 63 characters"),
        (f"tcp://{'.'.join([LABEL] * 4)}", "at most 253"),
        ("tcp://" + "\u00fc" * 60, "cannot be encoded"),
        ("tcp://stra\u00dfe.test", "two ways"),
        ("tcp://-a", "hyphens between"),
        ("tcp://a-.test", "hyphens between"),
        ("tcp://*.test", "hyphens between"),
        ("tcp://127.0.0.256", "no IPv4 address"),
        ("tcp://edge.3", "begins with a letter"),
        ("tcp://[::1%lo]", "only a link-local"),
        ("tcp://[fe80::1%br-0]", "the zone"),
        ("tcp://[fe80::1%]", "the zone"),
        ("tcp://[v1.a]", "only an IPv6 address"),
        ("tcp://[127.0.0.1]", "only an IPv6 address"),
        ("tcp://host:0", "from 1 to 65535"),
        ("tcp://host:65536", "from 1 to 65535"),
        ("tcp://host:" + "9" * 400, "from 1 to 65535"),
        ("http://host/caf\u00e9", "written as %XX"),
        ("http://host/%zz", "written as %XX"),
    ],
)
def test_what_one_of_the_programs_refuses_is_refused_with_a_reason(
    address: str, reason: str
) -> None:
    with pytest.raises(AddressError, match=reason) as refusal:
        normalise_address(address)
    assert refusal.value.reason and len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    "address",
    ["host", "tcp://", "tcp:///a", "tcp://::1:1883", "tcp://[::1]x:1", "tcp://x[::1]", "tcp://a b",
     "tcp://a\nb", "tcp://a:b", "tcp://a:\uff11", "ftp://a", "tcp://a\\b", "tcp://a\t:1"],
)  # fmt: skip
def test_what_does_not_look_like_an_address(address: str) -> None:
    with pytest.raises(AddressError, match="is not an address like") as refusal:
        normalise_address(address)
    assert refusal.value.reason is None


@pytest.mark.parametrize(
    "address", ["tcp://me:secret@a", "tcp://@a", "tcp://a?secret", "tcp://a/#secret", "tcp://a#"]
)
def test_the_message_about_a_secret_does_not_repeat_it(address: str) -> None:
    with pytest.raises(SecretsInAddressError) as refusal:
        normalise_address(address)
    assert "secret" not in str(refusal.value)


@given(st.text(alphabet="abZ019.-_:[]%/@?#\u00fc\u3002\uff11\u00df \n", max_size=24))
def test_whatever_is_taken_can_be_looked_up(text: str) -> None:
    try:
        normalised = normalise_address(f"tcp://{text}")
    except AddressError:
        return
    assert normalised.isascii() and normalise_address(normalised) == normalised
    parts = urlsplit(normalised)
    assert parts.hostname and parts.port
    parts.hostname.encode("idna")
    if parts.hostname[0].isdigit() and parts.hostname.replace(".", "").isdigit():
        socket.inet_aton(parts.hostname)
