"""The processes of a fog's sites, a broker, an engine and an agent each, and what they get."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from speck.fog import flink, kafka, mosquitto
from speck.fog.flink_conf import FlinkSettings
from speck.fog.links import Links
from speck.fog.paths import edge_jar
from speck.fog.process import Command, Process, stop_all
from speck.fog.site_record import KAFKA, SiteRecord
from speck.fog.state import FogState
from speck.runner.ending import end_programs
from speck.tls.identity import CREDENTIALS, SERVICE, Identity, issue_all

_CONNECTOR = "speck-flink-connector.jar"
_RUNTIME = "speck-runtime.jar"
_SPARK = "speck-spark-connector.jar"
_GUARD = "speck-exit-guard.jar"
_START_S = 90.0  # of an engine on a whole core
_TOKEN = "token"
RUNNER = "runner"


class SiteProcesses(Links):
    """The part of a fog that starts what is missing at its sites."""

    def state_folder(self, site: str) -> Path:
        """The folder of a site's checkpoints and savepoints; the same for all when shared."""
        state = self._file.load()
        return self._state_folder(site, shared=state is None or state.shared)

    def _state_folder(self, site: str, *, shared: bool) -> Path:
        return self.folder / "state" if shared else self.folder / "state" / site

    def _start(self, sites: Iterable[SiteRecord], progress: Callable[[str], object] | None) -> None:
        """Start missing processes at the sites, as many sites at a time as there are cores."""
        jars = self._copy_jars()
        before = {process.pid for process in self._running()}
        self._launching = True
        pool = ThreadPoolExecutor(max(2, os.cpu_count() or 2))
        try:
            self._build_network()
            futures = {pool.submit(self._start_site, site, jars): site.name for site in sites}
            for future in as_completed(futures):
                future.result()
                if progress:
                    progress(futures[future])
        except BaseException:
            with self._guard:
                self._launching = False
            stop_all((p for p in self._running() if p.pid not in before), 0.0)
            if not before:
                self._network.remove()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _start_site(self, site: SiteRecord, jars: dict[str, Path]) -> None:
        state = self._load()
        folder = self.folder / "sites" / site.name
        running = state.of(site.name)

        def launch(command: Command) -> Process:
            return self._launch(site.name, command)

        def launch_engine(command: Command) -> Process:
            return self._launch(site.name, command, site.speed)

        self._start_agent(site, running)
        self._start_runner(site, running)
        for what in ("agent", RUNNER):
            running.pop(what, None)
        if running.pop("broker", None) is None:
            start_broker = kafka.start if site.broker == KAFKA else mosquitto.start
            start_broker(
                folder / "broker",
                host=site.host,
                port=site.broker_port,
                tls=identity_of(state, site.name),
                launch=launch,
            )
        settings = FlinkSettings(
            folder=folder / "engine",
            state=self._state_folder(site.name, shared=state.shared),
            slots=site.slots,
            runtime=state.runtime,
            host=site.host,
            port=site.engine_port,
            class_path=[jars[_CONNECTOR]],
            runtime_jar=jars.get(_RUNTIME),
            guard_jar=jars[_GUARD],
            checkpoint_interval_s=state.checkpoint_interval_s,
            credentials=self._job_credentials(site.name),
            tls=identity_of(state, site.name),
        )
        patience_s = _START_S / min(1.0, site.speed or 1.0)
        flink.start(settings, running=running, launch=launch_engine, timeout_s=patience_s)

    def _start_agent(self, site: SiteRecord, running: Mapping[str, Process]) -> None:
        """Start the site's agent unless it runs; the agent itself waits for engine and service."""
        state = self._load()
        if state.shared or state.service is None or "agent" in running:
            return
        folder = self.folder / "sites" / site.name / "agent"
        folder.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-m", "speck.cli", "agent", "--site", site.name]
        argv += ["--service", self._service_for_agents(state), "--engine", site.engine_address]
        argv += ["--state-folder", str(self._state_folder(site.name, shared=False))]
        argv += ["--listen", f"{site.host}:{site.agent_port}"]
        if (identity := identity_of(state, site.name)) is not None:
            argv += identity.agent_options()
        token = folder / _TOKEN
        if token.exists():
            argv += ["--token-file", str(token)]
        self._launch(site.name, Command("agent", argv, folder, folder / "agent.log"))

    def _start_runner(self, site: SiteRecord, running: Mapping[str, Process]) -> None:
        """Start the site's runner of programs beside its agent, unless it runs."""
        state = self._load()
        if not state.has_runner(site) or RUNNER in running:
            return
        folder = self.folder / "sites" / site.name / RUNNER
        folder.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-m", "speck.cli", "runner"]
        argv += ["--state-folder", str(self._state_folder(site.name, shared=False))]
        if state.runs_spark(site):
            argv += ["--spark-jar", str(self.folder / "lib" / _SPARK)]
        if os.geteuid() == 0:  # a fog is one user's
            argv += ["--as", "root"]
        if (credentials := self._job_credentials(site.name)) is not None:
            argv += ["--credentials", str(credentials)]
        self._launch(site.name, Command(RUNNER, argv, folder, folder / "runner.log"))

    def _end_programs(self) -> int:
        """End the programs of all sites, which outlive their runners."""
        state = self._file.load()
        if state is None:
            return 0
        sites = (site for site in state.sites if state.has_runner(site))
        folders = (self._state_folder(site.name, shared=False) for site in sites)
        return sum(end_programs(folder) for folder in folders)

    def write_credentials(self, folder: Path) -> None:
        """Write the credentials that the bodies of `site_bodies` name into the folder of a service;
        nothing for a fog without TLS."""
        state = self._file.load()
        if state is not None and state.authority is not None:
            Identity(Path(state.authority), SERVICE).write_credentials(
                folder / CREDENTIALS, _addresses(state.sites)
            )

    def _issue_certificates(self) -> None:
        """Issue certificates to sites of which nothing runs yet."""
        state = self._load()
        if state.authority is None or self._running():
            return
        folder = Path(state.authority)
        issue_all(folder, {site.name: site.host for site in state.sites})
        for site in state.sites:
            Identity.of_site(folder, site.name).write_credentials(
                self.folder / "sites" / site.name / "credentials" / CREDENTIALS,
                _addresses(state.sites),
            )

    def _job_credentials(self, site: str) -> Path | None:
        state = self._load()
        if state.authority is not None:
            return self.folder / "sites" / site / "credentials"
        return Path(state.credentials) if state.credentials else None

    def _write_token(self, site: str, secret: str) -> None:
        folder = self.folder / "sites" / site / "agent"
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f"{_TOKEN}.new"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secret)
        fresh.replace(folder / _TOKEN)

    def _copy_jars(self) -> dict[str, Path]:
        """Copy our jars: a build must not replace a jar that a running JVM reads."""
        state = self._load()
        names = [_CONNECTOR, _GUARD]
        if state.runtime == "single":
            names.append(_RUNTIME)
        if state.spark:
            names.append(_SPARK)
        lib = self.folder / "lib"
        lib.mkdir(parents=True, exist_ok=True)
        for name in names:
            fresh = lib / f"{name}.new"
            shutil.copyfile(edge_jar(name), fresh)
            fresh.replace(lib / name)
        return {name: lib / name for name in names}


def identity_of(state: FogState, site: str) -> Identity | None:
    """The site's certificate; None for a fog without TLS."""
    return Identity.of_site(Path(state.authority), site) if state.authority else None


def _addresses(sites: Iterable[SiteRecord]) -> list[str]:
    return [address for site in sites for address in (site.broker_address, site.engine_address)]
