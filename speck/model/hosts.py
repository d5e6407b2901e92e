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
    """`host` in the form in which hosts are compared: lower case, without a final dot, an IP
    address in its usual spelling (IPv6 in brackets)."""
    host = host.lower().removesuffix(".")
    ip = read_ip(host)
    if ip is None or "%" in host:
        return f"[{host}]" if ":" in host else host
    return f"[{ip}]" if isinstance(ip, IPv6Address) else str(ip)
