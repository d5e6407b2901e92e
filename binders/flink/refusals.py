"""How the connector in Flink's jobs reports refusals of a broker."""

from __future__ import annotations

import re

_LASTING_REFUSAL = re.compile(
    "the broker refuses the (login|subscription): .*"
    "(NOT_AUTHORIZED|BAD_USER_NAME_OR_PASSWORD|BAD_AUTHENTICATION_METHOD|BANNED"
    "|CLIENT_IDENTIFIER_NOT_VALID|IDENTIFIER_REJECTED)"
)
"""How the connector reports a refusal that does not pass by itself, as that of a busy broker does.
It names the reasons of CONNACK and SUBACK as its MQTT library does. They are known here, not to the
binder of a broker: speck's connector for Flink speaks MQTT, and what it reports comes from Flink
alone."""


def is_lasting(problem: str | None) -> bool:
    """Whether the broker refuses what the connector asks for, and goes on to do so until somebody
    changes credentials or permissions."""
    return problem is not None and _LASTING_REFUSAL.search(problem) is not None
