"""Builds the network of a fog: network namespaces, veth pairs, token buckets (Linux, root)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from speck.errors import PermanentError
from speck.fog.process import Command
from speck.fog.wan.model import LinkStatus, WanState
from speck.fog.wan.plan import Batch, Layout, Names, network
from speck.model.values import JsonObject

_NAMESPACES = Path("/run/netns")
_TUN = Path("/dev/net/tun")
_SYSCTL = 'while IFS== read -r key value; do echo "$value" > "/proc/sys/$key" || exit 1; done'
_GONE_S = 10.0
_POLL_S = 0.02
SECOND_BEST = "--wan-mode proxy needs none of this"


def explain_refusal() -> str | None:
    """Why this process cannot create namespaces; None when nothing is known to be missing."""
    if os.geteuid() != 0:
        return f"network namespaces need root; run it as root ({SECOND_BEST})"
    for program in ("ip", "tc", "nsenter"):
        if shutil.which(program) is None:
            return f"{program} is missing; install iproute2 and util-linux ({SECOND_BEST})"
    if not _TUN.exists():
        return (
            f"{_TUN} is missing; load the module tun, or give it to the container"
            f" (--device {_TUN}; {SECOND_BEST})"
        )
    return None


class Network:
    """The namespaces of the fog in `folder`, which are found by their names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = Names.of(folder)
        self.table = folder / "wan.json"

    def layout(self, sites: Sequence[str], state: WanState) -> Layout:
        return Layout(self.names, sites, state)

    def pick(self) -> str:
        """A network without a route on this machine. Raises PermanentError when none is free."""
        routes = _run(["ip", "-4", "route", "show", "table", "all"])
        for number in range(512):
            prefix = network((self.names.first_network + number) % 512)
            if f"{prefix}." not in routes:
                return prefix
        raise PermanentError("cannot find a free network in 198.18.0.0/15: end other fogs first")

    def build(self, layout: Layout) -> None:
        """Build everything from scratch. Raises PermanentError; then nothing remains."""
        if (why := explain_refusal()) is not None:
            raise PermanentError(f"cannot bring up a WAN: {why}")
        self.remove()
        try:
            for batch in layout.build():
                _carry_out(batch)
            self.write_latencies(layout)
        except BaseException:
            self.remove()
            raise

    def is_there(self, layout: Layout) -> bool:
        """Whether all namespaces exist."""
        names = [layout.names.router, *map(layout.names.site, layout.sites)]
        return all((_NAMESPACES / name).exists() for name in names)

    def change(self, before: Layout, after: Layout) -> None:
        """Change rates, latencies and links from `before` to `after` while packets flow."""
        for site in after.sites:
            if before.wan.uplink(site) != after.wan.uplink(site):
                for batch in after.shaping(site):
                    _carry_out(batch)
        self.write_latencies(after)
        old, new = before.rules(), after.rules()
        lines = [f"rule add {rule}" for rule in new if rule not in old]
        lines += [f"rule del {rule}" for rule in old if rule not in new]
        if lines:
            _carry_out(Batch("ip", self.names.router, tuple(lines)))

    def write_latencies(self, layout: Layout) -> None:
        """Write the delay element's table."""
        write_table(self.table, {"latency_ms": layout.latencies_ms()})

    @property
    def table_applied(self) -> bool:
        """Whether the delay element or relay has read the newest table."""
        try:
            version = json.loads(self.table.read_text())["version"]
            return self.table.with_suffix(".seen").read_text() == str(version)
        except (OSError, ValueError):
            return False

    def enter(self, site: str) -> list[str]:
        """The prefix of a command line that makes it run at `site`, under the same pid."""
        return ["nsenter", f"--net={self.site_file(site)}", "--"]

    def site_file(self, site: str) -> Path:
        """The file of the site's namespace."""
        return _NAMESPACES / self.names.site(site)

    def into(self, site: str, command: Command) -> Command:
        return replace(command, argv=[*self.enter(site), *command.argv])

    def into_router(self, command: Command) -> Command:
        prefix = ["nsenter", f"--net={self.router_file}", "--"]
        return replace(command, argv=[*prefix, *command.argv])

    @property
    def router_file(self) -> Path:
        """The file of the router's namespace; it exists as long as the network."""
        return _NAMESPACES / self.names.router

    def remove(self) -> int:
        """End all processes in the namespaces, and remove the network, if there is one. Returns how
        many processes were ended."""
        namespaces = [path.name for path in _NAMESPACES.glob(f"{self.names.prefix}*")]
        ended = sum(_empty(name) for name in namespaces)
        for device in Path("/sys/class/net").glob(f"{self.names.device}*"):
            _run(["ip", "link", "delete", device.name], check=False)
        for name in namespaces:
            _run(["ip", "netns", "delete", name])
        for suffix in (".json", ".seen", ".counts", ".new", ".fresh"):
            self.table.with_suffix(suffix).unlink(missing_ok=True)
        return ended

    def links(self, layout: Layout, *, delayed: bool) -> list[LinkStatus]:
        """The status of every site's uplink; `delayed` tells whether the delay element runs."""
        router = layout.names.router
        devices = _by_name(_json(["ip", "-n", router, "-j", "-s", "link"]))
        queues = _count_drops(_json(["tc", "-n", router, "-j", "-s", "qdisc"]))
        statuses = []
        for number, site in enumerate(layout.sites):
            device = devices.get(f"w{number}")
            if device is None:
                raise PermanentError(
                    f"cannot find the uplink of {site}: end the fog, and bring it up again"
                    " (speck fog down)"
                )
            own = _count_drops(_json(["tc", "-n", layout.names.site(site), "-j", "-s", "qdisc"]))
            uplink, counts = layout.wan.uplink(site), device["stats64"]
            statuses.append(
                LinkStatus(
                    site,
                    site not in layout.state.down and (delayed or uplink.latency_ms == 0),
                    counts["rx"]["bytes"],
                    counts["tx"]["bytes"],
                    uplink.up_mbps,
                    uplink.down_mbps,
                    uplink.latency_ms,
                    counts["rx"]["packets"] + counts["tx"]["packets"],
                    queues.get(f"w{number}", 0) + own.get("wan", 0),
                )
            )
        return statuses


