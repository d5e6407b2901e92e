"""A binder of somebody else: a broker that is a dictionary in this process."""

from __future__ import annotations

from collections.abc import Collection

from speck.binding import AddressRules, BrokerCapability, Reservation, Scheme, Target
from speck.errors import UnreachableError
from speck.model.finding import Finding
from speck.model.observation import BrokerView, Position, Taken

BOXES: dict[str, dict[str, set[str]]] = {"box://mailbox:25": {}}
"""Address -> reader -> topics: what a real broker would keep."""


class MailboxBroker:
    """A binder needs no base class: the contract is `speck.binding.MessageBroker`."""

    capabilities = frozenset({BrokerCapability.SESSIONS})
    addresses = AddressRules({"box": Scheme(25)}, "box://host:25")

    @staticmethod
    def topic_fault(topic: str) -> str | None:
        return None if topic.isalnum() else "is no name of a box: letters and digits"

    def __init__(self, target: Target) -> None:
        self._address = target.address
        self._taken: dict[str, Taken] = {}

    def reach(self) -> str:
        self._sessions()
        return "mailbox 1.0"

    def identify(self, proposed: str | None = None) -> str | None:
        return None  # it keeps nothing, so there is nothing to know it by

    def reserve(
        self,
        reader: str,
        topic: str,
        *,
        fresh: bool = False,
        first: bool = False,
        lost: bool = False,
        at: Position | None = None,
    ) -> Reservation:
        there = reader in self._sessions()
        self._sessions().setdefault(reader, set()).add(topic)
        return Reservation(there)

    def release(self, reader: str, topic: str, *, last_reader: bool) -> None:
        self._sessions().pop(reader, None)
        self._taken.pop(reader, None)

    def view(self, clients: Collection[str] | None = None) -> BrokerView:
        boxes = self._sessions().items()
        sessions = frozenset((reader, topic) for reader, topics in boxes for topic in topics)
        return BrokerView(taken=self._taken, sent={}, sessions=sessions)

    def check(self) -> list[Finding]:
        self._sessions()
        return [
            Finding(
                severity="error",
                setting="persistence",
                value="none",
                why="a restart loses every session",
                mend="use another broker",
            )
        ]

    def close(self) -> None:
        pass

    def _sessions(self) -> dict[str, set[str]]:
        try:
            return BOXES[self._address]
        except KeyError as error:
            raise UnreachableError(f"cannot reach the mailbox at {self._address}") from error
