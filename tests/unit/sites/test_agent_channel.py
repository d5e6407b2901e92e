"""What the service knows of an engine that only the agent of its site reaches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from speck.errors import PermanentError, TransientError, UnreachableError
from speck.sites.agent_channel import SiteChannel
from speck.sites.agent_commands import SILENT_S, AgentCommands
from tests.waiting import wait_for
from tests.watching import Time


class Agent:
    """One that has called just now, and answers what a test wants."""

    def __init__(self) -> None:
        self.time = Time()
        self.commands = AgentCommands(self.time)
        self.channel = SiteChannel("edge-a", self.commands, self.time, timeout_s=30.0)
        self.commands.hear("edge-a")

    def find(self, kind: str) -> str | None:
        return next((c.id for c in self.commands.open("edge-a", [], 0) if c.kind == kind), None)

    def answer(self, kind: str, **body: Any) -> None:
        identity = wait_for(lambda: self.find(kind), f"a command to {kind}")
        self.commands.answer("edge-a", identity, body)

    def push(self, status: Any, age_s: float = 0.0, **more: Any) -> None:
        self.answer("watch", state="working", status=status, age_s=age_s, **more)


@pytest.fixture
def agent() -> Iterator[Agent]:
    agent = Agent()
    yield agent
    agent.channel.close()
    assert agent.find("watch") is None


def test_the_newest_status_is_known_without_a_request(agent: Agent) -> None:
    first = threading.Thread(target=lambda: agent.push({"turn": 1}))
    first.start()
    assert agent.channel.status() == {"turn": 1}, "it waits for the first one"
    first.join()
    agent.push({"turn": 2})
    assert agent.channel.status() == {"turn": 2}


@pytest.mark.parametrize("late_s", ["when it came", "since then"])
def test_nothing_is_concluded_from_an_old_status(agent: Agent, late_s: str) -> None:
    threading.Thread(target=lambda: agent.push({})).start()
    assert agent.channel.status() == {}
    agent.push({"turn": 1}, SILENT_S - 1.0)
    assert agent.channel.status() == {"turn": 1}
    if late_s == "since then":
        agent.time.passed += 1.5
    else:
        agent.push({"turn": 1}, SILENT_S + 1.0)
    with pytest.raises(UnreachableError, match=r"its status is 1\d s old"):
        agent.channel.status()
    agent.push({"turn": 2})
    assert agent.channel.status() == {"turn": 2}


def test_what_the_agent_cannot_read_is_told(agent: Agent) -> None:
    threading.Thread(target=lambda: agent.push(None, problem="cannot read it: too large")).start()
    with pytest.raises(UnreachableError, match="cannot read it: too large"):
        agent.channel.status()
    agent.push({"turn": 1})
    assert agent.channel.status() == {"turn": 1}


def test_a_watch_that_has_ended_is_begun_again(agent: Agent) -> None:
    threading.Thread(target=lambda: agent.push({"turn": 1})).start()
    agent.channel.status()
    agent.answer("watch", state="failed", error="cannot watch: OSError()", again=True)
    agent.channel.status()
    agent.push({"turn": 2})
    assert agent.channel.status() == {"turn": 2}


@pytest.mark.parametrize(("again", "error"), [(True, TransientError), (False, PermanentError)])
def test_an_order_that_fails_says_whether_it_may_be_repeated(
    agent: Agent, again: bool, error: type[Exception]
) -> None:
    body = {"state": "failed", "error": "cannot do it", "again": again}
    threading.Thread(target=lambda: agent.answer("order", **body)).start()
    with pytest.raises(error, match="cannot do it"):
        agent.channel.order({"do": "burn"})


def test_an_order_without_an_answer_is_withdrawn(agent: Agent) -> None:
    hasty = SiteChannel("edge-a", agent.commands, agent.time, timeout_s=0.01)
    with pytest.raises(UnreachableError, match="no answer to 'order'"):
        hasty.order({"do": "burn"})
    assert agent.find("order") is None
    agent.time.passed += SILENT_S + 1.0
    with pytest.raises(UnreachableError, match="it is silent"):
        hasty.order({"do": "burn"})
