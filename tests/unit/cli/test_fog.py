"""fog and replay: the options reach the code that does the work, and the output describes it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from speck.fog.publisher import ReplayOptions
from speck.fog.replay import Summary
from speck.fog.site_record import SiteRecord
from speck.fog.sites import Fog, ProcessStatus, SiteStatus
from speck.fog.wan import LinkStatus, Uplink, Wan
from tests.memory_fog import site_body
from tests.unit.cli.conftest import Run, Server

SITE = SiteRecord("edge-q", "edge", "127.1.2.3", 1883, 8081, 8)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls of a fog of one site that is never really started."""
    requests: list[tuple[Any, ...]] = []

    def up(
        self: Fog,
        *args: Any,
        shared_state: bool,
        speeds: dict[str, float],
        progress: Any,
        restart: bool,
        programs: bool = False,
        spark: bool = False,
        **wan: Any,
    ) -> tuple[SiteRecord, ...]:
        requests.append((*args, *(["shared"] if shared_state else []), *speeds.items()))
        requests[-1] += tuple(value for value in wan.values() if value not in (None, "mqtt"))
        requests[-1] += () if restart else ("no restart",)
        requests[-1] += ("programs",) if programs else ()
        requests[-1] += ("spark",) if spark else ()
        progress("edge-q")
        return (SITE,)

    def down(self: Fog, *, keep: bool) -> int:
        requests.append((keep,))
        return 2

    def status(self: Fog) -> list[SiteStatus]:
        processes = (
            ProcessStatus("broker", 11, True, 5.04),
            ProcessStatus("engine", 12, True, 300.0),
        )
        return [SiteStatus("edge-q", "edge", "http://e", "tcp://b", processes, 8, 7)]

    def start_agents(self: Fog, service: str, token: Any = None) -> None:
        requests.append(("agents", service, token("edge-q") if token else None))

    monkeypatch.setattr(Fog, "up", up)
    monkeypatch.setattr(Fog, "start_agents", start_agents)
    monkeypatch.setattr(Fog, "status", status)
    monkeypatch.setattr(Fog, "sites", lambda _: (SITE,))
    monkeypatch.setattr(Fog, "site_bodies", lambda _: [site_body("edge-q")])
    monkeypatch.setattr(Fog, "down", down)
    return requests


def test_up_registers_the_sites(speck: Run, calls: list[Any], server: Server) -> None:
    result = speck("fog", "up")
    assert result.exit_code == 0, result.stderr
    assert calls == [(3, 8, 24, 1, "single"), ("agents", server.url, None)]
    assert f"1 sites are registered with {server.url}" in result.stderr
    assert "edge-q" in speck("site", "list").stdout
    assert speck("fog", "up").exit_code == 0  # the same sites again


@pytest.mark.parametrize(
    ("options", "more"),
    [
        (("--cloud-engine", "spark"), "spark"),
        (("--cloud-broker", "kafka"), "kafka"),
        (("--programs",), "programs"),
        (("--shared-state",), "shared"),
        (("--no-restart",), "no restart"),
    ],
)
def test_what_else_a_fog_may_have(
    speck: Run, calls: list[Any], options: tuple[str, ...], more: str
) -> None:
    assert speck("fog", "up", *options).exit_code == 0
    assert calls[0] == (3, 8, 24, 1, "single", more)


def test_up_without_a_service_says_how_to_register(alone: Run, calls: list[Any]) -> None:
    options = ("--edges", "1", "--slots", "2", "--cloud-slots", "3", "--clouds", "2")
    result = alone("fog", "up", *options, "--runtime", "cluster")
    assert result.exit_code == 0
    assert calls[0] == (1, 2, 3, 2, "cluster")
    assert [call[0] for call in calls[1:]] == ["agents"]  # they wait for the service
    assert "then register the sites with `speck fog register`" in result.stderr
    assert alone("fog", "register").exit_code == 1


