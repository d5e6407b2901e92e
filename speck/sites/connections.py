"""Open binders, one for each address, shared by all callers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from speck import failpoints
from speck.binding import (
    MAIN_TIMEOUT_S,
    MessageBroker,
    StreamEngine,
    Target,
    open_broker,
    open_engine,
)
from speck.errors import NotFoundError, PermanentError
from speck.model.site import Site
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
    ):
        self._sites = sites
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._main_timeout_s = main_timeout_s
        self._lock = threading.Lock()
        self._engines: dict[tuple[str, str, str | None], StreamEngine] = {}
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
        """Return the engine of a site, opened if necessary. Raises PermanentError if it is reached
        over https and the site's credentials are missing."""
        spe, broker = self.site(site).spe, self.site(site).broker
        credentials = broker.credentials if spe.address.startswith("https:") else None
        key = (spe.kind, spe.address, credentials)
        with self._lock:
            if key not in self._engines:
                target = Target(
                    spe.address,
                    self._credentials_file(credentials),
                    self._timeout_s,
                    failpoints.hit_after_request,
                    self._main_timeout_s,
                )
                self._engines[key] = open_engine(spe.kind, target)
            return failpoints.wrap(self._engines[key])

    def engine_target(self, site: str) -> tuple[str, Target]:
        """The kind of a site's engine, and how it is reached by a poll. Raises PermanentError, as
        `engine` does."""
        spe, broker = self.site(site).spe, self.site(site).broker
        credentials = broker.credentials if spe.address.startswith("https:") else None
        return spe.kind, Target(spe.address, self._credentials_file(credentials), self._timeout_s)

    def broker_target(self, site: str) -> tuple[str, Target]:
        """The kind of a site's broker, and how it is reached by a poll. Raises PermanentError, as
        `broker` does."""
        broker = self.site(site).broker
        file = self._credentials_file(broker.credentials)
        return broker.kind, Target(broker.address, file, self._timeout_s)

    def broker(self, site: str) -> MessageBroker:
        """Return the broker of a site, opened if necessary. Raises PermanentError if its
        credentials are missing."""
        broker = self.site(site).broker
        key = (broker.kind, broker.address, broker.credentials)
        with self._lock:
            if key not in self._brokers:
                target = Target(
                    broker.address,
                    self._credentials_file(broker.credentials),
                    self._timeout_s,
                    failpoints.hit_after_request,
                )
                self._brokers[key] = open_broker(broker.kind, target)
            return failpoints.wrap(self._brokers[key])

    @contextmanager
    def visit_engine(self, site: Site, timeout_s: float) -> Iterator[StreamEngine]:
        """The engine of a site as it is described, registered or not; closed at the end. Raises
        PermanentError, as `engine` does."""
        is_encrypted = site.spe.address.startswith("https:")
        file = self._credentials_file(site.broker.credentials) if is_encrypted else None
        with closing(open_engine(site.spe.kind, Target(site.spe.address, file, timeout_s))) as it:
            yield it

    @contextmanager
    def visit_broker(self, site: Site, timeout_s: float) -> Iterator[MessageBroker]:
        """The same for its broker."""
        file = self._credentials_file(site.broker.credentials)
        target = Target(site.broker.address, file, timeout_s)
        with closing(open_broker(site.broker.kind, target)) as it:
            yield it

    def secrets(self, site: str, names: Collection[str]) -> dict[str, str]:
        """Read secrets for jobs from the credentials file of a site. Raises SpeckError, naming
        those that are not there."""
        if not names:
            return {}
        credentials = self.site(site).broker.credentials
        file = self._credentials_file(credentials)
        secrets = read_secrets(file) if file is not None else {}
        missing = sorted(set(names) - secrets.keys())
        if missing:
            where = f"the credentials {credentials!r}" if credentials else "no credentials"
            raise PermanentError(
                f"cannot use {{secret:{missing[0]}}} at site {site}: it has {where}"
                f"{' without it' if credentials else ''}; put secret.{missing[0]}=... into the"
                " file of its credentials"
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
        """Return the content of a site's credentials; without any it is empty. Raises
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
