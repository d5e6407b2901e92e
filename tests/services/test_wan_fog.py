"""A fog whose sites have a WAN between them: jobs, agents and moves across it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from bench.instruments.checker import Checker
from bench.instruments.feed import Feed
from speck.errors import PermanentError
from speck.fog import mosquitto
from speck.fog.paths import edge_jar
from speck.fog.service import Served, serving
from speck.fog.sites import Fog
from speck.fog.wan import Uplink, Wan
from speck.model.values import JsonObject
from tests.namespaces import left_behind, needs_namespaces
from tests.waiting import wait_for

WAN = Wan({"edge-a": Uplink(2, 10, 9.3), "cloud": Uplink(latency_ms=1)})


@pytest.fixture
def fog(tmp_path: Path) -> Iterator[Fog]:
    wan_fog = Fog(tmp_path / "fog")
    yield wan_fog
    wan_fog.down()
    assert left_behind(wan_fog._network) == []


def call(server: Served, method: str, path: str, **more: object) -> JsonObject:
    answer = requests.request(method, server.url + path, timeout=300, **more)  # type: ignore[arg-type]
    assert answer.ok, answer.text
    return dict(answer.json())


def chain(count_at: str) -> JsonObject:
    """edge-a -> cloud -> cloud; the second job keeps state, and may run at either site."""

    def job(name: str, entry: str, at: str, source: tuple[str, str], sink: str) -> JsonObject:
        return {
            "job_name": name,
            "site": at,
            "source_site": source[0],
            "source_topic": source[1],
            "sink_site": "cloud",
            "sink_topic": sink,
            "entry_class": f"io.speck.jobs.{entry}",
            "job_path": "speck-jobs.jar",
        }

    return {
        "name": "wan",
        "jobs": [
            job("pass", "PassThrough", "edge-a", ("edge-a", "wan/in"), "wan/mid"),
            job("count", "Counting", count_at, ("cloud", "wan/mid"), "wan/out"),
        ],
        "inputs": [{"site": "edge-a", "topic": "wan/in"}],
        "outputs": [{"site": "cloud", "topic": "wan/out", "client_id": "wan-end"}],
    }


def apply(server: Served, composition: JsonObject) -> None:
    answer = call(server, "POST", "/compositions", json=composition, params={"wait": 250})
    assert answer["state"] == "done", call(server, "GET", f"/changes/{answer['change']}")


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "host", "element"),
    [
        ("namespaces", "everywhere", "delay"),
        ("namespaces", "cloud", "delay"),
        ("proxy", "everywhere", "relay"),
    ],
)
def test_nothing_is_lost_across_a_wan(
    fog: Fog, tmp_path: Path, mode: str, host: str, element: str
) -> None:
    if mode == "namespaces":
        needs_namespaces()
    wan = Wan(WAN.uplinks, host=host)
    shape = {"edges": 1, "slots": 4, "cloud_slots": 4, "shared_state": False}
    shape |= {"wan": wan, "wan_mode": mode}
    fog.up(**shape)  # type: ignore[arg-type]
    brokers = {site.name: site.broker_address for site in fog.sites()}
    with serving(tmp_path / "home", [edge_jar("speck-jobs.jar").parent]) as server:
        for body in fog.site_bodies():
            call(server, "POST", "/sites", json=body)
        fog.start_agents(server.url)
        agents = lambda: all(  # noqa: E731
            it.get("last_seen") for it in call(server, "GET", "/sites")["sites"]
        )
        wait_for(agents, "an agent at each site")
        apply(server, chain("cloud"))
        with (
            Checker(brokers["cloud"], "wan/out", "wan-end") as end,
            Feed(brokers["edge-a"], "wan/in", rate=100, run="wan") as feed,
        ):
            end.await_past(300)
            edge, _ = fog.links()
            assert edge.up_bytes > 300 * len('{"n": 1, "k": "k1"}')

            fog.set_link("edge-a", False)
            if host == "everywhere":  # the feed is at the edge: its broker takes more meanwhile
                now = feed.acked
                wait_for(lambda: feed.acked > now + 300, "messages at the edge")
            else:
                threading.Event().wait(3)
            stuck = end.highest
            fog.set_link("edge-a", True)
            end.await_past(max(stuck, feed.acked) + 100)

            fog._load().find_processes().of("wan")[element].kill()
            assert [link.up for link in fog.links()] == [False, False]
            fog.up(**shape)  # type: ignore[arg-type]
            assert [link.up for link in fog.links()] == [True, True]
            end.await_past(feed.sent + 100)

            apply(server, chain("edge-a"))  # its state crosses the WAN
            end.await_past(feed.sent + 100)
            published = feed.end()
            count = end.await_all(published)
    assert (count.lost, count.repeated, count.miscounted) == (0, 0, 0)


DYING = """
import os, signal, sys
from pathlib import Path
from speck.fog import mosquitto
from speck.fog.sites import Fog
from speck.fog.wan import Uplink, Wan

mosquitto.start = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
Fog(Path(sys.argv[1])).up(edges=1, wan=Wan({"edge-a": Uplink(2, 10, 9.3)}), wan_mode=sys.argv[2])
"""


@pytest.mark.parametrize("mode", ["namespaces", "proxy"])
@pytest.mark.parametrize("known", [True, False])
def test_a_launcher_killed_halfway_leaves_what_down_finds(fog: Fog, mode: str, known: bool) -> None:
    if mode == "namespaces":
        needs_namespaces()
    argv = [sys.executable, "-c", DYING, str(fog.folder), mode]
    assert subprocess.run(argv, check=False, timeout=60).returncode == -signal.SIGKILL
    running = fog._load().find_processes().of("wan")
    assert list(running) == [{"namespaces": "delay", "proxy": "relay"}[mode]]
    if not known:
        (fog.folder / "fog.json").unlink()
    fog.down()
    for process in running.values():
        wait_for(lambda process=process: not process.running, "its end", 20)
    assert left_behind(fog._network) == []
    assert fog.down() == 0


@pytest.mark.parametrize("mode", ["namespaces", "proxy"])
def test_a_fog_that_cannot_come_up_leaves_no_wan(
    fog: Fog, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    if mode == "namespaces":
        needs_namespaces()

    def refuse(*_: object, **__: object) -> None:
        raise PermanentError("no broker today")

    monkeypatch.setattr(mosquitto, "start", refuse)
    with pytest.raises(PermanentError, match="no broker today"):
        fog.up(edges=1, wan=WAN, wan_mode=mode)  # type: ignore[arg-type]
    assert fog._load().find_processes().of("wan") == {}
    assert left_behind(fog._network) == []
