"""A binder of somebody else: a broker that is a dictionary in this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from speck.binding import BrokerCapability, Target
from speck.errors import UnreachableError
from speck.model.finding import Finding
from speck.model.measurement import BrokerMeasures
from speck.model.observation import BrokerView, Sent, Taken

BOXES: dict[str, dict[str, set[str]]] = {"tcp://mailbox:1883": {}}
"""Address -> client id -> topics: what a real broker would keep."""


class MailboxBroker:
    """A binder needs no base class: the contract is `speck.binding.MessageBroker`."""

    capabilities = frozenset({BrokerCapability.SESSIONS})

    def __init__(self, target: Target) -> None:
        self._address = target.address
        self._taken: dict[str, Taken] = {}
        self._sent: dict[str, Sent] = {}

    def reach(self) -> str:
        self._sessions()
        return "mailbox 1.0"

    def identify(self, proposed: str | None = None) -> str | None:
        return None  # it keeps nothing, so there is nothing to know it by

    def reserve(
        self, client_id: str, topic: str, *, fresh: bool = False, lost: bool = False
    ) -> bool:
        there = client_id in self._sessions()
        self._sessions().setdefault(client_id, set()).add(topic)
        return there

    def release(self, client_id: str, topic: str, *, last_reader: bool) -> None:
        self._sessions().pop(client_id, None)
        self._taken.pop(client_id, None)

    def confirm_sessions(self, topic: str, client_ids: Iterable[str]) -> bool:
        return all(topic in self._sessions().get(client_id, ()) for client_id in client_ids)

    def mark(self, client_id: str, mark: str) -> bool:
        return False  # its readers know of none

    def announce(self, topic: str, *, readers: bool) -> None:
        self._sessions()

    def view(self, client_ids: Collection[str] | None = None) -> BrokerView:
        boxes = self._sessions().items()
        sessions = frozenset((client_id, topic) for client_id, topics in boxes for topic in topics)
        return BrokerView(taken=self._taken, sent=self._sent, sessions=sessions)

    def forget(self, *sinks: str) -> None:
        for client_id in sinks:
            self._sent.pop(client_id, None)

    def measure(self) -> tuple[BrokerMeasures, BrokerView]:
        return BrokerMeasures(clients=len(self._sessions())), self.view()

    def check(self) -> list[Finding]:
        self._sessions()
        return [
            Finding(
                severity="error",
                setting="persistence",
                found="none",
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
