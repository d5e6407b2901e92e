"""How the connector in Flink's jobs reports refusals of a broker."""

from __future__ import annotations

import re

_LASTING_REFUSAL = re.compile(
    "the broker refuses (the login|the subscription|access): .*"
    "(NOT_AUTHORIZED|AUTHENTICATION_FAILED|BAD_USER_NAME_OR_PASSWORD|BAD_AUTHENTICATION_METHOD|BANNED"
    "|CLIENT_IDENTIFIER_NOT_VALID|IDENTIFIER_REJECTED)"
)
"""How the connector reports a refusal that does not pass by itself, as that of a busy broker does.
It names the reasons of CONNACK and SUBACK as its MQTT library does, and those of Kafka likewise.
They are known here, not to the binders of brokers: what the connector reports comes from Flink
alone."""


def is_lasting(problem: str | None) -> bool:
    """Whether the broker refuses what the connector asks for, and goes on to do so until somebody
    changes credentials or permissions."""
    return problem is not None and _LASTING_REFUSAL.search(problem) is not None
