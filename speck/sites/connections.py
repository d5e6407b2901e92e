"""Open binders, one for each address, shared by all callers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from speck import failpoints
from speck.binding import (
    MAIN_TIMEOUT_S,
    AgentChannel,
    EnginesBeside,
    MessageBroker,
    StreamEngine,
    Target,
    artifact_kinds,
    open_broker,
    open_engine,
)
from speck.errors import NotFoundError, PermanentError
from speck.model.engines import EngineAt
from speck.model.site import Broker, Engine, Site
from speck.sites.credentials import Credentials, read_credentials, read_secrets


class Connections:
    """Binders of the registered sites, opened when first needed.

    `sites` returns the registered sites; `timeout_s` limits each call, `main_timeout_s` one that
    runs a job's `main`.
    """

    def __init__(
        self,
        sites: Callable[[], Mapping[str, Site]],
        credentials: Path,
        timeout_s: float = 10.0,
        main_timeout_s: float = MAIN_TIMEOUT_S,
        channel: Callable[[str], AgentChannel] | None = None,
    ):
        """`channel` reaches an engine without an address through the agent of its site."""
        self._sites = sites
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._main_timeout_s = main_timeout_s
        self._channel = channel
        self._lock = threading.Lock()
        self._engines: dict[tuple[str, Engine], StreamEngine] = {}
        self._brokers: dict[tuple[str, str, str | None], MessageBroker] = {}

    def site(self, name: str) -> Site:
        """Return the registered site. Raises NotFoundError."""
        site = self._sites().get(name)
        if site is None:
            raise NotFoundError(
                f"cannot find site {name!r}; register it (speck site add, or POST /sites)"
            )
        return site

    def engine(self, site: str) -> StreamEngine:
        """Return the engine of a site, which may be two, opened if necessary. Raises PermanentError
        if its credentials are missing."""
        return failpoints.wrap(self._find_engine(site))

    def _find_engine(self, site: str) -> StreamEngine:
        spe = self.site(site).spe
        key = (site if len(spe.all) > 1 or not spe.address else "", spe)
        with self._lock:
            if key not in self._engines:
                self._engines[key] = self._open_engine(
                    self.site(site),
                    self._timeout_s,
                    on_request=failpoints.hit_after_request,
                    main_timeout_s=self._main_timeout_s,
                )
            return self._engines[key]

    def engine_of(self, where: EngineAt) -> StreamEngine:
        """The engine of a site that takes a kind of artifact, opened if necessary. Raises what
        `engine` raises."""
        engine: object = self._find_engine(where.site)
        if isinstance(engine, EnginesBeside):
            engine = engine.find_taker(where.artifact)
        return failpoints.wrap(cast(StreamEngine, engine))

    def engine_target(self, site: str) -> tuple[str, Target]:
        """The kind of a site's engine, and how it is reached by a poll. Raises PermanentError, as
        `engine` does."""
        described = self.site(site)
        return described.spe.kind, self._engine_target(described, described.spe, self._timeout_s)

    def broker_target(self, site: str) -> tuple[str, Target]:
        """The kind of a site's broker, and how it is reached by a poll. Raises PermanentError, as
        `broker` does."""
        return self.site(site).broker.kind, self._broker_target(self.site(site), self._timeout_s)

    def broker(self, site: str) -> MessageBroker:
        """Return the broker of a site, opened if necessary. Raises PermanentError if its
        credentials are missing."""
        broker = self.site(site).broker
        key = (broker.kind, broker.address, broker.credentials)
        with self._lock:
            if key not in self._brokers:
                target = self._broker_target(self.site(site), self._timeout_s)
                target = replace(target, on_request=failpoints.hit_after_request)
                self._brokers[key] = open_broker(broker.kind, target)
            return failpoints.wrap(self._brokers[key])

    @contextmanager
    def visit_engine(self, site: Site, timeout_s: float) -> Iterator[StreamEngine]:
        """The engine of a site as it is described, registered or not; closed at the end. Raises
        PermanentError, as `engine` does."""
        with closing(self._open_engine(site, timeout_s)) as it:
            yield it

    @contextmanager
    def visit_broker(self, site: Site, timeout_s: float) -> Iterator[MessageBroker]:
        """The same for its broker."""
        with closing(open_broker(site.broker.kind, self._broker_target(site, timeout_s))) as it:
            yield it

    def _open_engine(self, site: Site, timeout_s: float, **options: Any) -> StreamEngine:
        opened = [
            open_engine(each.kind, replace(self._engine_target(site, each, timeout_s), **options))
            for each in site.spe.all
        ]
        if len(opened) == 1:
            return opened[0]
        takes = artifact_kinds(site.spe.kind)
        return cast(StreamEngine, EnginesBeside(opened[0], opened[1], takes))

    def _engine_target(self, site: Site, engine: Engine, timeout_s: float) -> Target:
        file = self._credentials_file(engine.credentials)
        has_agent = not engine.address and self._channel is not None
        agent = self._channel(site.name) if has_agent and self._channel else None
        return Target(engine.address, file, timeout_s, agent=agent)

    def _broker_target(self, site: Site, timeout_s: float) -> Target:
        file = self._credentials_file(site.broker.credentials)
        return Target(site.broker.address, file, timeout_s)

    def secrets(self, site: str, names: Collection[str]) -> dict[str, str]:
        """Read secrets for jobs from the credentials files of a site, that of its engine first.
        Raises SpeckError, naming those that are not there."""
        if not names:
            return {}
        described = self.site(site)
        parts: tuple[Engine | Broker, ...] = (*described.spe.all, described.broker)
        given = [each.credentials for each in parts if each.credentials]
        secrets: dict[str, str] = {}
        for file in map(self._credentials_file, given):
            secrets = {**(read_secrets(file) if file else {}), **secrets}
        missing = sorted(set(names) - secrets.keys())
        if missing:
            where = " and ".join(f"the credentials {name!r}" for name in dict.fromkeys(given))
            raise PermanentError(
                f"cannot use {{secret:{missing[0]}}} at site {site}: it has"
                f" {f'{where} without it' if given else 'no credentials'}; put"
                f" secret.{missing[0]}=... into the file of its credentials"
            )
        return {name: secrets[name] for name in names}

    def _credentials_file(self, name: str | None) -> Path | None:
        if name is None:
            return None
        file = self._credentials / name
        if not file.is_file():
            raise PermanentError(
                f"cannot use credentials {name!r}: no file of that name in {self._credentials}"
            )
        return file

    def credentials(self, site: str) -> Credentials:
        """Return the content of the credentials of a site's broker; without any it is empty. Raises
        PermanentError."""
        broker = self.site(site).broker
        file = self._credentials_file(broker.credentials)
        return read_credentials(file, broker.address) if file else Credentials()

    def close(self) -> None:
        """Close every binder."""
        with self._lock:
            for engine in self._engines.values():
                engine.close()
            for broker in self._brokers.values():
                broker.close()
            self._engines.clear()
            self._brokers.clear()
