"""The contracts of engines and brokers, and the functions that open their binders.

A binder is a class that is registered as an entry point of group `speck.engines` or
`speck.brokers`. The name of the entry point is the `kind` of a site's `spe` or `broker`. speck
never imports `binders`. docs/binders.md shows how to add a binder. Begin with `engine` and
`broker`. Imports `speck.model` and errors, layouts of states, which agents are sent
(`speck.agent.layout`), and contexts of TLS for the clients of links.
"""

from speck.agent.layout import StateLayout, StatePlace
from speck.binding.addresses import (
    AddressRules,
    address_rules,
    is_encrypted,
    kind_of_address,
    merged_rules,
    normalise_address,
)
from speck.binding.agent_channel import AgentChannel
from speck.binding.artifacts import Artifact, Judgement
from speck.binding.beside import EnginesBeside
from speck.binding.broker import BrokerCapability, MessageBroker, Reservation
from speck.binding.engine import (
    EngineCapability,
    EngineEnd,
    EngineLimits,
    JobException,
    StreamEngine,
    Submission,
    Trial,
    Upload,
)
from speck.binding.links import (
    LinkClient,
    LinkReader,
    LinkWriter,
    Login,
    Outgoing,
    WriterOptions,
)
from speck.binding.polls import BrokerPoll, EnginePoll, poll_broker, poll_engine
from speck.binding.programs import CalibrationProgram
from speck.binding.registry import (
    BROKERS,
    ENGINES,
    any_topic_fault,
    artifact_kinds,
    calibration_program,
    engine_limits,
    find_taker,
    has_own_process,
    is_simulated,
    judge_artifact,
    kinds,
    machine_memory_mb,
    open_broker,
    open_engine,
    open_links,
    state_layout,
    topic_fault,
    topic_matches,
)
from speck.binding.states import (
    Checkpointing,
    SavedState,
    SaveProgress,
    StateKeeper,
    Transfer,
    TransferProgress,
)
from speck.binding.target import MAIN_TIMEOUT_S, Target, ignore_request
from speck.model.addresses import Scheme
from speck.model.engines import ArtifactKind

__all__ = [
    "BROKERS",
    "ENGINES",
    "MAIN_TIMEOUT_S",
    "AddressRules",
    "AgentChannel",
    "Artifact",
    "ArtifactKind",
    "BrokerCapability",
    "BrokerPoll",
    "CalibrationProgram",
    "Checkpointing",
    "EngineCapability",
    "EngineEnd",
    "EngineLimits",
    "EnginePoll",
    "EnginesBeside",
    "JobException",
    "Judgement",
    "LinkClient",
    "LinkReader",
    "LinkWriter",
    "Login",
    "MessageBroker",
    "Outgoing",
    "Reservation",
    "SaveProgress",
    "SavedState",
    "Scheme",
    "StateKeeper",
    "StateLayout",
    "StatePlace",
    "StreamEngine",
    "Submission",
    "Target",
    "Transfer",
    "TransferProgress",
    "Trial",
    "Upload",
    "WriterOptions",
    "address_rules",
    "any_topic_fault",
    "artifact_kinds",
    "calibration_program",
    "engine_limits",
    "find_taker",
    "has_own_process",
    "ignore_request",
    "is_encrypted",
    "is_simulated",
    "judge_artifact",
    "kind_of_address",
    "kinds",
    "machine_memory_mb",
    "merged_rules",
    "normalise_address",
    "open_broker",
    "open_engine",
    "open_links",
    "poll_broker",
    "poll_engine",
    "state_layout",
    "topic_fault",
    "topic_matches",
]
