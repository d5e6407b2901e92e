"""Why certificates are refused, in words that say what to do."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from speck.tls.certificates import describe_expiry, end_of, explain_alert, explain_refusal

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("days", "words"),
    [(31, None), (30, "ends in 30 days (2026-05-31)"), (0, "ended on 2026-05-01")],
)
def test_an_end_within_30_days_is_worth_a_note(days: int, words: str | None) -> None:
    assert describe_expiry(NOW + timedelta(days=days), NOW) == words


def test_the_end_of_a_peer_s_certificate() -> None:
    assert end_of({"notAfter": "May  1 00:00:00 2026 GMT"}) == NOW
    assert end_of({}) is None
    assert end_of(None) is None


def alert(reason: str) -> OSError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    outer = OSError("wrapped")
    outer.__cause__ = error
    return outer


def test_an_alert_about_certificates_says_what_is_missing() -> None:
    error = alert("TLSV13_ALERT_CERTIFICATE_REQUIRED")
    assert "asks for a client certificate" in str(explain_alert(error, own=None))
    refused = str(explain_alert(alert("TLSV1_ALERT_UNKNOWN_CA"), own=Path("me.crt")))
    assert refused == "it refuses the client certificate me.crt (tlsv1 alert unknown ca)"
    assert explain_alert(alert("WRONG_VERSION_NUMBER"), own=None) is None
    assert explain_alert(OSError("refused"), own=None) is None


def test_an_expired_certificate_is_to_be_renewed() -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = 10, "certificate has expired"
    reason = explain_refusal(error, "127.0.0.1", 1)
    assert reason == (
        "its certificate has expired; renew it, and check the clocks of both machines"
    )


def test_another_error_is_no_refusal() -> None:
    assert explain_refusal(OSError("refused"), "127.0.0.1", 1) is None
    loop = OSError("a")
    loop.__context__ = loop
    assert explain_refusal(loop, "127.0.0.1", 1) is None
