"""Hosts of addresses: the many spellings of one IP address, and IPv4 addresses inside IPv6 ones."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

IPAddress = IPv4Address | IPv6Address

_NUMBER = re.compile(r"0x[0-9a-f]{1,8}|\d{1,12}", re.ASCII)
_TRANSLATED = tuple(map(IPv6Network, ("64:ff9b::/96", "::/96")))
"""Prefixes before an IPv4 address: NAT64 (RFC 6052), and the obsolete IPv4-compatible one."""
_TRANSLATED_LOCALLY = IPv6Network("64:ff9b:1::/48")


def read_ip(host: str) -> IPAddress | None:
    """The IP address that `host` spells, None for a DNS name.

    Besides the usual forms it reads those that the C library reads (`inet_aton`): `127.1`,
    `0x7f.1`, `0177.0.0.1` and `2130706433` are all 127.0.0.1. An IPv6 zone is ignored, and an
    IPv4-mapped address is the IPv4 address that it maps.
    """
    text = host.strip("[]").partition("%")[0].lower()
    try:
        ip = ip_address(text)
    except ValueError:
        return _read_inet_aton(text)
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    return ip


def _read_inet_aton(text: str) -> IPv4Address | None:
    parts = text.split(".")
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    try:
        *first, last = (int(part, _base(part)) for part in parts)
    except ValueError:  # an octal number with a digit 8 or 9
        return None
    if any(number > 255 for number in first) or last >= 256 ** (4 - len(first)):
        return None
    high = sum(number << 8 * (3 - index) for index, number in enumerate(first))
    return IPv4Address(high + last)


def _base(part: str) -> int:
    if part.startswith("0x"):
        return 16
    return 8 if part.startswith("0") and len(part) > 1 else 10


def find_reached(ip: IPAddress) -> IPAddress:
    """The address that packets to `ip` may reach in the end: the IPv4 address within an IPv6
    address that a gateway or the kernel translates (mapped, NAT64, 6to4, Teredo), else `ip`."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip.sixtofour is not None:
        return ip.sixtofour
    if ip.teredo is not None:
        return ip.teredo[1]
    last = IPv4Address(int(ip) & 0xFFFFFFFF)
    if ip in _TRANSLATED_LOCALLY or (any(ip in net for net in _TRANSLATED) and int(ip) > 1):
        return last
    return ip


def normalise_host(host: str) -> str:
    """`host` in the form in which hosts are compared: lower case, in ASCII, without a final dot, an
    IP address in its usual spelling (IPv6 in brackets).

    The host of an address is read by Python, Java, DNS and TLS, and each takes hosts that others
    refuse: only what all of them take is a host. Raises ValueError saying why it is none.
    """
    if host.startswith("["):
        return _normalise_ipv6(host[1:-1])
    name = _to_ascii(host).lower().removesuffix(".")
    ip = read_ip(name)
    if ip is not None:
        return str(ip)
    labels = name.split(".")
    if any(not 0 < len(label) <= _LONGEST_LABEL for label in labels) or len(name) > _LONGEST_NAME:
        raise ValueError(
            f"the parts between the dots of a host name have 1 to {_LONGEST_LABEL} characters, and"
            f" all together at most {_LONGEST_NAME}"
        )
    if "_" in name:
        raise ValueError(
            "Java takes no host name with an underscore; give the host an alias without it, or use"
            " its IP address"
        )
    if not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(
            "a host name has letters, digits, and hyphens between them, in parts separated by dots"
        )
    if _NUMERIC.fullmatch(labels[-1]) or (len(labels) > 1 and labels[-1][0].isdigit()):
        raise ValueError(
            "it is no IPv4 address, and the last part of a host name begins with a letter"
        )
    return name


_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)
_NUMERIC = re.compile(r"0x[0-9a-f]*|\d+", re.ASCII)
_LONGEST_LABEL = 63
_LONGEST_NAME = 253
_AMBIGUOUS = frozenset("\u00df\u03c2\u200c\u200d")
"""Characters that the two standards of international names (IDNA 2003, 2008) encode differently."""


def _to_ascii(host: str) -> str:
    if host.isascii():
        return host
    if _AMBIGUOUS & set(host):
        raise ValueError("it may be encoded in two ways; write the host name in its ASCII form")
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError("it cannot be encoded as an international host name") from error


_LINK_LOCAL = IPv6Network("fe80::/10")
_ZONE = re.compile(r"[a-z0-9_.]+", re.ASCII)
"""What Java takes as a zone; the connector compares hosts in lower case."""


def _normalise_ipv6(text: str) -> str:
    address, percent, zone = text.partition("%")
    try:
        ip: IPAddress = IPv6Address(address)
    except ValueError as error:
        raise ValueError("only an IPv6 address stands in brackets") from error
    if not percent:
        mapped = read_ip(address)
        return str(mapped) if isinstance(mapped, IPv4Address) else f"[{ip}]"
    if zone.startswith("25") and zone[2:3].isalpha():
        zone = zone[2:]  # as RFC 6874 writes the percent sign
    if ip not in _LINK_LOCAL:
        raise ValueError("only a link-local IPv6 address (fe80::...) has a zone")
    if not _ZONE.fullmatch(zone):
        raise ValueError(
            "the zone of an IPv6 address has lower-case letters, digits, '_' and '.', like %eth0"
        )
    return f"[{ip}%{zone}]"
