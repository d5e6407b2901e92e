"""The fog with real servers: they come up, survive their launcher, and go."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests

from speck.binding import Target, open_broker
from speck.errors import PermanentError
from speck.fog import flink, flink_conf, mosquitto
from speck.fog.flink_conf import FlinkSettings
from speck.fog.ports import pick_port
from speck.fog.process import Command, Process, spawn
from speck.fog.sites import Fog
from speck.fog.state import StateFile
from speck.tls.identity import CREDENTIALS
from tests.quotas import groups, may_set_quotas
from tests.waiting import wait_for

LOOPBACK = "127.0.0.1"

LAUNCHER = """
import os, signal, sys
from pathlib import Path
from speck.fog.ports import pick_port
from speck.fog.process import Command, spawn
from speck.fog.sites import Fog

def die(site):
    os.kill(os.getpid(), signal.SIGKILL)

Fog(Path(sys.argv[1])).up(edges=2, slots=2, cloud_slots=2, progress=die)
"""


def running_in(folder: Path) -> list[int]:
    """The pids of all processes whose command line names `folder`, but not of ourselves."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(f"{folder}/sites/" in word for word in process.info["cmdline"] or ())
    ]


def config_of(url: str) -> dict[str, str]:
    answer = requests.get(f"{url}/jobmanager/config", timeout=10).json()
    return {entry["key"]: entry["value"] for entry in answer}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Fog]:
    fog = Fog(tmp_path / "fog")
    yield fog
    fog.down(keep=True)


def test_every_site_is_up(fog: Fog) -> None:
    status = fog.status()
    assert [(site.name, site.tier) for site in status] == [
        ("edge-a", "edge"),
        ("edge-b", "edge"),
        ("edge-c", "edge"),
        ("cloud", "cloud"),
    ]
    assert all(site.up for site in status)
    assert [site.slots_total for site in status] == [8, 8, 8, 24]
    assert all(entry.rss_mb > 1 for site in status for entry in site.processes)
    hosts = {site.host for site in fog.sites()}
    assert len(hosts) == 4
    assert "127.0.0.1" not in hosts


def test_each_site_keeps_its_own_state(fog: Fog) -> None:
    for site, body in zip(fog.sites(), fog.site_bodies(), strict=True):
        config = config_of(site.engine_address)
        assert body["labels"] == {}
        uri = f"file://{fog.state_folder(site.name)}"
        assert config["execution.checkpointing.dir"] == f"{uri}/checkpoints"
        assert config["execution.checkpointing.savepoint-dir"] == f"{uri}/savepoints"


def test_up_again_changes_nothing_and_registers_again(fog: Fog) -> None:
    before = fog.status()
    bodies: list[object] = []
    Fog(fog.folder).up(edges=3, slots=8, cloud_slots=24, register=bodies.append)
    assert bodies == fog.site_bodies()
    pids = [[entry.pid for entry in site.processes] for site in before]
    assert [[entry.pid for entry in site.processes] for site in fog.status()] == pids


@pytest.mark.long
def test_a_launcher_killed_halfway_leaves_nothing_behind(small: Fog) -> None:
    launcher = subprocess.run(
        [sys.executable, "-c", LAUNCHER, str(small.folder)], check=False, timeout=120
    )
    assert launcher.returncode == -signal.SIGKILL
    assert running_in(small.folder)
    small.down()
    assert running_in(small.folder) == []
    assert [path.name for path in small.folder.iterdir()] == ["fog.lock"]


@pytest.mark.long
def test_a_killed_site_comes_back_at_its_addresses_with_its_agent_and_its_quota(
    small: Fog,
) -> None:
    speeds = {"edge-a": 0.9} if may_set_quotas() else {}
    (site,) = small.up(edges=1, slots=2, clouds=0, agents_for="http://127.0.0.1:9", speeds=speeds)
    (status,) = small.status()
    assert status.speed == speeds.get("edge-a")
    assert {entry.what for entry in status.processes} == {"agent", "broker", "engine"}
    assert list_limited(small) == engines_of(small) * len(speeds)
    with pytest.raises(PermanentError, match="another one of 1 sites runs there"):
        Fog(small.folder).up(edges=2, slots=2, clouds=0)
    small.kill("edge-a")
    (status,) = small.status()
    assert not status.up
    assert {entry.what for entry in status.processes if entry.running} == {"agent", "broker"}
    small.kill("edge-a", "broker")
    small.kill("edge-a", "agent")
    assert not any(entry.running for entry in small.status()[0].processes)
    with pytest.raises(
        PermanentError, match=r"^cannot kill the engine of edge-a: nothing runs there"
    ):
        small.kill("edge-a")
    small.start("edge-a")
    (status,) = small.status()
    assert status.up
    assert (status.engine, status.broker) == (site.engine_address, site.broker_address)
    assert list_limited(small) == engines_of(small) * len(speeds)
    small.kill("edge-a", "agent")
    assert not small.status()[0].up
    assert small.down() == 2
    assert small.status() == []
    assert groups(small.folder) == []


def engines_of(fog: Fog) -> list[int]:
    return [it.pid for site in fog.status() for it in site.processes if it.what == "engine"]


