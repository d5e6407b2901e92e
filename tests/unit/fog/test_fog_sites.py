from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from speck.errors import PermanentError
from speck.fog import kafka
from speck.fog.paths import default_folder, edge_jar
from speck.fog.process import Command, spawn
from speck.fog.site_record import SiteRecord
from speck.fog.sites import Fog, _cloud_names, _edge_names
from speck.fog.state import FogState, ProcessRecord, StateFile
from speck.fog.wan.model import Wan


def test_names_of_sites() -> None:
    assert _edge_names(3) == ["edge-a", "edge-b", "edge-c"]
    assert _edge_names(28)[-3:] == ["edge-z", "edge-aa", "edge-ab"]
    assert len(set(_edge_names(250))) == 250
    assert _cloud_names(0) == []
    assert _cloud_names(3) == ["cloud", "cloud-2", "cloud-3"]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"edges": 0, "clouds": 0}, "cannot bring up a fog of 0 edges and 0 clouds"),
        ({"edges": -1, "clouds": 2}, "give 1 to 250 sites"),
        ({"edges": 251}, "give 1 to 250 sites"),
        ({"slots": 0}, "cannot bring up a fog without slots"),
    ],
)
def test_sizes_that_make_no_fog(tmp_path: Path, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(PermanentError, match=message):
        Fog(tmp_path).up(**sizes)
    assert list(tmp_path.iterdir()) == []


def test_nothing_runs_where_there_is_no_fog(tmp_path: Path) -> None:
    fog = Fog(tmp_path)
    assert fog.status() == []
    assert fog.site_bodies() == []
    assert fog.down() == 0
    with pytest.raises(PermanentError, match=r"^cannot find a fog in .*\(speck fog up\)$"):
        fog.kill("edge-a")


def test_a_site_is_described_with_its_broker(tmp_path: Path) -> None:
    edge = SiteRecord("edge-a", "edge", "127.9.9.1", 1883, 8081, 8)
    cloud = SiteRecord("cloud", "cloud", "127.9.9.2", 9092, 8081, 8, broker="kafka")
    state = FogState("single", 1.0, None, (edge, replace(cloud, encrypted=True)))
    StateFile(tmp_path).save(state)
    brokers = [body["broker"] for body in Fog(tmp_path).site_bodies()]
    assert [(each["kind"], each["address"]) for each in brokers] == [
        ("mqtt", "tcp://127.9.9.1:1883"),
        ("kafka", "kafka+ssl://127.9.9.2:9092"),
    ]
    assert StateFile(tmp_path).load() == state


def test_kafka_does_not_go_with_proxies(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="cannot bring up a fog with Kafka behind proxies"):
        Fog(tmp_path).up(cloud_broker="kafka", wan=Wan({}), wan_mode="proxy")


def test_without_kafkas_jars_a_fog_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "cache_folder", lambda: tmp_path)
    with pytest.raises(PermanentError, match=r"cannot find Kafka's jars .*: run `make kafka`"):
        Fog(tmp_path / "fog").up(cloud_broker="kafka")
    assert not (tmp_path / "fog").exists()


def test_a_fog_of_another_shape_is_left_alone(tmp_path: Path) -> None:
    process = spawn(Command("sleep", ["sleep", "300"], tmp_path, tmp_path / "sleep.log"))
    site = SiteRecord("edge-a", "edge", "127.9.9.1", 1883, 8081, 8)
    record = ProcessRecord("edge-a", "broker", "", process)
    StateFile(tmp_path).save(FogState("single", 1.0, None, (site,), processes=(record,)))
    try:
        with pytest.raises(PermanentError, match=r"another one of 1 sites runs there; end it"):
            Fog(tmp_path).up(edges=2)
        assert process.running
    finally:
        process.kill()


def test_the_bodies_to_register(tmp_path: Path) -> None:
    site = SiteRecord("cloud", "cloud", "127.9.9.4", 1884, 8082, 16)
    StateFile(tmp_path).save(FogState("single", 1.0, None, (site,)))
    assert Fog(tmp_path).site_bodies() == [
        {
            "name": "cloud",
            "tier": "cloud",
            "spe": {"kind": "flink", "address": "http://127.9.9.4:8082"},
            "broker": {"kind": "mqtt", "address": "tcp://127.9.9.4:1884"},
            "labels": {"state_uri": f"file://{tmp_path}/state"},
        }
    ]


def test_sites_that_keep_state_to_themselves(tmp_path: Path) -> None:
    sites = (
        SiteRecord("edge-a", "edge", "127.9.9.4", 1884, 8082, 16, 8090),
        SiteRecord("cloud", "cloud", "127.9.9.5", 1884, 8082, 16, 8090),
    )
    StateFile(tmp_path).save(FogState("single", 1.0, None, sites, shared=False))
    fog = Fog(tmp_path)
    assert [body["labels"] for body in fog.site_bodies()] == [{}, {}]
    assert fog.state_folder("cloud") == tmp_path / "state" / "cloud"


def test_an_agent_gets_the_token_of_its_site_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = SiteRecord("edge-a", "edge", "127.9.9.4", 1884, 8082, 16, 0)
    StateFile(tmp_path).save(FogState("single", 1.0, None, (site,), shared=False))
    fog = Fog(tmp_path)
    fog.start_agents("http://127.9.9.4:9", lambda name: f"secret-of-{name}")
    try:
        (process,) = fog.status()[0].processes
        assert (process.what, process.running) == ("agent", True)
        words = psutil.Process(process.pid).cmdline()
        token = Path(words[words.index("--token-file") + 1])
        assert token.read_text() == "secret-of-edge-a"
        assert token.stat().st_mode & 0o777 == 0o600
        assert words[words.index("--service") + 1] == "http://127.9.9.4:9"
        fog.start_agents("http://127.9.9.4:9")
        assert fog.status()[0].processes[0].pid == process.pid
        fog.start_agents("http://127.9.9.4:10")
        assert fog.status()[0].processes[0].pid != process.pid
    finally:
        assert fog.down() == 1


def test_the_folder_of_the_fog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECK_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert default_folder() == tmp_path / ".speck" / "fog"
    monkeypatch.setenv("SPECK_HOME", "/srv/speck")
    assert Fog().folder == Path("/srv/speck/fog")


def test_jars_are_found_in_a_folder_or_in_a_built_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECK_EDGE_JOBS", str(tmp_path))
    with pytest.raises(PermanentError, match=r"^cannot find a.jar below .*: run `make jars`"):
        edge_jar("a.jar")
    built = tmp_path / "jobs" / "target" / "a.jar"
    built.parent.mkdir(parents=True)
    built.touch()
    assert edge_jar("a.jar") == built
    (tmp_path / "a.jar").touch()
    assert edge_jar("a.jar") == tmp_path / "a.jar"
