"""The spellings of an IP address."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from speck.binding import normalise_address
from speck.model.hosts import find_reached, normalise_host, read_ip


@pytest.mark.parametrize(
    "spelling",
    ["127.0.0.1", "127.1", "0x7f.1", "0177.0.0.1", "2130706433", "0x7f000001", "127.0.1"],
)
def test_ipv4_has_many_spellings(spelling: str) -> None:
    assert str(read_ip(spelling)) == "127.0.0.1"
    assert normalise_address(f"http://{spelling}:8081/") == "http://127.0.0.1:8081"


def test_a_mapped_address_is_the_ipv4_address() -> None:
    assert normalise_address("tcp://[::FFFF:127.0.0.1]") == "tcp://127.0.0.1:1883"
    assert normalise_address("tcp://[0:0::1]:1883") == "tcp://[::1]:1883"


@pytest.mark.parametrize(
    "name", ["1.2.3.4.5", "127.0.0.256", "08.1", "0x.1", "a.1", "08", "0x123456789"]
)
def test_what_ends_in_a_number_is_an_ip_address_or_nothing(name: str) -> None:
    assert read_ip(name) is None
    with pytest.raises(ValueError, match=r"no IPv4 address|begins with a letter"):
        normalise_host(name)


@pytest.mark.parametrize("name", ["pi", "edge-a.local", "3com", "a--b.example"])
def test_a_name_is_no_ip_address(name: str) -> None:
    assert read_ip(name) is None
    assert normalise_host(name.upper() + ".") == name


@pytest.mark.parametrize(
    ("ip", "reached"),
    [
        ("64:ff9b::7f00:1", "127.0.0.1"),
        ("64:ff9b:1::7f00:1", "127.0.0.1"),
        ("2002:7f00:1::", "127.0.0.1"),
        ("::7f00:1", "127.0.0.1"),
        ("::1", "::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
def test_an_ipv4_address_is_found_inside(ip: str, reached: str) -> None:
    assert find_reached(ip_address(ip)) == ip_address(reached)
