"""Finds the installed binders by kind, and opens them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any, cast

from speck.agent.layout import StateLayout
from speck.binding.artifacts import Artifact, Judgement
from speck.binding.broker import MessageBroker
from speck.binding.capabilities import BROKER_CALLS, ENGINE_CALLS, Guard
from speck.binding.engine import EngineLimits, StreamEngine
from speck.binding.links import LinkClient, Login
from speck.binding.programs import CalibrationProgram
from speck.binding.target import Target
from speck.errors import PermanentError
from speck.model.engines import ArtifactKind
from speck.model.site import DEFAULT_BROKER, Engine

ENGINES = "speck.engines"
BROKERS = "speck.brokers"


@cache
def find_binder(group: str, kind: str) -> Any:
    """The class that is registered for a kind. Raises PermanentError for an unknown one."""
    binders = entry_points(group=group, name=kind)
    if not binders:
        installed = ", ".join(sorted(entry_points(group=group).names)) or "none"
        raise PermanentError(
            f"cannot use kind {kind!r}: no binder of that name in entry points {group!r}"
            f" (installed: {installed}); install one, see docs/binders.md"
        )
    return next(iter(binders)).load()


@cache  # finding them reads the metadata of every installed package: some milliseconds
def kinds(group: str) -> tuple[str, ...]:
    """Return the installed kinds of a group, sorted."""
    return tuple(sorted(entry_points(group=group).names))


def is_simulated(group: str, kind: str) -> bool:
    """Whether binders of a kind simulate a server in this process (their class has the attribute
    `simulated`): what runs there is lost when the service ends."""
    return bool(getattr(find_binder(group, kind), "simulated", False))


def calibration_program(kind: str) -> CalibrationProgram | None:
    """The program that measures engines of a kind (`calibration` of their class); None: there is
    none. Raises PermanentError for an unknown kind."""
    program: CalibrationProgram | None = getattr(find_binder(ENGINES, kind), "calibration", None)
    return program


def state_layout(kind: str) -> StateLayout | None:
    """How engines of a kind lay out their states (`layout` of their class); None: they keep none in
    files. Raises PermanentError for an unknown kind."""
    layout: StateLayout | None = getattr(find_binder(ENGINES, kind), "layout", None)
    return layout


def open_links(kind: str, address: str, login: Login | None = None) -> LinkClient:
    """The links of a broker of `kind` at a normalised address, for programs that are no jobs.
    Raises PermanentError for an unknown kind."""
    client: type[LinkClient] | None = getattr(find_binder(BROKERS, kind), "links", None)
    if client is None:
        raise PermanentError(f"cannot read or write links here: kind {kind} offers no link client")
    return client(address, login)


def artifact_kinds(kind: str) -> frozenset[ArtifactKind]:
    """The kinds of artifacts that engines of a kind take (`artifact_kinds` of their class)."""
    return frozenset(find_binder(ENGINES, kind).artifact_kinds)


def machine_memory_mb(kind: str) -> int | None:
    """The memory in MiB that a machine has to have for engines of a kind (`machine_memory_mb` of
    their class), as it is sold with; None: any does. Raises PermanentError for an unknown kind."""
    memory_mb: int | None = getattr(find_binder(ENGINES, kind), "machine_memory_mb", None)
    return memory_mb


def engine_limits(kind: str) -> EngineLimits:
    """How long engines of a kind may take (`limits` of their class). Raises PermanentError for an
    unknown kind."""
    limits: EngineLimits = getattr(find_binder(ENGINES, kind), "limits", EngineLimits())
    return limits


def has_own_process(kind: str) -> bool:
    """Whether each job of engines of a kind is a process of its own (`own_process` of their class):
    it takes nothing of the memory of another engine. Raises PermanentError for an unknown kind."""
    return bool(getattr(find_binder(ENGINES, kind), "own_process", False))


def find_taker(engine: Engine, artifact: ArtifactKind) -> Engine:
    """The engine of a site that takes a kind of artifact: the site's own, unless only the one
    beside it does."""
    fitting = (each for each in engine.all if artifact in artifact_kinds(each.kind))
    return next(fitting, engine)


def judge_artifact(kind: str, artifact: Artifact, entry: str, *, hint: bool = True) -> Judgement:
    """What the binder of an engine's `kind` says of an artifact (`judge` of its class), without a
    connection; with `hint` a fault names what is like the entry. Raises PermanentError for an
    unknown kind."""
    taken = artifact_kinds(kind)
    if artifact.kind not in taken:
        wanted = " or ".join(sorted(taken)) or "no artifact"
        return Judgement(
            f"the file is of kind {artifact.kind}; an engine of kind {kind} takes {wanted}"
        )
    judge = getattr(find_binder(ENGINES, kind), "judge", None)
    return cast(Judgement, judge(artifact, entry, hint=hint)) if judge else Judgement()


def open_engine(kind: str, target: Target) -> StreamEngine:
    """Open a binder of `kind` for one site's engine. Raises PermanentError for an unknown kind."""
    return cast(StreamEngine, Guard(find_binder(ENGINES, kind)(target), kind, ENGINE_CALLS))


def open_broker(kind: str, target: Target) -> MessageBroker:
    """Open a binder of `kind` for one site's broker. Raises PermanentError for an unknown kind."""
    return cast(MessageBroker, Guard(find_binder(BROKERS, kind)(target), kind, BROKER_CALLS))


def topic_fault(kind: str, topic: str) -> str | None:
    """Why `topic` cannot be the topic of a link at brokers of a kind (`topic_fault` of their
    binder's class); None if it can."""
    fault: str | None = find_binder(BROKERS, kind).topic_fault(topic)
    return fault


def topic_matches(kind: str, topic: str, pattern: str) -> bool:
    """Whether a pattern of topics, as brokers of a kind write them (`topic_matches` of their
    binder's class; without it only a topic itself), fits a topic."""
    matches = getattr(find_binder(BROKERS, kind), "topic_matches", None)
    return topic == pattern if matches is None else bool(matches(topic, pattern))


def any_topic_fault(topic: str) -> str | None:
    """The same for brokers of all installed kinds: None if one of them takes the topic. What the
    default kind says is said first: most topics are its."""
    faults = {kind: topic_fault(kind, topic) for kind in kinds(BROKERS)}
    if not faults or None in faults.values():
        return None
    return faults.get(DEFAULT_BROKER) or next(iter(faults.values()))
