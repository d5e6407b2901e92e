"""What the use cases stand on: the store, how sites are reached, and what is known of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from speck.binding import StateKeeper
from speck.clock import Clock
from speck.config import Config
from speck.deploy.changes import Changes
from speck.deploy.scheduler import Scheduler
from speck.errors import ConflictError, StoreWriteError
from speck.metrics.dataset.files import claim
from speck.metrics.dataset.opening import open_storage
from speck.metrics.dataset.writer import Writer
from speck.metrics.recorder import Recorder
from speck.monitor.board import Board
from speck.monitor.job_states import JobStates
from speck.periodic import PeriodicTask
from speck.service.agents import Agents
from speck.service.job_list import JobList
from speck.service.legs import Legs
from speck.service.links import Links
from speck.service.own_site import OwnSite
from speck.service.sites import Sites
from speck.service.status import StatusViews
from speck.service.tokens import Tokens
from speck.service.uploads import Uploads
from speck.sites.agent_channel import SiteChannels
from speck.sites.connections import Connections
from speck.sites.identities import Identities
from speck.sites.networks import SiteNetworks
from speck.sites.poll_scheduler import PollScheduler
from speck.sites.pollers.polling import Polling
from speck.sites.site_polls import SitePolls
from speck.store.artifacts import Artifacts
from speck.store.audit import Audit
from speck.store.audit_seal import StoredSeal
from speck.store.location import StoreLocation
from speck.store.records import Records

LOG = logging.getLogger(__name__)

COLLECT_S = 3600.0
"""Seconds between two collections of artifacts that nothing uses."""


class Foundation:
    """Opened first and closed last."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        keeper: StateKeeper | None,
        location: Callable[[Path], StoreLocation],
        scheduler: Scheduler,
        on_store_failure: Callable[[StoreWriteError], None] | None,
    ):
        self.config = config
        self.closing = threading.Event()
        """Set once it is being closed."""
        self.clock = clock
        self._scheduler = scheduler
        self._own_keeper = keeper
        self._open_store(location, on_store_failure)

    def _make_parts(self) -> None:
        """Make every part, each after those that it is given: later there are many threads."""
        for each in type(self).__mro__:
            for name, part in vars(each).items():
                if isinstance(part, cached_property):
                    getattr(self, name)

    def _open_store(
        self,
        location: Callable[[Path], StoreLocation],
        on_failure: Callable[[StoreWriteError], None] | None,
    ) -> None:
        """What lasts: the store, the dataset of metrics, artifacts, the audit log."""
        config = self.config
        config.home.mkdir(parents=True, exist_ok=True)
        self.storage = open_storage(config.metrics_uri or f"file:{config.metrics}", config.metrics)
        self.records = Records.open(
            config.store, self.clock, location=location, on_failure=on_failure
        )
        if config.metrics_uri:
            self._claim_metrics()
        self.recorder = Recorder(
            self.records,
            self.clock,
            Writer(self.storage, clock=self.clock),
            config.metrics_days,
        )
        self.artifacts = Artifacts(config, self.records, self.clock)
        self.audit = Audit(config.audit, self.clock, keeper=StoredSeal(self.records))
        self.tokens = Tokens(self.records, self.clock, config.last_uses)

    def _claim_metrics(self) -> None:
        """Raises ConflictError if another service keeps its metrics at the same place."""
        try:
            claim(self.storage, self.records.installation)
        except OSError as error:
            LOG.warning("cannot reach %s: %s", self.storage, error)
        except ConflictError:
            self.records.store.close()
            raise

    @cached_property
    def _channels(self) -> SiteChannels:
        return SiteChannels(self.clock)

    @cached_property
    def connections(self) -> Connections:
        return Connections(
            self.records.sites.all,
            self.config.credentials,
            self.config.timeout_s,
            self.config.main_timeout_s,
            self._channels.of,
        )

    @cached_property
    def agents(self) -> Agents:
        return Agents(
            self.records,
            self.records.sites.all,
            self.clock,
            lambda engine: self.connections.engine_of(engine).state_folder(),
            self._channels,
        )

    @cached_property
    def keeper(self) -> StateKeeper:
        return self._own_keeper or self.agents

    @cached_property
    def identities(self) -> Identities:
        return Identities(self.records, self.connections, self.clock)

    @cached_property
    def uploads(self) -> Uploads:
        return Uploads(self.records, self.connections, self.artifacts)

    @cached_property
    def links(self) -> Links:
        return Links(self.connections, self.closing)

    @cached_property
    def collector(self) -> PeriodicTask:
        return PeriodicTask(
            "artifacts", self._collect_artifacts, COLLECT_S, self.clock, waits_first=True
        )

    @cached_property
    def changes(self) -> Changes:
        return Changes(self.records, self.clock, self._scheduler)

    @cached_property
    def polling(self) -> Polling:
        return Polling(
            self.connections,
            lambda: len(self.records.sites.all()),
            self.config.pollers,
            self.config.poller_sites,
        )

    @cached_property
    def scheduler(self) -> PollScheduler:
        return PollScheduler(self.clock, lambda: self.polling.apart)

    @cached_property
    def polls(self) -> SitePolls:
        return SitePolls(
            self.polling,
            self.scheduler,
            self.clock,
            lambda: self.changes.touched,
            self.records.sites.all,
        )

    @cached_property
    def board(self) -> Board:
        return Board(self.polls)

    @cached_property
    def states(self) -> JobStates:
        return JobStates(self.records, self.changes, self.board)

    @cached_property
    def status(self) -> StatusViews:
        return StatusViews(self.records, self.states, self.polls, self.board)

    @cached_property
    def _job_list(self) -> JobList:
        return JobList(self.records, self.status, self.polls)

    @cached_property
    def sites(self) -> Sites:
        return Sites(
            self.records,
            self.connections,
            self.status,
            self.polls,
            self.changes,
            self.agents,
            OwnSite(SiteNetworks(self.config.site_networks, self.config.site_state_uris)),
            Legs(self.config, self.connections, self.agents, self.clock),
            self.identities,
            simulated=self.config.simulated,
        )

    def _collect_artifacts(self) -> None:
        self.artifacts.collect()
        self.uploads.collect()

    def close(self) -> None:
        """Give back everything."""
        self.closing.set()
        self.collector.stop(0.0)
        self.polls.close()
        self.scheduler.close()
        self.polling.close()
        self.connections.close()
        self.audit.close()
        self.records.store.close()
