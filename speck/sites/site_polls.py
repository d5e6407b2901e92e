"""The polls of all sites' engines and brokers, shared by all that show or watch them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Set
from typing import Any

from speck.binding import BrokerPoll, EnginePoll
from speck.clock import Clock
from speck.model.observation import BrokerView, EngineView
from speck.sites.poll_cache import FRESH_S, Poll, PollCache, fresh_for
from speck.sites.poll_scheduler import PollScheduler
from speck.sites.pollers.polling import Polling

_BRIDGES_S = 60.0
"""The greatest age of what is known of bridges: they are part of brokers' settings."""


class SitePolls:
    """Polls each engine and broker at most once a second for callers, however many there are, and
    less often when many sites are read together; see `speck.sites.poll_cache`."""

    def __init__(
        self,
        polling: Polling,
        scheduler: PollScheduler,
        clock: Clock,
        last_change: Callable[[], float],
        all_sites: Callable[[], Collection[str]] = tuple,
    ):
        """`last_change` returns the monotonic time of speck's last request that changed an engine,
        `all_sites` the names of the registered sites."""
        self.polling = polling
        self.scheduler = scheduler
        self._all_sites = all_sites
        self.engines: PollCache[EngineView] = PollCache(
            lambda site: polling.engine(site, EnginePoll.VIEW),
            clock,
            last_change,
            "engine",
            scheduler,
        )
        self.broker_numbers: PollCache[BrokerView] = PollCache(
            lambda site: polling.broker(site, BrokerPoll.VIEW),
            clock,
            lambda: float("-inf"),
            "numbers",
            scheduler,
        )
        """The numbers of readers and sinks at brokers."""
        self.brokers: PollCache[str] = PollCache(
            lambda site: polling.broker(site, BrokerPoll.REACH),
            clock,
            lambda: float("-inf"),
            "broker",
            scheduler,
        )
        """Whether brokers answer; cheaper than reading their numbers."""

    def find_bridges(self, sites: Set[str]) -> dict[str, frozenset[str]]:
        """The names of the bridges of these sites' brokers, and of all others that were polled
        lately; brokers that do not answer are left out. Without `sites` no broker is asked."""
        polls = self.broker_numbers.poll(sites, fresh_s=_BRIDGES_S)
        polls |= self.broker_numbers.find_fresh(self._all_sites(), _BRIDGES_S)
        return {site: poll.answer.bridges for site, poll in polls.items() if poll.answer}

    def refresh(self, sites: Set[str]) -> None:
        """Poll the engines of sites now, and wait for them, but not long for slow ones. Of many
        sites, polls that somebody else made lately suffice."""
        fresh_s = fresh_for(len(sites))
        self.engines.poll(sites, fresh_s, anew=fresh_s <= FRESH_S)

    def refresh_unknown(self, sites: Set[str]) -> None:
        """The same of those that were never polled."""
        if unknown := {site for site in sites if self.engines.last(site) is None}:
            self.refresh(unknown)

    def refresh_all(self, sites: Set[str]) -> None:
        """Like `refresh`, of engines and brokers. Where the numbers of a broker could not be read,
        they are tried again: it may accept connections, and answer nothing else."""
        fresh_s = fresh_for(len(sites))
        anew = fresh_s <= FRESH_S
        mute = {name for name in sites if (p := self.broker_numbers.last(name)) and p.error}
        others = sites - mute
        if not anew:
            others -= self.broker_numbers.find_fresh(others, fresh_s).keys()
        wanted: list[tuple[PollCache[Any], Set[str]]] = [
            (self.engines, sites),
            (self.brokers, others),
            (self.broker_numbers, mute),
        ]
        asked = [(polls, polls.ask(some, fresh_s, anew=anew)) for polls, some in wanted]
        for polls, each in asked:
            polls.wait(each)

    def last_of_broker(self, site: str) -> Poll[Any] | None:
        """The last poll of a site's broker, however old; one whose numbers cannot be read does not
        answer, though it may accept connections."""
        numbers: Poll[Any] | None = self.broker_numbers.last(site)
        reached: Poll[Any] | None = self.brokers.last(site)
        if numbers is None or reached is None:
            return numbers or reached
        if numbers.error is not None:
            return numbers
        return max((numbers, reached), key=lambda poll: poll.begun)

    def forget(self, site: str) -> None:
        """Drop the polls of a site."""
        for polls in (self.engines, self.broker_numbers, self.brokers):
            polls.forget(site)

    def keep_only(self, sites: Container[str]) -> None:
        """Drop the polls of all other sites."""
        for polls in (self.engines, self.broker_numbers, self.brokers):
            polls.keep_only(sites)
        self.scheduler.keep_only(sites)

    def close(self) -> None:
        """Begin no further poll."""
        for polls in (self.engines, self.broker_numbers, self.brokers):
            polls.close()