def list_limited(fog: Fog) -> list[int]:
    """The processes that have a quota."""
    files = [group / "cgroup.procs" for group in groups(fog.folder)]
    return [int(pid) for file in files for pid in file.read_text().split()]


@pytest.mark.long
def test_a_site_that_cannot_start_takes_the_others_along(small: Fog) -> None:
    (edge, cloud) = small.up(edges=1, slots=2, cloud_slots=2)
    small.down(keep=True)
    with (
        socket.create_server((cloud.host, cloud.engine_port)),
        pytest.raises(PermanentError, match="cannot listen on") as error,
    ):
        small.up(edges=1, slots=2, cloud_slots=2)
    assert str(error.value).startswith(f"cannot start Flink at {cloud.engine_address}: engine")
    assert running_in(small.folder) == []
    assert StateFile(small.folder).load() is not None
    assert small.sites() == (edge, cloud)


def test_an_engine_gets_credentials_and_class_path(tmp_path: Path) -> None:
    class Started(Exception):
        pass

    def launch(command: Command) -> Process:
        commands.append(command)
        raise Started

    commands: list[Command] = []
    settings = FlinkSettings(
        folder=tmp_path / "engine",
        state=tmp_path / "state",
        slots=1,
        credentials=tmp_path / "secrets",
        class_path=[tmp_path / "extra.jar"],
        java_options=["-Dtry=me"],
    )
    with pytest.raises(Started):
        flink.start(settings, launch=launch)
    (command,) = commands
    assert command.argv[command.argv.index("-cp") + 1].endswith(f":{tmp_path}/extra.jar")
    assert "-Dtry=me" in command.argv
    assert command.env["SPECK_CREDENTIALS_DIR"] == f"{tmp_path}/secrets"


def test_a_broker_that_cannot_bind_says_why(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        with pytest.raises(PermanentError, match=r"(?s)^cannot start mosq.*Address already in"):
            mosquitto.start(tmp_path, port=port)


@pytest.mark.long
def test_a_cluster_loses_a_process_and_gets_it_back(small: Fog) -> None:
    small.up(edges=1, slots=3, clouds=0, runtime="cluster")
    for role in ("taskmanager", "jobmanager"):
        small.kill("edge-a", role)
        small.start("edge-a")
        (status,) = small.status()
        assert status.up
        assert status.slots_total == 3
    assert {entry.what for entry in status.processes} == {"broker", "jobmanager", "taskmanager"}
    assert small.down() == 3


@pytest.mark.long
def test_a_supervised_fog_restarts_what_dies(small: Fog) -> None:
    small.up(edges=1, slots=2, clouds=0, agents_for="http://127.0.0.1:9", restart=True)
    assert small.supervised
    for what in ("broker", "agent", "engine"):
        before = {entry.what: entry.pid for entry in small.status()[0].processes}
        patient = Fog(small.folder, lock_timeout_s=60.0)
        patient.kill("edge-a", what)
        wait_for(lambda: small.status()[0].up)
        after = {entry.what: entry.pid for entry in small.status()[0].processes}
        assert {name for name in after if after[name] != before[name]} == {what}
    processes = [record.process for record in small.processes() if record.process is not None]
    small.down()  # the supervisor may still be starting the engine, and ends it then
    assert len(processes) == 3
    assert not any(process.running for process in processes)
    assert not small.supervised


@pytest.mark.long
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_a_cloud_may_have_kafka(small: Fog, tmp_path: Path, is_encrypted: bool) -> None:
    authority = tmp_path / "ca" if is_encrypted else None

    def up() -> None:
        small.up(edges=0, cloud_slots=1, cloud_broker="kafka", authority=authority)

    up()
    (body,) = small.site_bodies()
    folder = tmp_path / "credentials"
    small.write_credentials(folder)
    credentials = folder / CREDENTIALS if is_encrypted else None
    target = Target(body["broker"]["address"], credentials, timeout_s=30)
    broker = open_broker(body["broker"]["kind"], target)
    broker.reserve("speck-a", "t")
    assert broker.publish("t", [b"x"]) == 0
    small.kill("cloud", "broker")
    up()
    assert broker.view().lag("speck-a", "t", []) == 1
    assert broker.check() == []
    assert small.down() == 2


@pytest.mark.long
def test_a_fog_without_restart_has_no_supervisor(small: Fog) -> None:
    small.up(edges=1, slots=2, clouds=0, restart=True)
    small.up(edges=1, slots=2, clouds=0, restart=False)
    assert not small.supervised
    small.restart("edge-a", "broker")
    assert small.status()[0].up
    assert small.down() == 2


@pytest.mark.long
def test_an_engine_that_was_just_ending_is_started_again(tmp_path: Path) -> None:
    """As after a SIGTERM: it does not answer, and ends while it is waited for."""
    settings = FlinkSettings(tmp_path / "engine", tmp_path / "state", 1, port=pick_port(LOOPBACK))
    flink_conf.write(settings, settings.port or 0)
    ending = spawn(Command("engine", ["sleep", "2"], tmp_path, tmp_path / "sleep.log"))
    with flink.start(settings, running={"engine": ending}) as engine:
        assert not ending.running
        assert engine.processes["engine"].running
