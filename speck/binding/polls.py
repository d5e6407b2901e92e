"""Calls that are made again and again for all sites: in other processes if there are many."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from speck.binding.broker import BrokerCapability, MessageBroker
from speck.binding.engine import EngineCapability, StreamEngine
from speck.model.measurement import BrokerMeasures, EngineMeasures


class EnginePoll(StrEnum):
    """What an engine is polled for again and again."""

    VIEW = "view"
    CHECKPOINTING = "checkpointing"
    MEASURE = "measure"
    JOB_PLAN = "job plan"


class BrokerPoll(StrEnum):
    """What a broker is polled for again and again."""

    VIEW = "view"
    REACH = "reach"
    MEASURE = "measure"


def poll_engine(engine: StreamEngine, what: EnginePoll, job_ids: Sequence[str]) -> Any:
    """The result of the call of the same name; that of `checkpointing` for each of `job_ids` that
    the engine knows, that of `job_plan` for the only one. Without the capability it is empty."""
    match what:
        case EnginePoll.VIEW:
            return engine.view()
        case EnginePoll.MEASURE | EnginePoll.JOB_PLAN if (
            EngineCapability.METRICS not in engine.capabilities
        ):
            return EngineMeasures() if what is EnginePoll.MEASURE else ()
        case EnginePoll.MEASURE:
            return engine.measure(job_ids)
        case EnginePoll.JOB_PLAN:
            return engine.job_plan(job_ids[0])
        case EnginePoll.CHECKPOINTING if EngineCapability.STATE not in engine.capabilities:
            return {}
        case EnginePoll.CHECKPOINTING:
            answers = {job_id: engine.checkpointing(job_id) for job_id in job_ids}
            return {job_id: answer for job_id, answer in answers.items() if answer is not None}


def poll_broker(broker: MessageBroker, what: BrokerPoll) -> Any:
    """The result of the call of the same name."""
    match what:
        case BrokerPoll.VIEW:
            return broker.view()
        case BrokerPoll.REACH:
            return broker.reach()
        case BrokerPoll.MEASURE if BrokerCapability.METRICS not in broker.capabilities:
            return BrokerMeasures(), broker.view()
        case BrokerPoll.MEASURE:
            return broker.measure()
