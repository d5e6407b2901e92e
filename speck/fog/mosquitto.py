"""Starts a real Mosquitto with settings that lose no message while it runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from speck.fog.broker_process import BrokerProcess
from speck.fog.paths import cache_folder
from speck.fog.ports import accepts, pick_port
from speck.fog.process import Command, Launch, find_program, spawn, wait_until
from speck.tls.identity import Identity

PORT = 1883

SETTINGS: Mapping[str, str] = {
    "allow_anonymous": "true",  # the listener is bound to a loopback address
    "persistence": "true",
    "autosave_interval": "5",
    # The Receive Maximum for publishers: the default of 20 limits a sink to 20 messages per round
    # trip. It also limits what an MQTT 3.1.1 reader, which acknowledges at checkpoints, receives
    # between two checkpoints.
    "max_inflight_messages": "10000",
    # The queue of a session whose reader is away; when it is full, the newest message is dropped,
    # although the publisher gets a successful acknowledgement.
    "max_queued_messages": "1000000",
    "max_queued_bytes": "200000000",
    "queue_qos0_messages": "false",
    "message_size_limit": "1048576",
    "persistent_client_expiration": "30d",
    "set_tcp_nodelay": "true",
    "sys_interval": "2",
    "log_type": "error\nlog_type warning\nlog_type notice",
    "connection_messages": "false",
    "log_dest": "stderr",
    "log_timestamp_format": "%Y-%m-%dT%H:%M:%S",
}
"""The settings in mosquitto.conf that are the same for all sites."""

_INSTALL = "install it (apt-get install mosquitto), or run `make setup`, which tries to"


class Mosquitto(BrokerProcess):
    """A running Mosquitto; a kill loses what it has not saved yet."""

    STOP_S = 15.0
    SCHEMES = ("tcp", "ssl")


def find_mosquitto() -> Path:
    """Find the program. Raises PermanentError with a hint how to install it."""
    unpacked = cache_folder() / "mosquitto" / "usr" / "sbin"
    return find_program("mosquitto", _INSTALL, [Path("/usr/sbin"), unpacked])


def start(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    tls: Identity | None = None,
    launch: Launch = spawn,
    timeout_s: float = 180.0,
) -> Mosquitto:
    """Start a broker with its files in `folder`, and wait until it accepts connections.

    Without `port`, a free one is chosen. `settings` are added to `SETTINGS` or override them. With
    the folder of an earlier run, the broker has the sessions of that run. With `tls` it
    accepts only TLS with client certificates.
    Raises PermanentError when Mosquitto is not installed or does not come up.
    """
    port = port if port is not None else pick_port(host)
    program = find_mosquitto()
    secured = tls.broker_settings() if tls else {}
    conf = _write_conf(folder, host, port, {**SETTINGS, **secured, **(settings or {})})
    command = Command(
        what="broker",
        argv=[str(program), "-c", str(conf)],
        cwd=folder,
        log=folder / "log" / "broker.log",
        env=_environment(program),
    )
    process = launch(command)
    broker = Mosquitto(process, host, port, folder, tls is not None)
    what = f"mosquitto at {broker.address}"
    try:
        wait_until(
            lambda: accepts(host, port), {"mosquitto": process}, what, [command.log], timeout_s
        )
    except BaseException:
        process.kill()
        raise
    return broker


def _write_conf(folder: Path, host: str, port: int, settings: Mapping[str, str]) -> Path:
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    lines = [
        f"listener {port} {host}",
        # started by root, it would switch to the user "mosquitto", who may not write here
        *(["user root"] if os.geteuid() == 0 else []),
        f"persistence_location {data}/",
        *(f"{key} {value}" for key, value in settings.items()),
    ]
    conf = folder / "mosquitto.conf"
    conf.write_text("\n".join(lines) + "\n")
    return conf


def _environment(program: Path) -> dict[str, str]:
    """The environment for a program of an unpacked Debian package, with its own libraries."""
    libraries = program.parents[1] / "lib"
    folders = sorted(libraries.glob("*-linux-gnu*"))
    if not program.is_relative_to(cache_folder()) or not folders:
        return {}
    return {"LD_LIBRARY_PATH": ":".join(str(folder) for folder in folders)}
