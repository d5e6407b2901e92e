"""Which calls belong to which capability; a call without its capability never reaches a binder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NoReturn

from speck.binding.broker import BrokerCapability
from speck.binding.engine import EngineCapability
from speck.errors import BrokerRefusedError, EngineRefusedError

_STATE = (
    *("stop", "save", "save_progress", "checkpoint", "checkpoint_progress", "newest_state"),
    *("checkpointing", "state_folder"),
)
_METRICS = ("metrics", "is_connected", "measure", "job_plan")
ENGINE_CALLS: Mapping[str, StrEnum] = {
    **dict.fromkeys(_STATE, EngineCapability.STATE),
    **dict.fromkeys(("try_main",), EngineCapability.TRIAL),
    **dict.fromkeys(("resend",), EngineCapability.RESEND),
    **dict.fromkeys(_METRICS, EngineCapability.METRICS),
}
BROKER_CALLS: Mapping[str, StrEnum] = {
    **dict.fromkeys(("announce", "confirm_sessions", "forget"), BrokerCapability.REPORTS),
    "mark": BrokerCapability.MARKS,
    "measure": BrokerCapability.METRICS,
}


class Guard:
    """A binder whose calls are refused that it does not offer; it need not even have them."""

    def __init__(self, binder: Any, kind: str, calls: Mapping[str, StrEnum]):
        self._binder = binder
        self._kind = kind
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        capability = self._calls.get(name)
        if capability is None or capability in self._binder.capabilities:
            return getattr(self._binder, name)
        return _refuse(self._calls is ENGINE_CALLS, self._kind, name, capability)


def _refuse(is_engine: bool, kind: str, call: str, missing: StrEnum) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        error = EngineRefusedError if is_engine else BrokerRefusedError
        noun = "an engine" if is_engine else "a broker"
        raise error(f"cannot do {call!r}: {noun} of kind {kind} has no capability `{missing}`")

    return refuse
