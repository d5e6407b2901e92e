"""Sites: an engine and a broker at one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from speck.model.shown import Shown

DEFAULT_ENGINE, DEFAULT_BROKER = "flink", "mqtt"
"""The kinds of a site's engine and broker that are left out; users know them from
docs/binders.md."""

STATE_URI = "state_uri"
"""The label that says where a site keeps saved states."""


_REPORTED = Shown(left_out=True)


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What a site's agent reports of itself and its machine (`speck.spec.heartbeat` checks it);
    None: it does not know. `identity` lies in its `state_folder`; `listen` is where other agents
    reach it, and `refused_listen` what it said and they are not told; `load` is that of the last
    minute, `cpu` the share of its `cores` in use; `memory_bytes` is what the machine has, and
    `memory_available_bytes` what new programs could have of it; `run` is how it runs."""

    identity: Annotated[str | None, _REPORTED] = None
    state_folder: Annotated[str | None, _REPORTED] = None
    listen: Annotated[str | None, _REPORTED] = None
    refused_listen: Annotated[str | None, _REPORTED] = None
    free_bytes: Annotated[int | None, _REPORTED] = None
    load: Annotated[float | None, _REPORTED] = None
    cpu: Annotated[float | None, _REPORTED] = None
    cores: Annotated[int | None, _REPORTED] = None
    memory_bytes: Annotated[int | None, _REPORTED] = None
    memory_available_bytes: Annotated[int | None, _REPORTED] = None
    versions: Annotated[Mapping[str, str | None] | None, _REPORTED] = None
    run: Annotated[str | None, _REPORTED] = None


class Tier(StrEnum):
    EDGE = "edge"
    CLOUD = "cloud"


@dataclass(frozen=True, slots=True)
class Engine:
    """How to reach a site's stream engine: the name of its entry point and a normalised address,
    which is empty if it is reached through the site's agent. `credentials` is the name of a file,
    never a secret. `beside` is another engine at the site, for artifacts that this one does not
    take."""

    kind: str
    address: Annotated[
        str, Shown("absent if its kind is reached through the site's agent", left_out=True)
    ]
    credentials: Annotated[
        str | None,
        Shown("name of the file with what the engine requires of its clients", left_out=True),
    ] = None
    beside: Annotated[
        Engine | None,
        Shown("another engine, for artifacts that this one does not take", left_out=True),
    ] = None

    @property
    def all(self) -> tuple[Engine, ...]:
        """This one, and the one beside it."""
        return (self, self.beside) if self.beside is not None else (self,)


@dataclass(frozen=True, slots=True)
class Broker:
    """How to reach a site's broker; see `Engine`."""

    kind: str
    address: str
    credentials: Annotated[
        str | None,
        Shown(
            "name of the file with the user, password and certificates that the broker requires",
            left_out=True,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Site:
    """A place with one engine and one broker."""

    name: str
    tier: Tier
    spe: Engine
    broker: Broker
    uplink_mbps: Annotated[float | None, Shown("absent when it is not known", left_out=True)] = None
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its engines and of its broker, in this order."""
        return (*(each.kind for each in self.spe.all), self.broker.kind)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of its engines and its broker."""
        return (*(each.address for each in self.spe.all if each.address), self.broker.address)

    @property
    def state_uri(self) -> str | None:
        """Where this site keeps saved states (label `state_uri`); equal URIs are shared storage."""
        return self.labels.get(STATE_URI)


@dataclass(frozen=True, slots=True)
class CalibrationDetail:
    """The run of a calibration job: wall time of a unit of work in seconds, how many `tasks` and
    `units` there were, and whether other programs took part of the CPU, so that `cores` is too
    low."""

    wall_s: float
    tasks: int
    units: int
    contended: bool


@dataclass(frozen=True, slots=True)
class Calibration:
    """How fast a site is, as a calibration job measured at `at` (RFC 3339): the `cores` that its
    engine may use (a CPU quota, and what the engine needs for itself, are off), the `core_speed`
    of one core against that of the reference, the first cloud site (None until that is
    calibrated), and `unit_s`, the CPU seconds for the fixed unit of work."""

    cores: Annotated[float, Shown("cores that its engine may use")]
    core_speed: Annotated[
        float | None, Shown("speed of one core relative to that of the first cloud site")
    ]
    unit_s: Annotated[float, Shown("CPU seconds for a fixed unit of work")]
    at: str
    detail: CalibrationDetail
