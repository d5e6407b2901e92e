"""One site of a fog, as `fog.json` records it."""

from __future__ import annotations

from dataclasses import dataclass

from speck.model.site import DEFAULT_BROKER

MOSQUITTO, KAFKA = DEFAULT_BROKER, "kafka"
SPARK = "spark"
"""The kinds of brokers that a fog can start."""

_SCHEMES = {MOSQUITTO: ("tcp", "ssl"), KAFKA: ("kafka", "kafka+ssl")}


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """One site: where its broker, its engine and its agent listen.

    `speed`: how many cores its engine may use at most, a fraction for less than one; None: all.
    `encrypted`: they serve TLS. `broker`: the kind of its broker.
    """

    name: str
    tier: str
    host: str
    broker_port: int
    engine_port: int
    slots: int
    agent_port: int = 0
    speed: float | None = None
    encrypted: bool = False
    broker: str = MOSQUITTO

    @property
    def engine_address(self) -> str:
        return f"{'https' if self.encrypted else 'http'}://{self.host}:{self.engine_port}"

    @property
    def broker_address(self) -> str:
        plain, encrypted = _SCHEMES[self.broker]
        return f"{encrypted if self.encrypted else plain}://{self.host}:{self.broker_port}"