def write_table(path: Path, content: JsonObject) -> None:
    """Write the table of a program of the WAN, with a new version."""
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps({"version": time.monotonic_ns(), **content}))
    fresh.replace(path)


def _carry_out(batch: Batch) -> None:
    if batch.tool == "sysctl":
        argv = ["nsenter", f"--net={_NAMESPACES / batch.namespace}", "--", "sh", "-c", _SYSCTL]
    else:
        inside = ["-n", batch.namespace] if batch.namespace else []
        argv = [batch.tool, *inside, "-batch", "-"]
    _run(argv, "\n".join(batch.lines) + "\n")


def _run(argv: Sequence[str], stdin: str = "", *, check: bool = True) -> str:
    """Run a program. If `check`, raises PermanentError with its output when it fails."""
    try:
        result = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    except OSError as error:
        raise PermanentError(f"cannot run {argv[0]}: {error}; install iproute2") from error
    if check and result.returncode != 0:
        output = " ".join((result.stderr or result.stdout).split())[:500]
        raise PermanentError(
            f"cannot set up the WAN: `{' '.join(argv)}` failed: {output}; a container must be"
            f" privileged for this ({SECOND_BEST})"
        )
    return result.stdout


def _json(argv: Sequence[str]) -> list[dict[str, Any]]:
    return list(json.loads(_run(argv) or "[]"))


def _by_name(devices: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {device["ifname"]: device for device in devices}


def _count_drops(queues: list[dict[str, Any]]) -> dict[str, int]:
    return {each["dev"]: each["drops"] for each in queues if each.get("root")}


def _empty(namespace: str) -> int:
    """End the processes in a namespace with SIGTERM, later with SIGKILL; returns their number."""
    first, until = set(_pids(namespace)), time.monotonic() + _GONE_S
    for pid in first:
        _signal(pid, signal.SIGTERM)
    while remaining := _pids(namespace):
        if time.monotonic() > until:
            for pid in remaining:
                _signal(pid, signal.SIGKILL)
        if time.monotonic() > until + _GONE_S:
            raise PermanentError(f"cannot end process {remaining[0]}: it does not react to SIGKILL")
        time.sleep(_POLL_S)
    return len(first)


def _pids(namespace: str) -> list[int]:
    return [int(pid) for pid in _run(["ip", "netns", "pids", namespace]).split()]


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
