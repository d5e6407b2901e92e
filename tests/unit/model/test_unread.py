"""How many messages wait in a session."""

from __future__ import annotations

import pytest

from speck.model.incarnation import Session
from speck.model.link import Link
from speck.model.observation import BrokerView, Sent, Taken, TakenEpoch
from speck.model.unread import count_unread

LINK = Link("edge-a", "T")
SENT = {"sink": Sent("p", 2, 9, topic="T")}
HANDED_OVER = (TakenEpoch("p", 1, 7), TakenEpoch("p", 2, 6, ((8, 9),)))


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ({}, 9),
        ({"since": (("p", 2, 4),)}, 5),
        ({"owed": (("p", 1, 7),)}, 16),
        ({"skip": HANDED_OVER}, 3),
        ({"skip": HANDED_OVER, "since": (("p", 2, 8),)}, 1),
        ({"skip": HANDED_OVER, "owed": (("p", 1, 7),)}, 3),
        ({"skip": (TakenEpoch("p", 2, 9),)}, 0),
    ],
)
def test_what_was_sent_is_counted_less_what_was_handed_over(
    more: dict[str, object], count: int
) -> None:
    session = Session("reader", LINK, "edge-a", "R", **more)  # type: ignore[arg-type]
    assert count_unread(BrokerView({}, SENT), session, ["sink"]) == count


def test_what_was_handed_over_is_not_asked_of_its_reader_again() -> None:
    """It ran before, and has reported what it had taken then."""
    session = Session("reader", LINK, "edge-a", "R", skip=(TakenEpoch("p", 2, 9),))
    taken = {"reader": Taken(1, {"p": {2: 5}})}
    assert count_unread(BrokerView(taken, SENT), session, ["sink"]) == 0