def test_sites_of_different_speed(speck: Run, calls: list[Any]) -> None:
    result = speck("fog", "up", "--speed", "edge-a=0.25", "--speed", "cloud=1.5")
    assert result.exit_code == 0, result.stderr
    assert calls[0][-2:] == (("edge-a", 0.25), ("cloud", 1.5))
    for wrong in ("edge-a", "edge-a=fast"):
        result = speck("fog", "up", "--speed", wrong)
        assert result.exit_code == 1
        assert f"cannot use --speed {wrong}: write SITE=CORES" in result.stderr


def test_a_fog_with_tls_uses_the_authority_of_speck_ca(
    speck: Run, calls: list[Any], tmp_path: Path
) -> None:
    assert speck("fog", "up", "--tls", SPECK_HOME=str(tmp_path)).exit_code == 0
    assert calls[0][-1] == tmp_path / "ca"
    calls.clear()
    assert speck("fog", "up").exit_code == 0
    assert calls[0] == (3, 8, 24, 1, "single")


def test_a_wan_from_a_file(speck: Run, calls: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "wan.yaml"
    file.write_text("uplinks: {edge-q: {up_mbps: 2}}")
    assert speck("fog", "up", "--wan", str(file), "--wan-mode", "namespaces").exit_code == 0
    assert calls[0][-2:] == (Wan({"edge-q": Uplink(up_mbps=2)}), "namespaces")
    file.write_text("uplinks: {edge-q: {up_mbps: -2}}")
    result = speck("fog", "up", "--wan", str(file))
    assert result.exit_code == 1
    assert "uplinks.edge-q.up_mbps (line 1): must be a number of Mb/s" in result.stderr


LINK = LinkStatus("edge-q", True, 1200, 90, 2.0, None, 9.3, 11, 1)


def test_links(alone: Run, calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert alone("fog", "links").stdout == "the fog has no WAN\n"
    assert "links" not in json.loads(alone("fog", "status", "-o", "json").stdout)
    monkeypatch.setattr(Fog, "links", lambda _: [LINK, replace(LINK, site="b", up=False)])
    lines = alone("fog", "links").stdout.splitlines()
    assert lines[1].split() == ["edge-q", "up", "2", "any", "9.3", "1200", "90", "11", "1"]
    assert lines[2].split()[:2] == ["b", "down"]
    data = json.loads(alone("fog", "links", "-o", "json").stdout)
    assert data["links"][0] == asdict(LINK)
    assert lines[1] in alone("fog", "status").stdout
    assert json.loads(alone("fog", "status", "-o", "json").stdout)["links"] == data["links"]


def test_a_link_is_changed(alone: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[Any, ...]] = []
    monkeypatch.setattr(Fog, "links", lambda _: [LINK])
    monkeypatch.setattr(Fog, "set_link", lambda _, *args: requests.append(args))
    monkeypatch.setattr(Fog, "shape", lambda _, *args: requests.append(args))
    assert alone("fog", "link", "edge-q", "down").stderr == "the link of edge-q is down\n"
    assert alone("fog", "link", "edge-q", "up").exit_code == 0
    result = alone("fog", "shape", "edge-q", "--down", "10", "--latency", "20")
    assert result.stderr == "the link of edge-q: 2 Mb/s up, 10 Mb/s down, 20 ms\n"
    assert alone("fog", "shape", "edge-q", "--up", "0").exit_code == 0
    assert requests == [
        ("edge-q", False),
        ("edge-q", True),
        ("edge-q", Uplink(2.0, 10.0, 20.0)),
        ("edge-q", Uplink(None, None, 9.3)),
    ]
    assert "give --up, --down or --latency" in alone("fog", "shape", "edge-q").stderr
    assert "cannot find an uplink of b" in alone("fog", "shape", "b", "--up", "1").stderr


def test_a_program_at_a_site(alone: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(Fog, "enter", lambda _, site: ["in", site])
    monkeypatch.setattr("os.execvp", lambda _, argv: ran.append(argv))
    assert alone("fog", "exec", "edge-q", "--", "ip", "-s", "link").exit_code == 0
    assert ran == [["in", "edge-q", "ip", "-s", "link"]]


def test_agents_get_tokens_of_their_sites(speck: Run, calls: list[Any], server: Server) -> None:
    admin = speck("token", "add", "root", "--role", "admin").stdout.strip()
    for _ in range(2):
        result = speck("fog", "up", SPECK_TOKEN=admin)
        assert result.exit_code == 0, result.stderr
    secrets = [call[2] for call in calls if call[0] == "agents"]
    assert len(set(secrets)) == 2
    tokens = json.loads(speck("token", "list", "-o", "json", SPECK_TOKEN=admin).stdout)
    agent_tokens = [token for token in tokens["tokens"] if token["name"] == "agent-edge-q"]
    assert [(token["role"], token["site"]) for token in agent_tokens] == [("site", "edge-q")]


def test_status_and_down(alone: Run, calls: list[Any]) -> None:
    output = alone("fog", "status").stdout
    assert "edge-q  edge  up     7     8      305" in output
    assert "broker:11 engine:12" in output
    assert "total memory: 305 MB\ndead processes stay down" in output
    data = json.loads(alone("fog", "status", "-o", "json").stdout)
    assert data["rss_mb"] == 305.0
    assert data["sites"][0]["state"] == "up"
    assert alone("fog", "down", "--keep").stderr == "2 processes ended\n"
    assert calls == [(True,)]


def test_down_asks_when_jobs_are_deployed(
    speck: Run, calls: list[Any], server: Server, chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = replace(SITE, name="edge-a", host="edge-a.test", engine_port=8081)
    monkeypatch.setattr(Fog, "sites", lambda _: (edge,))
    assert speck("fog", "down").exit_code == 0  # nothing is deployed there
    assert speck("apply", chain, "--yes").exit_code == 0
    result = speck("fog", "down")
    assert result.exit_code == 1
    assert "cannot ask for confirmation" in result.stderr
    assert calls == [(False,)]
    assert speck("fog", "down", "--keep").exit_code == 0
    assert speck("fog", "down", "--yes").exit_code == 0
    assert calls == [(False,), (True,), (False,)]


def test_a_process_is_killed_and_restarted(
    alone: Run, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[Any, ...]] = []
    monkeypatch.setattr(Fog, "kill", lambda _, *args: requests.append(("kill", *args)))
    monkeypatch.setattr(Fog, "restart", lambda _, *args: requests.append(("restart", *args)))
    result = alone("fog", "kill", "edge-q")
    assert result.stderr == (
        "the engine of edge-q was killed; restart it with `speck fog restart edge-q`\n"
    )
    monkeypatch.setattr(Fog, "supervised", True)
    result = alone("fog", "kill", "edge-q", "broker")
    assert result.stderr == "the broker of edge-q was killed; it will be restarted in 2 s\n"
    assert alone("fog", "restart", "edge-q", "agent").stderr == "the agent of edge-q is up again\n"
    assert alone("fog", "restart", "edge-q").stderr == "edge-q is up again\n"
    assert requests == [
        ("kill", "edge-q", "engine"),
        ("kill", "edge-q", "broker"),
        ("restart", "edge-q", "agent"),
        ("restart", "edge-q", None),
    ]
    assert alone("fog", "kill", "edge-q", "disk").exit_code == 1


def test_status_tells_how_many_cores_a_site_may_use(
    alone: Run, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "MAX CORES" not in alone("fog", "status").stdout
    site = SiteStatus("edge-q", "edge", "http://e", "tcp://b", (), 8, 7, 0.25)
    monkeypatch.setattr(Fog, "status", lambda _: [site])
    output = alone("fog", "status").stdout
    assert "MAX CORES" in output
    assert "0.25       http://e" in output
    assert json.loads(alone("fog", "status", "-o", "json").stdout)["sites"][0]["speed"] == 0.25


def test_a_fog_that_is_down(alone: Run) -> None:
    assert alone("fog", "status").stdout == "the fog is down\n"
    assert "bring one up" in alone("fog", "register").stderr


TRACE = """\
stream,time_s,sensor_id,vehicle_id,speed_mps,length_m,vehicle_type
A1,1.0,A1-01,v1,10.0,4.5,car
B1,2.0,B1-01,v2,10.0,4.5,car
"""


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[ReplayOptions]:
    """The options of each replay; nothing is published."""
    orders: list[ReplayOptions] = []

    class Fake:
        cancelled = False

        def __init__(self, rows: Any, options: ReplayOptions, **_: Any):
            orders.append(options)

        def run(self) -> Summary:
            return Summary(2, 0, 2, 0, 0, 0.25, cancelled=len(orders) > 1)

    monkeypatch.setattr("speck.fog.replay.Replay", Fake)
    return orders


def test_replay_goes_to_the_registered_sites(
    speck: Run, replays: list[ReplayOptions], tmp_path: Path
) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    result = speck("replay", "trace.csv", "--rate", "100", "--copies", "2", "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["published"] == 2
    (options,) = replays
    assert options.brokers == {"A": "tcp://edge-a.test:1883", "B": "tcp://edge-b.test:1883"}
    assert (options.rate, options.copies, options.readers) == (100, 2, "some")
    cancelled = speck("replay", "trace.csv")
    assert cancelled.exit_code == 1
    assert "the replay was cancelled" in cancelled.stderr


def test_replay_without_a_service(alone: Run, replays: list[ReplayOptions], tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    options = ("--broker", "A=tcp://a:1", "--broker", "B=tcp://b:1")
    result = alone("replay", "trace.csv", *options)
    assert result.exit_code == 0, result.stderr
    assert replays[0].brokers == {"A": "tcp://a:1", "B": "tcp://b:1"}
    assert "cannot reach speck" in alone("replay", "trace.csv").stderr
    assert alone("replay", "trace.csv", "--broker", "A").exit_code == 1
    assert "no such file" in alone("replay", "nothing.csv").stderr


def test_replay_names_the_site_that_is_missing(
    speck: Run, replays: list[ReplayOptions], tmp_path: Path
) -> None:
    (tmp_path / "trace.csv").write_text(TRACE.replace("B1", "Z1"))
    result = speck("replay", "trace.csv")
    assert result.exit_code == 1
    assert "give --broker Z=tcp://host:port" in result.stderr
    named = speck("replay", "trace.csv", "--broker", "Z=cloud")
    assert named.exit_code == 0, named.stderr
    assert replays[0].brokers["Z"] == "tcp://cloud.test:1883"


def test_replay_uses_the_credentials_of_the_home(
    speck: Run, server: Server, replays: list[ReplayOptions], tmp_path: Path
) -> None:
    body = site_body("edge-s")
    body["broker"]["credentials"] = "edge-s"
    (tmp_path / "site.json").write_text(json.dumps(body))
    assert speck("site", "add", "-f", "site.json").exit_code == 0
    (tmp_path / "trace.csv").write_text(TRACE.replace("A1", "S1"))
    missing = speck("replay", "trace.csv")
    assert "cannot read the credentials" in missing.stderr
    folder = tmp_path / "offline" / "credentials"
    folder.mkdir(parents=True)
    file = folder / "edge-s"
    file.write_text("user=u\npassword=p=q\nca=ca.pem\n")
    file.chmod(0o644)
    assert f"run: chmod 0600 {file}" in speck("replay", "trace.csv").stderr
    file.chmod(0o600)
    assert speck("replay", "trace.csv").exit_code == 0
    assert replays[0].logins is not None
    assert replays[0].logins["S"].password == "p=q"
    assert replays[0].logins["S"].tls.ca == folder / "ca.pem"
    file.write_text("user=u\npassword=p=q\naddress=tcp://elsewhere:1883\n")
    foreign = speck("replay", "trace.csv")
    assert foreign.exit_code == 1
    assert "they are for tcp://elsewhere:1883" in foreign.stderr
    assert len(replays) == 1
