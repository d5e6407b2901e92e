"""The kind `kafka`, as its entry point names it. Kafka's client is an extra, and slow to load: it
is imported when a broker is opened."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from binders.kafka.topics import ADDRESSES, CAPABILITIES, topic_fault
from speck.binding import LinkClient, Login, Target
from speck.errors import PermanentError

if TYPE_CHECKING:
    from binders.kafka.broker import KafkaBroker


class KafkaKind:
    """Opens a `KafkaBroker`. Raises PermanentError if Kafka's client is not installed."""

    addresses = ADDRESSES
    capabilities = CAPABILITIES
    topic_fault = staticmethod(topic_fault)

    def __new__(cls, target: Target) -> KafkaBroker:  # type: ignore[misc]
        return _load("broker").KafkaBroker(target)  # type: ignore[no-any-return]

    @staticmethod
    def links(address: str, login: Login | None = None) -> LinkClient:
        """The links of a broker for programs that are no jobs."""
        return _load("links").KafkaLinks(address, login)  # type: ignore[no-any-return]


def _load(module: str) -> Any:
    try:
        return import_module(f"binders.kafka.{module}")
    except ModuleNotFoundError as error:
        if error.name != "kafka":
            raise
        raise PermanentError(
            "cannot use a broker of kind kafka: its client is not installed where this runs; run"
            " pip install 'speck[kafka]'"
        ) from error
