"""The process of a broker that the fog started: what Mosquitto and Kafka have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from speck.fog.process import Process


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A running broker, which is stopped at the end of a `with` block."""

    SCHEMES: ClassVar[tuple[str, str]]
    """Of addresses without and with TLS."""
    STOP_S: ClassVar[float]
    """How long it may take to end."""

    process: Process
    host: str
    port: int
    folder: Path
    encrypted: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> str:
        """The address for a site's description, `<scheme>://host:port`."""
        return f"{self.SCHEMES[self.encrypted]}://{self.host}:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "log" / "broker.log"

    def stop(self, timeout_s: float | None = None) -> None:
        """SIGTERM and wait, for `STOP_S` unless said otherwise; the broker saves everything."""
        self.process.stop(self.STOP_S if timeout_s is None else timeout_s)

    def kill(self) -> None:
        """SIGKILL and wait."""
        self.process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
