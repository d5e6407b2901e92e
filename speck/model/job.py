"""Jobs: as a user describes them, and with every address resolved.

`JobOptions` is the single definition of the options of a job that hold wherever it runs. The
schema of YAML and JSON (`speck.spec.options`), the shape of the API's answers
(`speck.api.shapes`), the stored form (`speck.store.codec`) and the comparison of jobs
(`speck.spec.differences`) are derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, get_origin, get_type_hints

from speck.model.engines import ArtifactKind, EngineAt
from speck.model.link import Link
from speck.model.site import Site


class Delivery(StrEnum):
    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class Compression(StrEnum):
    """The compression of the messages that a job's sink sends."""

    NONE = "none"
    ZSTD = "zstd"


class Upgrade(StrEnum):
    SAVEPOINT = "savepoint"
    STATELESS = "stateless"


class DesiredState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Option:
    """The properties of a field that a user may set.

    `about` is its description in the OpenAPI document. A number must lie between `least` and
    `most`. A change of an option that `restarts` starts another incarnation; the other options
    only control what speck does with the job.
    """

    about: str
    least: int = 0
    most: int = 0
    restarts: bool = True


@dataclass(frozen=True, slots=True)
class Batching:
    """How a job's sink sends records. By default each record is one message, sent at once."""

    batch_records: Annotated[int, Option("most records in one message", 1, 10_000)] = 1
    linger_ms: Annotated[int, Option("how long a record may wait for others", 0, 60_000)] = 0
    compression: Annotated[Compression, Option("of each message")] = Compression.NONE

    @property
    def in_batches(self) -> bool:
        """Whether a message may hold a batch, which only speck's readers can split."""
        return self.batch_records > 1 or self.compression is not Compression.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options of a job; each has a default."""

    args: Annotated[tuple[str, ...], Option("the job's own arguments")] = ()
    parallelism: Annotated[int, Option("of what is between source and sink", 1, 32_768)] = 1
    state: Annotated[
        DesiredState, Option("a stopped job keeps its state and session", restarts=False)
    ] = DesiredState.RUNNING
    delivery: Annotated[Delivery, Option("how often a message arrives")] = Delivery.AT_LEAST_ONCE
    upgrade: Annotated[Upgrade, Option("whether its state outlives an update", restarts=False)] = (
        Upgrade.SAVEPOINT
    )
    pinned: Annotated[bool, Option("placement never moves it", restarts=False)] = False
    stateful: Annotated[
        bool | None, Option("whether it keeps state, if its user knows", restarts=False)
    ] = None
    link: Annotated[Batching, Option("how its sink sends; left out: one by one")] = Batching()
    memory_mb: Annotated[
        int | None, Option("memory of its program; left out: as its engine has it", 16, 1 << 20)
    ] = None

    def options(self) -> dict[str, Any]:
        """The value of each option, by name."""
        return {name: getattr(self, name) for name in OPTIONS}


def options_of(model: type) -> dict[str, tuple[Any, Option]]:
    """Name -> (type, option) of each field of a dataclass that a user may set."""
    return {
        name: (hint.__origin__, hint.__metadata__[0])
        for name, hint in get_type_hints(model, include_extras=True).items()
        if get_origin(hint) is Annotated
    }


OPTIONS = {name: option for name, (_, option) in options_of(JobOptions).items()}


@dataclass(frozen=True, slots=True)
class JobDescription(JobOptions):
    """A job as its user wrote it. Exactly one of `spe_address` and `site` is given. `engine` is the
    kind of engine that the user means, where a site has two."""

    job_name: str
    source_topic: str
    sink_topic: str
    job_path: str
    entry_class: str = ""
    engine: str | None = None
    spe_address: str | None = None
    site: str | None = None
    source_broker: str | None = None
    source_site: str | None = None
    sink_broker: str | None = None
    sink_site: str | None = None


@dataclass(frozen=True, slots=True)
class Job(JobOptions):
    """A job with every reference resolved, as the planner and the binders see it.

    It runs at `site`. `source_broker` and `sink_broker` are the addresses of the links' brokers, as
    an incarnation gets them in its arguments; what it joins are the links, whatever their addresses
    are. `artifact` is the SHA-256 of what lies at `job_path`, of any kind: two are the same if
    their content is.
    """

    job_name: str
    site: str
    source: Link
    sink: Link
    source_broker: str
    sink_broker: str
    entry_class: str
    artifact: str
    artifact_kind: ArtifactKind
    more_sinks: tuple[Link, ...] = ()
    """The further links of its port, at the same broker. Users describe ports of one link."""

    @property
    def engine(self) -> EngineAt:
        """The engine that takes it."""
        return EngineAt(self.site, self.artifact_kind)

    @property
    def source_site(self) -> str:
        return self.source.site

    @property
    def port(self) -> tuple[Link, ...]:
        """The links that its sink writes to. Each has its own sessions, numbers and drains."""
        return (self.sink, *self.more_sinks)

    def with_port(self, port: tuple[Link, ...]) -> Job:
        """The job with another port."""
        return replace(self, sink=port[0], more_sinks=port[1:])

    @property
    def ends(self) -> tuple[Link, tuple[Link, ...]]:
        """Its source and its port: jobs with the same ends take the same records to the same
        links."""
        return self.source, self.port

    @property
    def ways(self) -> tuple[tuple[Link, Link], ...]:
        """From its source to each link of its port."""
        return tuple((self.source, link) for link in self.port)

    @property
    def sink_site(self) -> str:
        return self.sink.site

    @property
    def link_sites(self) -> tuple[str, ...]:
        """The sites whose brokers carry its links."""
        return tuple(dict.fromkeys((self.source.site, *(link.site for link in self.port))))

    def at_addresses_of(self, sites: Mapping[str, Site]) -> Job:
        """The job with the addresses that its brokers have now; those of sites that are gone stay
        as they are."""
        source, sink = sites.get(self.source_site), sites.get(self.sink_site)
        source_broker = source.broker.address if source else self.source_broker
        sink_broker = sink.broker.address if sink else self.sink_broker
        if (source_broker, sink_broker) == (self.source_broker, self.sink_broker):
            return self  # the watch asks at each poll
        return replace(self, source_broker=source_broker, sink_broker=sink_broker)
