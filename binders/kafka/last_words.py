"""What comes together with the end of a connection.

A broker that refuses a login says so and closes the connection at once. kafka-python 3.0.12 throws
away what it reads with the end, and takes the refusal for a broker that is not there.
"""

from __future__ import annotations

from typing import Any

from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport


def keep_last_words() -> None:
    """Let all connections of this process hear what was sent before the end."""
    for kind in (KafkaTCPTransport, KafkaSSLTransport):
        if not hasattr(kind._sock_recv, "keeps"):
            kind._sock_recv = _keeping(kind._sock_recv)


def _keeping(receive: Any) -> Any:
    def keep(transport: Any) -> tuple[bytes, Exception | None]:
        data, error = receive(transport)
        return (data, None) if data else (data, error)  # the end is there at the next look, too

    keep.keeps = True  # type: ignore[attr-defined]
    return keep
