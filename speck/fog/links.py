"""The WAN of a fog: it is brought up with the fog, and can be shown and changed while it runs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from speck.errors import PermanentError
from speck.fog.base import WAN, FogBase
from speck.fog.ports import accepts, site_host
from speck.fog.process import Command, stop_all, wait_until
from speck.fog.state import FogState
from speck.fog.wan import proxied
from speck.fog.wan.model import LinkStatus, Mode, Uplink, Wan, WanState, check_uplink, check_wan
from speck.fog.wan.namespaces import SECOND_BEST, explain_refusal, write_table
from speck.fog.wan.plan import DELAY, Layout
from speck.model.values import JsonObject

_READY_S = 30.0


class Links(FogBase):
    """The part of a fog that manages the links between its sites."""

    def links(self) -> list[LinkStatus]:
        """Every site's uplink, with its traffic so far; empty without a WAN."""
        state = self._file.load()
        if state is None or state.wan is None:
            return []
        state = state.find_processes()
        assert state.wan is not None
        if state.wan.mode == "proxy":
            counts = self._network.table.with_suffix(".counts")
            return proxied.links(state.wan, state.sites, counts, runs="relay" in state.of(WAN))
        return self._network.links(self._layout(state), delayed="delay" in state.of(WAN))

    def set_link(self, site: str, up: bool) -> None:
        """Take a site's uplink down (packets both ways are dropped silently) or up again."""
        with self._hold_lock():
            self._change(site, self._wan_state().with_link(site, up))

    def shape(self, site: str, uplink: Uplink) -> None:
        """Change the rates and the latency of a site's uplink while packets flow."""
        check_uplink(site, uplink)
        with self._hold_lock():
            self._change(site, self._wan_state().with_uplink(site, uplink))

    def enter(self, site: str) -> list[str]:
        """The prefix of a command line that makes it run in the namespace of `site`; empty if
        sites have no namespaces."""
        state = self._file.load()
        if state is None:
            raise PermanentError(f"cannot find a fog in {self.folder}: bring one up (speck fog up)")
        state.site(site)
        return self._network.enter(site) if state.wan and state.wan.mode == "namespaces" else []

    def _check_wan(self, wan: Wan | None, mode: Mode | None, sites: Sequence[str]) -> None:
        """Raises PermanentError for a WAN that is not possible for this fog."""
        if wan is None:
            if mode is not None:
                raise PermanentError("cannot use a WAN mode without a WAN: give --wan FILE")
            return
        check_wan(wan, sites)
        if mode == "proxy":
            proxied.check_proxied(wan, sites)
        elif (why := explain_refusal()) is not None:
            raise PermanentError(f"cannot bring up a WAN: {why}")

    def _build_network(self) -> None:
        """Build the network and start the delay element, unless they exist."""
        state = self._load()
        if state.wan is None:
            return
        if not _sites_run(state):
            stop_all(state.of(WAN).values(), 5.0)
        if state.wan.mode == "proxy":
            self._start_relay()
            return
        layout = self._layout(state)
        if not _sites_run(state):
            self._network.build(layout)
        elif not self._network.is_there(layout):
            raise PermanentError(
                f"cannot find the network of the fog in {self.folder}: its namespaces were"
                " removed while it ran; end the fog (speck fog down), and bring it up again"
            )
        self._start_delay(layout)
        if state.service is not None and not state.shared:
            self._start_forward(state.service, layout)

    def _plan_network(
        self, wan: Wan | None, mode: Mode | None, sites: Sequence[str]
    ) -> tuple[list[str], WanState | None]:
        """An address for each site, and the state of the new WAN."""
        hosts = [site_host(self.folder, number) for number in range(len(sites))]
        if wan is None:
            return hosts, None
        if mode == "proxy":
            relays = proxied.pick_relays(wan, dict(zip(sites, hosts, strict=True)))
            return hosts, WanState(wan, "proxy", relays=relays)
        state = WanState(wan, "namespaces", self._network.pick())
        layout = self._network.layout(sites, state)
        return [layout.address(site) for site in sites], state

    def _relink(self, wan: Wan) -> None:
        """Change all links to those of `wan`, and take them up; also those of a running fog."""
        self._apply(replace(self._wan_state(), wan=wan, down=()))

    def _change(self, site: str, after: WanState) -> None:
        self._load().site(site)
        self._apply(after)

    def _apply(self, after: WanState) -> None:
        """Save the new state first, then apply it: after a crash `up` applies the saved state."""
        state = self._load()
        before = self._layout(state)
        self._save(replace(state, wan=after))
        if not _sites_run(state):
            return  # the links are built from the saved state when the sites start
        if after.mode == "proxy":
            self._start_relay()
        else:
            layout = self._layout(self._load())
            self._network.change(before, layout)
            self._start_delay(layout)

    def _start_relay(self) -> None:
        """Start the relay with the current table of links, or make it read the table."""
        state = self._load()
        assert state.wan is not None
        write_table(self._network.table, proxied.table(state.wan, state.sites))
        argv = [sys.executable, "-m", "speck.fog.wan.relay", str(self._network.table)]
        log = self.folder / "wan" / "relay.log"
        self._apply_table(Command("relay", argv, self.folder, log), "the relay of the WAN")

    def _apply_table(self, command: Command, what: str) -> None:
        """Start a program, or make a running one read its table; returns when it has read it."""
        running = self._load().of(WAN).get(command.what)
        if running is not None:
            running.send(signal.SIGHUP)
        else:
            running = self._launch(WAN, command)
        processes = {command.what: running}
        wait_until(lambda: self._network.table_applied, processes, what, [command.log], _READY_S)

    def _start_delay(self, layout: Layout) -> None:
        """Start the delay element, or make it read the table, if any link has a latency."""
        if not any(layout.latencies_ms().values()):
            return
        argv = [sys.executable, "-m", "speck.fog.wan.delay", DELAY, str(self._network.table)]
        command = Command("delay", argv, self.folder, self.folder / "wan" / "delay.log")
        self._apply_table(self._network.into_router(command), "the delay element of the WAN")

    def _start_forward(self, service: str, layout: Layout) -> None:
        """Forward connections of agents to a service that listens on loopback only."""
        if "forward" in self._load().of(WAN):
            return
        host, port = _target(service)
        argv = [sys.executable, "-m", "speck.fog.wan.forward", layout.root, host, str(port)]
        argv += [layout.state.network, str(self._network.router_file)]
        argv += [str(self._network.site_file(site)) for site in layout.sites]
        log = self.folder / "wan" / "forward.log"
        process = self._launch(WAN, Command("forward", argv, self.folder, log))
        what = f"the forwarding from the sites to {service}"
        wait_until(lambda: accepts(layout.root, port), {"it": process}, what, [log], _READY_S)

    def _service_for_agents(self, state: FogState) -> str:
        """The service's address from the sites' point of view."""
        assert state.service is not None
        if state.wan is None or state.wan.mode != "namespaces":
            return state.service
        scheme = urlsplit(state.service).scheme
        return f"{scheme}://127.0.0.1:{_target(state.service)[1]}"

    def _layout(self, state: FogState) -> Layout:
        assert state.wan is not None
        return self._network.layout([site.name for site in state.sites], state.wan)

    def _wan_state(self) -> WanState:
        state = self._load().wan
        if state is None:
            raise PermanentError(
                f"cannot change a link of the fog in {self.folder}: it has no WAN; bring the fog up"
                " with one (speck fog up --wan FILE)"
            )
        return state


def _sites_run(state: FogState) -> bool:
    return any(state.of(site.name) for site in state.sites)


def describe_site(body: JsonObject, wan: Wan | None) -> JsonObject:
    """A site's body for the service, with the rate and latency of its uplink."""
    if wan is None:
        return body
    uplink = wan.uplink(str(body["name"]))
    rate = {} if uplink.up_mbps is None else {"uplink_mbps": uplink.up_mbps}
    labels = {**body["labels"], "latency_ms": f"{uplink.latency_ms:g}"}
    return {**body, **rate, "labels": labels}


def _target(service: str) -> tuple[str, int]:
    parts = urlsplit(service)
    if parts.scheme != "http" or parts.hostname is None:
        raise PermanentError(
            f"cannot let the sites of a WAN reach {service}: give an address like"
            f" http://127.0.0.1:8080 ({SECOND_BEST})"
        )
    return parts.hostname, parts.port or 80
