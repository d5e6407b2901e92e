"""Where a binder connects to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from speck.binding.agent_channel import AgentChannel

MAIN_TIMEOUT_S = 60.0
"""Seconds within which a job's `main` has to return, by default."""


def ignore_request() -> None:
    """Do nothing: what `Target.on_request` is outside fault tests."""


@dataclass(frozen=True, slots=True)
class Target:
    """The address that a binder connects to; without one it has the `agent` of the engine's site
    instead. `credentials` is an existing file or None. A call may take `timeout_s` seconds, one
    that runs a job's `main` `main_timeout_s`.

    A binder may call `on_request` whenever a request that may change something has gone out, before
    it reads the answer: fault tests kill the service at that moment.
    """

    address: str
    credentials: Path | None = None
    timeout_s: float = 10.0
    on_request: Callable[[], None] = ignore_request
    main_timeout_s: float = MAIN_TIMEOUT_S
    agent: AgentChannel | None = None
