"""The nouns of speck as frozen dataclasses; no I/O, no defaults that hide a decision.

A user writes *descriptions* (sites by name or by address, brokers left to the site's own);
`speck.resolve` turns them into a `Composition` of `Job`s in which every address is known and
normalised, and every jar is named by its SHA-256. The planner sees only the latter.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
"""The one pattern for names of sites, jobs, compositions, tokens and client ids."""

_NAME = re.compile(NAME_PATTERN)


def is_name(text: str) -> bool:
    """Whether `text` may name a site, job, composition or token."""
    return _NAME.fullmatch(text) is not None


class Tier(StrEnum):
    EDGE = "edge"
    CLOUD = "cloud"


class Delivery(StrEnum):
    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class Compression(StrEnum):
    """Of the messages of a job's sink."""

    NONE = "none"
    ZSTD = "zstd"


class Upgrade(StrEnum):
    SAVEPOINT = "savepoint"
    STATELESS = "stateless"


class Drift(StrEnum):
    """What becomes of a job that does not run as it should, though nobody asked."""

    MEND = "mend"
    REPORT = "report"


class DesiredState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"


_DEFAULT_PORTS = {"http": 80, "https": 443, "tcp": 1883, "mqtt": 1883, "ssl": 8883, "mqtts": 8883}


def normalise_address(address: str) -> str:
    """`address` in the one form in which addresses are compared.

    Lower-case scheme and host, explicit port, no trailing slash: `http://Pi:8081/` ->
    `http://pi:8081`. Raises ValueError when it is no `scheme://host[:port]`.
    """
    parts = urlsplit(address.strip())
    scheme = {"mqtt": "tcp", "mqtts": "ssl"}.get(parts.scheme, parts.scheme)
    if scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError(f"{address!r} is not an address like http://host:8081 or tcp://host:1883")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"{address!r} must hold no user, password, query or fragment")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = parts.port if parts.port is not None else _DEFAULT_PORTS[scheme]
    return f"{scheme}://{host}:{port}{parts.path.rstrip('/')}"


@dataclass(frozen=True, slots=True)
class Engine:
    """How to reach a site's stream engine: entry-point name and normalised address."""

    kind: str
    address: str


@dataclass(frozen=True, slots=True)
class Broker:
    """How to reach a site's broker; `credentials` names a file, it never holds a secret."""

    kind: str
    address: str
    credentials: str | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """A place with one engine and one broker."""

    name: str
    tier: Tier
    spe: Engine
    broker: Broker
    uplink_mbps: float | None = None
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def state_uri(self) -> str | None:
        """Where this site keeps savepoints (label `state_uri`); equal URIs are shared storage."""
        return self.labels.get("state_uri")


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """A (broker, topic): joins the sink of some jobs to the source of others."""

    broker: str
    topic: str

    def __str__(self) -> str:
        return f"{self.broker}/{self.topic}"


MAX_BATCH_RECORDS = 10_000
MAX_LINGER_MS = 60_000


@dataclass(frozen=True, slots=True)
class Sending:
    """How a job's sink sends: at most so many records in one message, how long the first of them
    may wait for others, and whether messages are compressed. One record a message, at once."""

    batch_records: int = 1
    linger_ms: int = 0
    compression: Compression = Compression.NONE

    @property
    def in_batches(self) -> bool:
        """Whether a message may be something that only speck's readers take apart."""
        return self.batch_records > 1 or self.compression is not Compression.NONE


@dataclass(frozen=True, slots=True)
class JobDescription:
    """A job as its user wrote it. Exactly one of `spe_address` and `site` is given.

    `stateful` is the user's word for whether it keeps state, for the analyzer; None: not said.
    """

    job_name: str
    source_topic: str
    sink_topic: str
    entry_class: str
    job_path: str
    spe_address: str | None = None
    site: str | None = None
    source_broker: str | None = None
    source_site: str | None = None
    sink_broker: str | None = None
    sink_site: str | None = None
    args: tuple[str, ...] = ()
    parallelism: int = 1
    state: DesiredState = DesiredState.RUNNING
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    upgrade: Upgrade = Upgrade.SAVEPOINT
    pinned: bool = False
    stateful: bool | None = None
    link: Sending = Sending()

    @property
    def engine_address(self) -> str | None:
        """`spe_address` in the form in which addresses are compared."""
        return normalise_address(self.spe_address) if self.spe_address else None


@dataclass(frozen=True, slots=True)
class Port:
    """A topic that is fed from, or read by, something that is not a job of ours."""

    topic: str
    site: str | None = None
    broker: str | None = None
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class CompositionDescription:
    """A composition as its user wrote it, defaults already applied to the jobs."""

    name: str
    jobs: tuple[JobDescription, ...]
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    requirements: dict[str, float] = field(default_factory=dict)
    drift: Drift = Drift.MEND


@dataclass(frozen=True, slots=True)
class Job:
    """A job with every reference resolved; what the planner and the binders see.

    `site` runs it; `source` and `sink` hold normalised broker addresses; `jar` is the SHA-256
    of the file at `job_path`, and the file's content alone decides whether two are the same.
    """

    job_name: str
    site: str
    spe_address: str
    source: Link
    sink: Link
    source_site: str
    sink_site: str
    entry_class: str
    jar: str
    args: tuple[str, ...] = ()
    parallelism: int = 1
    state: DesiredState = DesiredState.RUNNING
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    upgrade: Upgrade = Upgrade.SAVEPOINT
    pinned: bool = False
    link: Sending = Sending()


@dataclass(frozen=True, slots=True)
class Reader:
    """A session outside speck that is reserved on an output link: `outputs` with client_id."""

    client_id: str
    link: Link
    site: str


@dataclass(frozen=True, slots=True)
class Composition:
    """A resolved composition: what a plan makes true. A job posted alone has name None.

    `inputs` are the links that are declared to be fed from outside speck.
    """

    name: str | None
    jobs: tuple[Job, ...]
    readers: tuple[Reader, ...] = ()
    inputs: tuple[Link, ...] = ()

    def job(self, job_name: str) -> Job | None:
        return next((job for job in self.jobs if job.job_name == job_name), None)


def link_hash(link: Link) -> str:
    """The 8 hex digits that stand for a link in a client id."""
    return hashlib.sha256(f"{link.broker}|{link.topic}".encode()).hexdigest()[:8]


def source_client_id(installation: str, job_name: str, source: Link) -> str:
    """The MQTT client id, and so the session, of a job's reader on one link."""
    return f"speck-{installation[:8]}-{job_name}-{link_hash(source)}"


def sink_client_id(installation: str, job_name: str, source: Link) -> str:
    """The MQTT client id of a job's sink."""
    return source_client_id(installation, job_name, source) + "-out"


def producer_id(installation: str, job_name: str) -> str:
    """The name under which a job's sink numbers its messages; survives a change of link."""
    return f"{installation[:8]}-{job_name}"


def engine_job_id(installation: str, composition: str | None, job_name: str, attempt: int) -> str:
    """The engine's id of one incarnation: 32 hex digits, known before the request is sent."""
    text = "|".join((installation, composition or "", job_name, str(attempt)))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


JsonObject = dict[str, Any]
