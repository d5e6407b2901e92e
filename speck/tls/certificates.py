"""What certificates say: whom they name, until when they hold, and why one was refused.

`cryptography` is loaded when it is first needed: most programs never read a certificate themselves.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from speck.errors import PermanentError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

WARN_BEFORE = timedelta(days=30)
"""How long before its end a certificate is worth a warning."""

_WRONG_NAME = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_WRONG_TIME = frozenset({9, 10})  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_OF_CERTIFICATES = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")
_READ_S = 3.0


def load_certificate(file: Path) -> Certificate:
    """The first certificate of a PEM file. Raises PermanentError."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError) as error:
        raise PermanentError(
            f"cannot read the certificate {file}: {getattr(error, 'strerror', None) or error};"
            " it must be a PEM file"
        ) from error


def names_of(certificate: Certificate) -> list[str]:
    """The host names and addresses that a server with this certificate may have."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = names.get_values_for_type(x509.IPAddress)
    return [*names.get_values_for_type(x509.DNSName), *map(str, addresses)]


def fingerprint(file: Path) -> str:
    """The SHA-1 fingerprint of a certificate, as Flink wants it (`cert.fingerprint`)."""
    from cryptography.hazmat.primitives.hashes import SHA1

    return load_certificate(file).fingerprint(SHA1()).hex(":").upper()


def describe_expiry(ends: datetime, now: datetime) -> str | None:
    """`ends in 12 days (2026-05-01)`, or `ended on 2026-05-01`; None while there is time."""
    if ends - now > WARN_BEFORE:
        return None
    if ends <= now:
        return f"ended on {ends:%Y-%m-%d}"
    return f"ends in {(ends - now).days} days ({ends:%Y-%m-%d})"


def end_of(peer: object) -> datetime | None:
    """When the certificate ends that `SSLSocket.getpeercert()` has returned."""
    text = peer.get("notAfter") if isinstance(peer, dict) else None
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC) if text else None


def explain_refusal(error: BaseException, host: str, port: int) -> str | None:
    """Why this side does not trust the server's certificate, and what to do about it; None if
    another error broke the connection.

    For a wrong host name the server is asked, without trusting it, which names it has.
    """
    cause = _find(error, ssl.SSLCertVerificationError)
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return None
    if cause.verify_code in _WRONG_NAME:
        names = ", ".join(_ask_names(host, port)) or "other names"
        return (
            f"its certificate is not for {host} but for {names}; use one of these in the address,"
            f" or issue a certificate with --host {host}"
        )
    if cause.verify_code in _WRONG_TIME:
        return f"its {cause.verify_message}; renew it, and check the clocks of both machines"
    return f"{cause.verify_message}; the CA file must hold the authority that signed it"


def explain_alert(error: BaseException, *, own: Path | None) -> str | None:
    """Why the server ended the handshake; None if no TLS alert says so. `own` is the certificate
    that was presented to it, if any."""
    cause = _find(error, ssl.SSLError)
    reason = str(getattr(cause, "reason", None) or "")
    if "ALERT" not in reason or not any(word in reason for word in _OF_CERTIFICATES):
        return None
    if own is None:
        return "it asks for a client certificate: give a cert and key that its authority has signed"
    return f"it refuses the client certificate {own} ({reason.lower().replace('_', ' ')})"


def _find(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """The error of this kind among an error, its causes and what libraries wrap it in."""
    waiting = [error]
    for _ in range(30):  # errors may name each other in a circle
        if not waiting:
            break
        current = waiting.pop(0)
        if isinstance(current, kind):
            return current
        reason = getattr(current, "reason", None)
        inner = (current.__cause__, current.__context__, reason, *current.args)
        waiting += [each for each in inner if isinstance(each, BaseException)]
    return None


def _ask_names(host: str, port: int) -> list[str]:
    from cryptography import x509

    try:
        pem = ssl.get_server_certificate((host, port), timeout=_READ_S)
        return names_of(x509.load_pem_x509_certificate(pem.encode()))
    except (OSError, ValueError):  # without a client certificate some servers do not go so far
        return []
