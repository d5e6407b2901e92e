"""The polls of all sites' engines and brokers, shared by everything that shows or watches them."""

from __future__ import annotations

from collections.abc import Callable

from speck.clock import Clock
from speck.model.observation import BrokerView, EngineView
from speck.sites.connections import Connections
from speck.sites.poll_cache import PollCache


class SitePolls:
    """Each engine and broker is asked at most once a second, whoever wants to know, and more
    rarely where many are shown together; see `speck.sites.poll_cache`."""

    def __init__(self, connections: Connections, clock: Clock, touched: Callable[[], float]):
        """`touched`: when (monotonic) speck last asked an engine for something."""
        self.engines: PollCache[EngineView] = PollCache(
            lambda site: connections.engine(site).view(), clock, touched, "engine"
        )
        self.broker_numbers: PollCache[BrokerView] = PollCache(
            lambda site: connections.broker(site).view(), clock, lambda: float("-inf"), "numbers"
        )
        """What brokers report of readers and sinks."""
        self.brokers: PollCache[str] = PollCache(
            lambda site: connections.broker(site).reach(), clock, lambda: float("-inf"), "broker"
        )
        """Whether brokers answer: cheaper than their numbers."""

    def forget(self, site: str) -> None:
        """Know nothing of a site any more."""
        for polls in (self.engines, self.broker_numbers, self.brokers):
            polls.forget(site)

    def close(self) -> None:
        """Begin no further poll."""
        for polls in (self.engines, self.broker_numbers, self.brokers):
            polls.close()
