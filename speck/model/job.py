"""Jobs: as a user describes them, and with every address resolved."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from speck.model.link import Link
from speck.model.site import normalise_address


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


class DesiredState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"


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
