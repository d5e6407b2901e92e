"""A fog on this machine: a real broker, Mosquitto or Kafka, and a real Flink for each site."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from speck.errors import PermanentError
from speck.fog import flink, flink_conf, kafka, mosquitto
from speck.fog.base import SUPERVISOR, WAN
from speck.fog.cgroups import check_speeds
from speck.fog.flink_conf import Runtime
from speck.fog.links import describe_site
from speck.fog.ports import pick_port
from speck.fog.process import Command, Process, stop_all
from speck.fog.site_processes import RUNNER, SiteProcesses, identity_of
from speck.fog.site_record import KAFKA, MOSQUITTO, SPARK, SiteRecord
from speck.fog.state import FogState, ProcessRecord
from speck.fog.status import ProcessStatus, SiteStatus
from speck.fog.wan.model import Mode, Wan, WanState
from speck.model.values import JsonObject
from speck.tls.identity import CREDENTIALS

__all__ = ["Fog", "ProcessStatus", "SiteStatus"]

_MAX_SITES = 250
_AGENT_PORT = 8090


@dataclass(frozen=True, slots=True)
class _SiteShape:
    """A site as it is asked for, before it has its addresses."""

    name: str
    tier: str
    slots: int
    speed: float | None
    broker: str = MOSQUITTO

    def choose_ports(self, host: str, *, encrypted: bool) -> SiteRecord:
        """The site on a host, with free ports there."""
        first_of_broker = kafka.PORT if self.broker == KAFKA else mosquitto.PORT
        broker, engine, agent = (
            pick_port(host, first) for first in (first_of_broker, flink.PORT, _AGENT_PORT)
        )
        return SiteRecord(
            *(self.name, self.tier, host, broker, engine, self.slots, agent, self.speed),
            encrypted,
            self.broker,
        )


@dataclass(frozen=True, slots=True)
class _Shape:
    """What cannot change while a fog runs, apart from its WAN. The folders are absolute."""

    sites: tuple[_SiteShape, ...]
    runtime: Runtime
    checkpoint_interval_s: float
    credentials: str | None
    authority: str | None

    @classmethod
    def of(cls, state: FogState) -> _Shape:
        """That of a fog which was brought up."""
        sites = (_SiteShape(s.name, s.tier, s.slots, s.speed, s.broker) for s in state.sites)
        return cls(
            tuple(sites),
            state.runtime,
            state.checkpoint_interval_s,
            state.credentials,
            state.authority,
        )


class Fog(SiteProcesses):
    """A fog: its sites, their processes, and the WAN between them."""

    def sites(self) -> tuple[SiteRecord, ...]:
        """The sites, edges first; none when the fog is down."""
        state = self._file.load()
        return state.sites if state else ()

    def site_bodies(self) -> list[JsonObject]:
        """The body of `POST /sites` for each site."""
        state = self._file.load()
        shared = {"state_uri": flink_conf.uri(self.folder / "state")}
        encrypted = any(site.encrypted for site in self.sites())
        secrets = {"credentials": CREDENTIALS} if encrypted else {}
        return [
            describe_site(
                {
                    "name": site.name,
                    "tier": site.tier,
                    "spe": {
                        "kind": "flink",
                        "address": site.engine_address,
                        **secrets,
                        **_beside(state, site),
                    },
                    "broker": {
                        "kind": site.broker,
                        "address": site.broker_address,
                        **secrets,
                    },
                    "labels": shared if state is not None and state.shared else {},
                },
                state.wan.wan if state is not None and state.wan is not None else None,
            )
            for site in self.sites()
        ]

    def up(
        self,
        edges: int = 3,
        slots: int = 8,
        cloud_slots: int = 16,
        clouds: int = 1,
        runtime: Runtime = "single",
        *,
        checkpoint_interval_s: float = 1.0,
        credentials: Path | None = None,
        shared_state: bool | None = None,
        agents_for: str | None = None,
        speeds: Mapping[str, float] | None = None,
        wan: Wan | None = None,
        wan_mode: Mode | None = None,
        authority: Path | None = None,
        cloud_broker: str = MOSQUITTO,
        programs: bool = False,
        spark: bool = False,
        restart: bool = False,
        register: Callable[[JsonObject], object] | None = None,
        progress: Callable[[str], object] | None = None,
    ) -> tuple[SiteRecord, ...]:
        """Bring up `edges` + `clouds` sites and return when every engine shows its slots.

        If there are files of an earlier fog of the same shape, it comes back with the same
        addresses and its brokers' sessions; processes that run already are not touched. `progress`
        is called with the name of each site that is up, `register` with each site's body.
        `agents_for` is the service that the sites' agents call: each site then has its own state
        folder, unless `shared_state`. Without either, all sites share one. `speeds` limits the
        cores of a site's engine (0.25: a quarter of one) with a CPU quota; others may use all.
        `wan` describes the links between the sites, which are then in separate network namespaces
        (see `wan_mode`); the links of a running fog with another WAN are changed to it.
        With `authority`, the folder of a certificate authority (made if there is none), every site
        serves TLS only and asks for client certificates; see `write_credentials`.
        `cloud_broker` is the kind of the clouds' brokers; edges have Mosquitto.
        `programs` adds a runner to each site that has an agent: jobs may be programs there. `spark`
        adds one to each cloud, for jobs in PySpark.
        `restart` tells whether a supervisor restarts dead processes; without it, a running
        supervisor is ended.
        Raises PermanentError; the processes started so far are then ended.
        """
        sites = _list_sites(edges, slots, clouds, cloud_slots, speeds or {}, cloud_broker)
        self._check_wan(wan, wan_mode, [site.name for site in sites])
        if authority is not None:
            _check_tls(credentials, wan_mode)
        if cloud_broker == KAFKA:
            _check_kafka(wan_mode)
        if (programs or spark) and shared_state:
            raise PermanentError(
                "cannot run programs in a fog with shared state: its sites have no agents"
            )
        if shared_state is None and (programs or spark or agents_for is not None):
            shared_state = False
        shape = _Shape(
            sites,
            runtime,
            checkpoint_interval_s,
            str(credentials.absolute()) if credentials else None,
            str(authority.absolute()) if authority else None,
        )
        with self._hold_lock():
            state = self._prepare(shape, shared_state, wan, wan_mode)
            if agents_for is not None and not state.shared:
                state = self._with_service(state, agents_for)
            programs, spark = programs or state.programs, spark or state.spark
            self._save(replace(state, programs=programs, spark=spark))
            self._issue_certificates()
            if wan is not None:
                self._relink(wan)
            self._start(state.sites, progress)
            self._supervise(restart)
        if register:
            for body in self.site_bodies():
                register(body)
        return state.sites

    @property
    def service(self) -> str | None:
        """The service that the sites' agents call; None without agents."""
        state = self._file.load()
        return state.service if state else None

    def start_agents(self, service: str, token: Callable[[str], str] | None = None) -> None:
        """Start an agent at each site that calls `service`; agents of another service are ended.

        `token` creates the secret of a site, if the service requires tokens. A fog with shared
        state needs no agents, so this does nothing.
        """
        with self._hold_lock():
            state = self._load()
            if state.shared:
                return
            for site in state.sites if token else ():
                assert token is not None
                self._write_token(site.name, token(site.name))
            state = self._with_service(state, service)
            self._save(state)
            self._build_network()
            for site in state.sites:
                self._start_agent(site, state.of(site.name))
                self._start_runner(site, state.of(site.name))

    def down(self, *, keep: bool = False) -> int:
        """End every process and, unless `keep`, delete the fog's files; returns how many ended.

        This works after any crash of this program, of sites or of the machine.
        """
        supervised = self._end_supervisor()  # it may be restarting a site and hold the lock
        with self._hold_lock():
            ended = supervised + self._end_all() + self._end_programs() + self._network.remove()
            self._quotas.release()
            if not keep:
                for name in ("sites", "state", "lib", "wan"):
                    shutil.rmtree(self.folder / name, ignore_errors=True)
                self._file.remove()
        return ended

    def status(self) -> list[SiteStatus]:
        """The sites and their processes, with memory; empty when the fog is down."""
        state = self._file.load()
        if state is None:
            return []
        state = state.find_processes()
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda site: self._site_status(state, site), state.sites))

    def kill(self, site: str, what: str = "engine") -> None:
        """SIGKILL a site's `broker`, `agent`, `runner` or `engine` (of a cluster also `jobmanager`,
        `taskmanager`)."""
        with self._hold_lock():
            stop_all(self._choose(site, what, "kill"), 0.0)

    def restart(self, site: str, what: str | None = None) -> None:
        """SIGTERM a site's `broker`, `agent`, `runner` or `engine` (None: all), and start it
        again."""
        with self._hold_lock():
            record = self._load().site(site)
            if what is not None:
                stop_all(self._choose(site, what, "restart"), 15.0)
            else:
                stop_all(self._load().of(site).values(), 15.0)
            self._start([record], None)

    def processes(self) -> tuple[ProcessRecord, ...]:
        """The processes that run, or should run, at the sites, without the fog's own."""
        state = self._file.load()
        names = {site.name for site in state.sites} if state is not None else set()
        return tuple(r for r in (state.processes if state else ()) if r.site in names)

    @property
    def supervised(self) -> bool:
        """Whether a supervisor restarts dead processes."""
        state = self._file.load()
        return state is not None and bool(state.of(SUPERVISOR))

    def _choose(self, site: str, what: str, verb: str) -> list[Process]:
        self._load().site(site)
        running = self._load().of(site)
        matches = [
            process
            for name, process in running.items()
            if what == name or (what == "engine" and name not in ("broker", "agent", RUNNER))
        ]
        if not matches:
            names = ", ".join(sorted(running)) or "nothing"
            raise PermanentError(f"cannot {verb} the {what} of {site}: {names} runs there")
        return matches

    def start(self, site: str) -> None:
        """Start the processes of a site that do not run, with the same addresses and files."""
        with self._hold_lock():
            self._start([self._load().site(site)], None)

    def _prepare(
        self, shape: _Shape, shared: bool | None, wan: Wan | None, wan_mode: Mode | None
    ) -> FogState:
        """The state to bring up: the existing one if it has this shape, otherwise a new one."""
        state = self._file.load()
        if state is not None:
            state = state.find_processes()
            same_wan = _fixed_part(state.wan) == (
                wan and (wan_mode or "namespaces", wan.host, wan.lans)
            )
            if shape == _Shape.of(state) and same_wan and shared in (None, state.shared):
                return state
            if any(state.of(site.name) for site in state.sites):
                raise PermanentError(
                    f"cannot bring up this fog in {self.folder}: another one of"
                    f" {len(state.sites)} sites runs there; end it first (speck fog down)"
                )
        self._quotas.release()  # of an earlier fog here
        self._hold_quotas({s.name: s.speed for s in shape.sites if s.speed is not None})
        hosts, wan_state = self._plan_network(wan, wan_mode, [site.name for site in shape.sites])
        for name in ("sites", "state"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        return FogState(
            shape.runtime,
            shape.checkpoint_interval_s,
            shape.credentials,
            tuple(
                site.choose_ports(host, encrypted=shape.authority is not None)
                for host, site in zip(hosts, shape.sites, strict=True)
            ),
            shared=shared is not False,
            wan=wan_state,
            authority=shape.authority,
        )

    def _supervise(self, restart: bool) -> None:
        running = self._load().of(SUPERVISOR)
        if restart and not running:
            argv = [sys.executable, "-m", "speck.fog.supervisor", str(self.folder)]
            log = self.folder / "supervisor.log"
            self._launch(SUPERVISOR, Command(SUPERVISOR, argv, self.folder, log))
        elif not restart:
            stop_all(running.values(), 15.0)

    def _end_supervisor(self) -> int:
        state = self._file.load()
        running = list(state.find_processes().of(SUPERVISOR).values()) if state is not None else []
        stop_all(running, 30.0)
        return len(running)

    def _hold_quotas(self, speeds: Mapping[str, float]) -> None:
        """Set all quotas or none: a fog that cannot be brought up leaves no group behind."""
        try:
            for name, speed in speeds.items():
                self._quotas.hold(name, speed)
        except BaseException:
            self._quotas.release()
            raise

    def _with_service(self, state: FogState, service: str) -> FogState:
        """The state with agents that call `service`; agents of another service are ended."""
        if state.service not in (None, service):
            agents = [state.of(site.name).get("agent") for site in state.sites]
            agents.append(state.of(WAN).get("forward"))
            stop_all([agent for agent in agents if agent is not None], 5.0)
        return replace(state, service=service)

    def _site_status(self, state: FogState, site: SiteRecord) -> SiteStatus:
        view = flink.overview(site.host, site.engine_port, identity_of(state, site.name)) or {}
        processes = tuple(
            ProcessStatus(
                record.what,
                record.process.pid if record.process else None,
                record.process.running if record.process else False,
                round(record.process.rss_mb, 1) if record.process else 0.0,
            )
            for record in state.processes
            if record.site == site.name
        )
        return SiteStatus(
            site.name,
            site.tier,
            site.engine_address,
            site.broker_address,
            processes,
            view.get("slots-total"),
            view.get("slots-available"),
            site.speed,
        )


def _beside(state: FogState | None, site: SiteRecord) -> JsonObject:
    """The part of a site's engine that names another one beside it."""
    if state is None or not state.has_runner(site):
        return {}
    return {"beside": {"kind": SPARK if state.runs_spark(site) else "process"}}


def _list_sites(
    edges: int,
    slots: int,
    clouds: int,
    cloud_slots: int,
    speeds: Mapping[str, float],
    cloud_broker: str,
) -> tuple[_SiteShape, ...]:
    """The sites of a fog, edges first. Raises PermanentError for numbers that cannot be."""
    if not 1 <= edges + clouds <= _MAX_SITES or min(edges, clouds) < 0:
        raise PermanentError(
            f"cannot bring up a fog of {edges} edges and {clouds} clouds:"
            f" give 1 to {_MAX_SITES} sites"
        )
    if min(slots, cloud_slots) < 1:
        raise PermanentError("cannot bring up a fog without slots: give each site at least 1")
    sites = (
        *(_SiteShape(name, "edge", slots, speeds.get(name)) for name in _edge_names(edges)),
        *(
            _SiteShape(name, "cloud", cloud_slots, speeds.get(name), cloud_broker)
            for name in _cloud_names(clouds)
        ),
    )
    check_speeds(speeds, [site.name for site in sites])
    return sites


def _check_tls(credentials: Path | None, wan_mode: Mode | None) -> None:
    """Raises PermanentError for options that TLS excludes."""
    if credentials is not None:
        raise PermanentError(
            "cannot bring up a fog with TLS and other credentials: it makes its own"
        )
    if wan_mode == "proxy":
        raise PermanentError(
            "cannot bring up a fog with TLS behind proxies: their addresses are in no certificate;"
            " use network namespaces (--wan-mode namespaces)"
        )


def _check_kafka(wan_mode: Mode | None) -> None:
    """Raises PermanentError for what Kafka does not go with, or if its jars are missing."""
    if wan_mode == "proxy":
        raise PermanentError(
            "cannot bring up a fog with Kafka behind proxies: its brokers say themselves where they"
            " are reached; use network namespaces (--wan-mode namespaces)"
        )
    kafka.kafka_jars()


def _fixed_part(wan: WanState | None) -> object:
    """The part of a WAN that cannot change while a fog runs; rates and latencies can."""
    return wan and (wan.mode, wan.wan.host, wan.wan.lans)


def _edge_names(count: int) -> list[str]:
    """edge-a .. edge-z, edge-aa, edge-ab ..."""
    names = []
    for number in range(count):
        letters = chr(ord("a") + number % 26)
        if number >= 26:
            letters = chr(ord("a") + number // 26 - 1) + letters
        names.append(f"edge-{letters}")
    return names


def _cloud_names(count: int) -> list[str]:
    """cloud, cloud-2, cloud-3 ..."""
    return ["cloud" if number == 1 else f"cloud-{number}" for number in range(1, count + 1)]
