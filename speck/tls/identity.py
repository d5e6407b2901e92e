"""Who a fog's servers and clients are: each has a certificate of one authority, and none is served
without. An identity knows how its broker, engine and agent are told so."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from speck.errors import NotFoundError
from speck.tls.authority import KEYSTORE_PASSWORD, Authority, write_truststore
from speck.tls.certificates import fingerprint
from speck.tls.contexts import ClientTls, client_context

SERVICE = "service"
"""The name of the service's certificate, with which it also calls engines and brokers."""

CREDENTIALS = "fog"
"""The name of the credentials that the service has for all sites of a fog."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One certificate in the folder of an authority, under its name."""

    authority: Path
    name: str

    @classmethod
    def of_site(cls, authority: Path, site: str) -> Identity:
        """That of a fog's site: another name than a real site of the same name would have."""
        return cls(authority, f"fog-{site}")

    @property
    def ca(self) -> Path:
        return self.authority / "ca.crt"

    @property
    def cert(self) -> Path:
        return self.authority / f"{self.name}.crt"

    @property
    def key(self) -> Path:
        return self.authority / f"{self.name}.key"

    @property
    def files(self) -> ClientTls:
        """The files of a client with this identity."""
        return ClientTls(self.ca, self.cert, self.key)

    def context(self) -> ssl.SSLContext:
        """The context of a client with this identity."""
        return client_context(self.ca, self.cert, self.key)

    def write_credentials(self, file: Path, addresses: Iterable[str]) -> None:
        """Write a credentials file with which speck and its jobs reach these addresses."""
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"address={' '.join(addresses)}"]
        lines += [f"ca={self.ca}", f"cert={self.cert}", f"key={self.key}"]
        fresh = file.with_name(f".{file.name}.new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write("\n".join(lines) + "\n")
        fresh.replace(file)

    def broker_settings(self) -> dict[str, str]:
        """Lines of mosquitto.conf: nobody connects without a certificate, whose common name is the
        user."""
        return {
            "cafile": str(self.ca),
            "certfile": str(self.cert),
            "keyfile": str(self.key),
            "require_certificate": "true",
            "use_identity_as_username": "true",
        }

    def engine_settings(self) -> dict[str, str]:
        """Settings of Flink. Its REST API, which runs any code, obeys the service and reports to
        the site's agent; its inner connections trust its own certificate only."""
        return {
            # TLS 1.3 takes certificates of any kind of key; Flink's own choice takes RSA only
            "security.ssl.protocol": "TLSv1.3",
            "security.ssl.algorithms": "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384",
            "security.ssl.rest.authentication-enabled": "true",
            **self._stores("rest", self._clients),
            **self._stores("internal", self.authority / "ca.p12"),
            "security.ssl.internal.cert.fingerprint": fingerprint(self.cert),
        }

    def agent_options(self) -> list[str]:
        """Options of `speck agent`: as a client of the service and of others, and as a server."""
        server = ["--tls-cert", str(self.cert), "--tls-key", str(self.key)]
        client = ["--ca", str(self.ca), "--cert", str(self.cert), "--key", str(self.key)]
        return [*server, "--client-ca", str(self.ca), *client]

    def write_truststore(self) -> None:
        """Write the truststore of `engine_settings`."""
        write_truststore(self._clients, Identity(self.authority, SERVICE).cert, self.cert)

    @property
    def _clients(self) -> Path:
        return self.authority / f"{self.name}-clients.p12"

    def _stores(self, part: str, truststore: Path) -> dict[str, str]:
        prefix = f"security.ssl.{part}"
        return {
            f"{prefix}.enabled": "true",
            f"{prefix}.keystore": str(self.authority / f"{self.name}.p12"),
            f"{prefix}.keystore-type": "PKCS12",
            f"{prefix}.keystore-password": KEYSTORE_PASSWORD,
            f"{prefix}.key-password": KEYSTORE_PASSWORD,
            f"{prefix}.truststore": str(truststore),
            f"{prefix}.truststore-type": "PKCS12",
            f"{prefix}.truststore-password": KEYSTORE_PASSWORD,
        }


def issue_all(folder: Path, hosts: Mapping[str, str]) -> None:
    """Issue a certificate for each site of `hosts` (name -> address), in the folder of an authority
    that is made if there is none, and one for the service unless it has one."""
    now = datetime.now(UTC)
    try:
        authority = Authority(folder)
    except NotFoundError:
        authority = Authority.create(folder, now)
    if not Identity(folder, SERVICE).cert.exists():
        names = dict.fromkeys(["127.0.0.1", "localhost", socket.gethostname()])
        authority.issue(SERVICE, now, hosts=list(names))
    for site, host in hosts.items():
        identity = Identity.of_site(folder, site)
        authority.issue(identity.name, now, hosts=[host], keystore=True, force=True)
        identity.write_truststore()
