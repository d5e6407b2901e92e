"""A certificate authority for small fogs: a folder with its key and the certificates it issued.

`ca.crt` is what everybody trusts; `ca.key` signs, and needs to be on no machine of the fog. A
certificate NAME is `NAME.crt` and `NAME.key`, both PEM. Flink reads Java's keystores only: those
are `ca.p12` and, where asked for, `NAME.p12`.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from speck.errors import ConflictError, InvalidError, NotFoundError, PermanentError
from speck.model.values import is_name
from speck.tls.certificates import load_certificate, names_of

CA_DAYS = 3650
DAYS = 730
KEYSTORE_PASSWORD = "speck-keystore"
"""Java wants a password for every keystore. This one protects nothing and is no secret: the mode of
the file protects the key, as with the PEM file beside it."""

_AUTHORITY = "ca"
_SKEW = timedelta(hours=1)
"""Certificates begin in the past: a Raspberry Pi has no clock that runs while it is off."""
_DNS_NAME = re.compile(
    r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*"
)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate in the folder. `hosts` is empty for one of a client; `ends` is UTC."""

    name: str
    cert: Path
    hosts: tuple[str, ...]
    ends: datetime


class Authority:
    """The authority in `folder`; `create` makes one. Raises NotFoundError when there is none."""

    def __init__(self, folder: Path):
        self.folder = folder
        if not self.cert.exists():
            raise NotFoundError(
                f"cannot find a certificate authority in {folder}: make one (speck ca init)"
            )

    @property
    def cert(self) -> Path:
        """The certificate that everybody trusts."""
        return self.folder / f"{_AUTHORITY}.crt"

    @property
    def truststore(self) -> Path:
        """The same as a PKCS12 truststore, with `KEYSTORE_PASSWORD`."""
        return self.folder / f"{_AUTHORITY}.p12"

    @classmethod
    def create(
        cls, folder: Path, now: datetime, *, name: str = "speck", force: bool = False
    ) -> Authority:
        """Make a new authority. Raises ConflictError if there is one and not `force`: what the old
        one has signed is worth nothing then."""
        if not force and (folder / f"{_AUTHORITY}.crt").exists():
            raise ConflictError(
                f"cannot make a certificate authority in {folder}: there is one; --force replaces"
                " it, and every certificate of the old one must then be issued again"
            )
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(f"{name} CA")
        builder = (
            _builder(subject, subject, key.public_key(), now, CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
        )
        certificate = builder.sign(key, hashes.SHA256())
        _write_secret(folder / f"{_AUTHORITY}.key", _pem(key))
        _replace(folder / f"{_AUTHORITY}.crt", certificate.public_bytes(Encoding.PEM), 0o644)
        write_truststore(folder / f"{_AUTHORITY}.p12", folder / f"{_AUTHORITY}.crt")
        return cls(folder)

    def issue(
        self,
        name: str,
        now: datetime,
        *,
        hosts: Sequence[str] = (),
        client: bool = False,
        days: int = DAYS,
        keystore: bool = False,
        force: bool = False,
    ) -> Issued:
        """Issue `NAME.crt` and `NAME.key`, with `keystore`, or if there is one, also `NAME.p12`.

        The certificate is for a server at `hosts` (names or addresses; `name` itself without any)
        that is a client of others as well, or with `client` for a client only. `name` becomes its
        common name, which Mosquitto takes for the user. Raises InvalidError, and ConflictError if
        the name has a certificate and not `force`; PermanentError if the authority cannot sign.
        """
        if client and hosts:
            raise InvalidError("cannot issue a client's certificate with --host: leave one out")
        cert, key_file = self._name_files(name, force=force)
        authority, signing_key = self._load_valid(name, now), self._load_key()
        key = ec.generate_private_key(ec.SECP256R1())
        ends = min(now + timedelta(days=days), authority.not_valid_after_utc)
        names = [] if client else [_general_name(host) for host in hosts or (name,)]
        builder = _builder(_subject(name), authority.subject, key.public_key(), now, ends - now)
        certificate = _add_uses(builder, names, signing_key).sign(signing_key, hashes.SHA256())
        # The key first: who reads both in between keeps what he has until they fit together.
        _write_secret(key_file, _pem(key))
        _replace(cert, certificate.public_bytes(Encoding.PEM), 0o644)
        store = self.folder / f"{name}.p12"
        if keystore or store.exists():  # else a renewal would leave the old certificate to Flink
            _write_secret(
                store,
                pkcs12.serialize_key_and_certificates(
                    name.encode(),
                    key,
                    certificate,
                    [authority],
                    _keystore_encryption(),
                ),
            )
        return _describe(cert)

    def list(self) -> list[Issued]:
        """The authority's own certificate, then those it issued, by name."""
        files = sorted(self.folder.glob("*.crt"), key=lambda file: (file != self.cert, file.name))
        return [_describe(file) for file in files]

    def _name_files(self, name: str, *, force: bool) -> tuple[Path, Path]:
        """Where a certificate and its key go."""
        if not is_name(name) or name == _AUTHORITY:
            raise InvalidError(
                f"cannot issue a certificate for {name!r}: use a name of letters, digits, - and _"
                f" other than {_AUTHORITY!r}"
            )
        cert = self.folder / f"{name}.crt"
        if not force and cert.exists():
            raise ConflictError(
                f"cannot issue a certificate for {name!r}: {cert} exists; --force replaces it"
            )
        return cert, self.folder / f"{name}.key"

    def _load_valid(self, name: str, now: datetime) -> x509.Certificate:
        """The authority's own certificate, to sign that of `name` with."""
        authority = load_certificate(self.cert)
        if authority.not_valid_after_utc <= now:
            raise PermanentError(
                f"cannot issue a certificate for {name!r}: the authority {self.cert} ended on"
                f" {authority.not_valid_after_utc:%Y-%m-%d}; make another with"
                " `speck ca init --force`, and issue all certificates again"
            )
        return authority

    def _load_key(self) -> ec.EllipticCurvePrivateKey:
        file = self.folder / f"{_AUTHORITY}.key"
        try:
            if file.stat().st_mode & 0o077:
                raise PermanentError(
                    f"cannot use the authority's key {file}: others may read it; run:"
                    f" chmod 0600 {file}"
                )
            key = load_pem_private_key(file.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise PermanentError(
                f"cannot use the authority's key {file}: {getattr(error, 'strerror', 0) or error};"
                " certificates are issued where it is kept"
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise PermanentError(f"cannot use the authority's key {file}: it is no EC key")
        return key


def write_truststore(file: Path, *certs: Path) -> None:
    """Write a PKCS12 truststore with `KEYSTORE_PASSWORD` that trusts these certificates: those of
    authorities, or of single clients, who alone are then let in."""
    trusted = [
        pkcs12.PKCS12Certificate(load_certificate(cert), cert.stem.encode()) for cert in certs
    ]
    _replace(file, pkcs12.serialize_java_truststore(trusted, _keystore_encryption()), 0o644)


def _keystore_encryption() -> KeySerializationEncryption:
    """One round, since the password is known anyway: Flink loads its keystores for each connection
    to its blob server, and so for each job; with the usual 20 000 rounds that takes longer than
    all the rest of starting a job."""
    builder = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1)
    return builder.build(KEYSTORE_PASSWORD.encode())


def _describe(cert: Path) -> Issued:
    certificate = load_certificate(cert)
    names = tuple(names_of(certificate))
    return Issued(cert.stem, cert, names, certificate.not_valid_after_utc)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    lasts: timedelta | int,
) -> x509.CertificateBuilder:
    lasting = lasts if isinstance(lasts, timedelta) else timedelta(days=lasts)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lasting)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _add_uses(
    builder: x509.CertificateBuilder,
    names: list[x509.GeneralName],
    signing_key: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    """A site's broker and engine are servers, and its jobs clients: one certificate for both."""
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if names:
        uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(issuer, critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    name = host.lower()
    if len(name) > 253 or not _DNS_NAME.fullmatch(name):
        raise InvalidError(
            f"cannot issue a certificate for the host {host!r}: write a host name or an IP address,"
            " without scheme and port"
        )
    return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write_secret(file: Path, content: bytes) -> None:
    _replace(file, content, 0o600)


def _replace(file: Path, content: bytes, mode: int) -> None:
    """Write a file in one step; it never has another mode, not even while it is written."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
        out.write(content)
    fresh.chmod(mode)
    fresh.replace(file)
