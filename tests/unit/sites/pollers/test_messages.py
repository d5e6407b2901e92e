"""What the service and a poller say to each other."""

from __future__ import annotations

import socket

import pytest

from speck.binding import EnginePoll, Target
from speck.errors import (
    BrokerRefusedError,
    PermanentError,
    SpeckError,
    TransientError,
    UnreachableError,
)
from speck.model.observation import EngineJob, EngineView, RunState, Slots
from speck.sites.pollers.messages import Failure, Inbox, PollRequest, Reply, pack

REQUEST = PollRequest(
    7, EnginePoll.MEASURE, "flink", Target("http://a:8081", timeout_s=3.0), ("1",)
)
VIEW = EngineView("2.3", Slots(4, 3), {"1": EngineJob("1", "A", RunState.RUNNING, 1, 1)})


def test_messages_come_as_they_were_sent_however_they_are_cut() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        inbox = Inbox(theirs)
        sent = pack(REQUEST) + pack(Reply(7, VIEW))
        ours.sendall(sent[:3])
        ours.sendall(sent[3:])
        assert inbox.receive() == REQUEST
        assert inbox.receive() == Reply(7, VIEW)


@pytest.mark.parametrize("length", [0, 2, 4, 20])
def test_a_message_that_is_cut_off_is_the_end(length: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(pack(REQUEST)[:length])
        ours.close()
        assert Inbox(theirs).receive() is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnreachableError("cannot reach a"), UnreachableError),
        (TransientError("cannot poll a"), TransientError),
        (BrokerRefusedError("cannot poll a"), PermanentError),
    ],
)
def test_a_failure_becomes_an_error_of_the_same_root(
    error: SpeckError, kind: type[SpeckError]
) -> None:
    again = Failure.of(error).error()
    assert type(again) is kind
    assert str(again) == str(error)


def test_a_fault_of_our_own_is_no_speck_error() -> None:
    assert type(Failure(None, "x").error()) is RuntimeError
