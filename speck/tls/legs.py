"""The legs between the service and a site: which are plain, and whose certificates end soon."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from speck.errors import PermanentError
from speck.model.finding import Finding
from speck.model.site import Broker, Engine, Site
from speck.tls.certificates import describe_expiry, end_of, load_certificate
from speck.tls.contexts import ClientTls, shared_context

CONNECT_S = 5.0

PARTS = ("engine", "broker", "agent", "service")
"""What a finding of a site's check can be about."""

_MENDS = {
    "engine": "security.ssl.rest.enabled: true\n"
    "security.ssl.rest.authentication-enabled: true\n"
    "# with a keystore and a truststore (speck ca issue --keystore); then register https://...",
    "broker": "listener 8883\ncafile ca.crt\ncertfile {site}.crt\nkeyfile {site}.key\n"
    "require_certificate true\n# then register ssl://...",
    "agent": "speck agent --tls-cert {site}.crt --tls-key {site}.key --client-ca ca.crt",
    "service": "speck serve --tls-cert service.crt --tls-key service.key",
}


@dataclass(frozen=True, slots=True)
class Leg:
    """One way on which speck sends something: to a site's engine, broker or agent, or from its
    agent to the service."""

    part: str
    address: str
    encrypted: bool


def legs_of(
    site: Site,
    files: ClientTls,
    agent: str | None,
    service: str,
    is_encrypted: Callable[[Engine | Broker], bool],
) -> list[Leg]:
    """All legs of a site. `files` are those of its credentials, `agent` is the URL at which other
    agents reach its own, if any; `service` is the URL of the service. `is_encrypted` tells an
    engine or a broker to which connections use TLS, as the rules of its kind say."""
    legs = [
        *(Leg("engine", e.address, is_encrypted(e)) for e in site.spe.all if e.address),
        # with a CA the connector and the binder use TLS in any case
        Leg(
            "broker",
            site.broker.address,
            is_encrypted(site.broker) or files.ca is not None,
        ),
    ]
    if agent is not None:
        legs.append(Leg("agent", agent, agent.startswith("https:")))
    return [*legs, Leg("service", service, service.startswith("https:"))]


def plain_finding(leg: Leg, site: str) -> Finding | None:
    """Name a plain leg and how to encrypt it; None for an encrypted one."""
    if leg.encrypted:
        return None
    if _is_loopback(urlsplit(leg.address).hostname or ""):
        return Finding(
            "note",
            "TLS",
            f"{leg.address} is plain, on loopback",
            "only programs of this machine can read what is sent",
            "nothing, as long as both ends are on one machine",
        )
    return Finding(
        "warning",
        "TLS",
        f"{leg.address} is plain",
        "whoever is on the way can read and change what is sent: messages, programs and passwords",
        _MENDS[leg.part].format(site=site),
    )


def expiry_findings(leg: Leg, files: ClientTls, now: datetime) -> Iterator[Finding]:
    """Name the certificates of an encrypted engine or broker that end within 30 days: its own, and
    those in the credentials. One that does not answer is skipped: its own check reports that."""
    if not leg.encrypted or leg.part not in ("engine", "broker"):
        return
    own = [file for file in (files.ca, files.cert) if file is not None]
    ends = {str(file): _end_of_file(file) for file in own}
    ends[leg.address] = _end_of_server(leg, files)
    yield from _describe_ends(ends, now, "Mosquitto reads it after SIGHUP, Flink after a restart")


def file_findings(files: Iterable[Path], now: datetime) -> Iterator[Finding]:
    """Name those of the service's own certificates that end within 30 days."""
    ends = {str(file): _end_of_file(file) for file in files}
    yield from _describe_ends(ends, now, "the service reads it by itself")


def _describe_ends(
    ends: Mapping[str, datetime | None], now: datetime, reading: str
) -> Iterator[Finding]:
    for place, end in ends.items():
        if end is not None and (note := describe_expiry(end, now)):
            yield Finding(
                "error" if end <= now else "warning",
                "certificate",
                f"that of {place} {note}",
                "from then on nobody connects",
                f"issue a new one (speck ca issue NAME --force) and replace the old one; {reading}",
            )


def _end_of_file(file: Path) -> datetime | None:
    with suppress(PermanentError):
        return load_certificate(file).not_valid_after_utc
    return None


def _end_of_server(leg: Leg, files: ClientTls) -> datetime | None:
    parts = urlsplit(leg.address)
    host, port = parts.hostname or "", parts.port or 0
    try:
        context = shared_context(files, "check")
        with (
            socket.create_connection((host, port), CONNECT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as encrypted,
        ):
            return end_of(encrypted.getpeercert())
    except (OSError, PermanentError):
        return None


def _is_loopback(host: str) -> bool:
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
        return bool(addresses) and all(ipaddress.ip_address(a).is_loopback for a in addresses)
    except (OSError, ValueError):
        return False
