"""docker/: the Dockerfile, the compose files, the scripts and the systemd units hold together.

tests/services/test_docker_configs.py runs the same scripts and configs for real.
"""

import configparser
import json
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from binders.flink.ends import find_last_end
from speck.cli.commands.agent import agent
from speck.cli.commands.runner import runner
from speck.config import Config
from speck.spec.site_schema import site_from_data

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
COMPOSE = sorted(DOCKER.glob("compose.*.yaml"))
SCRIPTS = sorted([*(DOCKER / "bin").glob("*.sh"), *(DOCKER / "systemd").glob("*.sh")])
TOOLS = Path(sys.executable).parent


def run(*command: str | Path, **options: Any) -> str:
    process = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=60, **options
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return str(process.stdout)


def services() -> dict[str, dict[str, Any]]:
    by_name: dict[str, dict[str, Any]] = {}
    for path in COMPOSE:
        by_name |= yaml.safe_load(path.read_text()).get("services", {})
    return by_name


def stages() -> set[str]:
    return set(re.findall(r"^FROM .* AS (\w+)$", (DOCKER / "Dockerfile").read_text(), re.M))


def unit(path: Path) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(path.read_text())
    return parsed


def test_the_linter_has_no_complaint_about_the_dockerfile() -> None:
    run(TOOLS / "hadolint", "-c", DOCKER / ".hadolint.yaml", DOCKER / "Dockerfile")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_linter_has_no_complaint_about_a_script(script: Path) -> None:
    run(TOOLS / "shellcheck", script)


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_a_compose_file_keeps_to_the_specification(path: Path) -> None:
    run(TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", path)


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_the_compose_client_accepts_a_file(path: Path) -> None:
    """Where the client has its compose plugin; the checks below need none."""
    docker = shutil.which("docker")
    if (
        docker
        and subprocess.run([docker, "compose", "version"], capture_output=True).returncode == 0
    ):
        run(docker, "compose", "-f", path, "config", "--quiet")
    else:
        for included in yaml.safe_load(path.read_text()).get("include", []):
            assert (DOCKER / included).is_file()


def test_the_fog_joins_the_three_sites_without_a_clash() -> None:
    fog = yaml.safe_load((DOCKER / "compose.fog.yaml").read_text())
    names: list[str] = []
    ports: list[str] = []
    for included in fog["include"]:
        for name, service in yaml.safe_load((DOCKER / included).read_text())["services"].items():
            names.append(name)
            ports += [re.findall(r":-(\d+)\}", port)[0] for port in service["ports"]]
    assert sorted(names) == [
        "cloud-agent",
        "cloud-broker",
        "cloud-jobmanager",
        "cloud-taskmanager",
        "control",
        "edge-agent",
        "edge-broker",
        "edge-engine",
    ]
    assert len(ports) == len(set(ports)) == 7


@pytest.mark.parametrize("name", services())
def test_a_service_is_closed_to_the_outside_and_cannot_become_more(name: str) -> None:
    service = services()[name]
    assert all(port.startswith("${SPECK_BIND:-127.0.0.1}:") for port in service["ports"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", services())
def test_a_service_builds_a_stage_of_the_dockerfile(name: str) -> None:
    build = services()[name]["build"]
    assert build["target"] in stages()
    assert (DOCKER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()


def test_the_readme_lists_every_variable_of_the_compose_files() -> None:
    variables: set[tuple[str, str]] = set()
    for path in COMPOSE:
        variables |= set(re.findall(r"\$\{(SPECK_\w+):-([^}]*)\}", path.read_text()))
    documented: set[tuple[str, str]] = set()
    rows = re.findall(r"^\| (`SPECK.*?) \| (`.*?) \|", (DOCKER / "README.md").read_text(), re.M)
    for names, defaults in rows:
        values = re.findall(r"`([^`]*)`", defaults)
        for index, name in enumerate(re.findall(r"`([^`]*)`", names)):
            documented.add((name, values[min(index, len(values) - 1)]))
    assert variables == documented


def test_no_image_runs_as_root() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    bodies = dict(re.findall(r"^FROM .*? AS (\w+)\n(.*?)(?=^FROM |\Z)", text, re.M | re.S))
    for target in ("control", "engine", "spark", "broker", "agent"):
        assert re.search(r"^USER \$\{UID\}$", bodies[target], re.M), target
    for target in ("edge", "cloud"):  # made from engine
        assert "USER" not in bodies[target]


def test_the_control_plane_is_told_by_names_that_it_knows() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    stage = text[text.index(" AS control\n") :]
    environment = dict(re.findall(r"(SPECK_\w+)=(\S+)", stage))
    config = Config.from_env(environment)
    assert config.host == "0.0.0.0"
    assert f"EXPOSE {config.port}\n" in stage
    assert config.jar_folders == (Path("/usr/src/app/jars"), Path("/opt/speck/jars"))
    mounts = services()["control"]["volumes"]
    assert f"control-data:{config.home}" in mounts
    assert any(mount.endswith(f":{config.credentials}:ro") for mount in mounts)


def test_what_the_dockerfile_copies_is_in_the_context() -> None:
    """A new source outside .dockerignore's list would fail only in a build."""
    text = (DOCKER / "Dockerfile").read_text()
    lines = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied: set[str] = set()
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.M):
        copied |= set(sources.split())
    assert copied
    for source in copied:
        assert any(source == path or source.startswith(path + "/") for path in let_in), source
        assert (ROOT / source).exists(), f"{source} is copied into an image but is not there"


def test_the_flink_of_the_images_is_the_one_of_the_local_fog() -> None:
    version = re.search(r"FLINK_VERSION=(\S+)", (DOCKER / "Dockerfile").read_text())
    assert version
    assert f"apache-flink-libraries =={version[1]}\n" in (ROOT / "setup.cfg").read_text()


@pytest.mark.parametrize("tier", ["edge", "cloud"])
def test_the_settings_that_would_lose_data_are_set(tier: str) -> None:
    config = yaml.safe_load((DOCKER / "flink" / tier / "config.yaml").read_text())
    checkpointing = config["execution"]["checkpointing"]
    assert config["web"]["upload"]["dir"].startswith("/var/lib/speck/")
    assert checkpointing["externalized-checkpoint-retention"] == "RETAIN_ON_CANCELLATION"
    assert checkpointing["num-retained"] == 5
    assert checkpointing["data-inline-threshold"] == "1mb"
    assert checkpointing["dir"].startswith("file:///var/lib/speck/state/")
    assert checkpointing["savepoint-dir"].startswith("file:///var/lib/speck/state/")
    assert config["metrics"]["fetcher"]["update-interval"] == 2000
    assert config["rest"]["async.store-duration"] == "1h"
    assert config["rest"]["cache.execution-graph.timeout"] == 500
    if tier == "edge":  # what it lists travels over its uplink
        assert config["completed-application-store"]["max-capacity"] == 200
    if tier == "cloud":  # in one JVM tasks die with the jobmanager
        assert config["heartbeat"] == {"interval": 2000, "timeout": 10000}


def test_the_broker_keeps_what_readers_have_not_taken() -> None:
    lines = (DOCKER / "mosquitto" / "mosquitto.conf").read_text().splitlines()
    settings = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    assert settings["allow_anonymous"] == "false"
    assert settings["persistence"] == "true"
    assert settings["autosave_interval"] == "5"
    assert settings["max_inflight_messages"] == "1000"
    assert settings["max_queued_messages"] == "1000000"
    assert settings["max_queued_bytes"] == "200000000"
    assert settings["queue_qos0_messages"] == "false"
    assert settings["message_size_limit"] == "1048576"
    assert settings["persistent_client_expiration"] == "30d"
    assert settings["set_tcp_nodelay"] == "true"


def test_new_credentials_are_readable_for_their_owner_only(tmp_path: Path) -> None:
    script = DOCKER / "bin" / "new-credentials.sh"
    run(script, tmp_path / "credentials", "edge", "tcp://10.0.0.7:1883/")
    file = tmp_path / "credentials" / "edge"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    values = dict(line.split("=", 1) for line in file.read_text().splitlines())
    assert values["user"] == "speck"
    assert values["address"] == "tcp://10.0.0.7:1883"
    assert len(values["password"]) == 32

    again = subprocess.run(
        [script, tmp_path / "credentials", "edge", "tcp://10.0.0.7:1883"],
        capture_output=True,
        text=True,
    )
    assert again.returncode == 1
    assert f"cannot make {file}: it is there already" in again.stderr


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("bin/engine.sh", [], "cannot start: flink-dist is not in /nowhere"),
        ("bin/broker.sh", [], "cannot start: SPECK_MQTT_URL is not set"),
        ("systemd/install.sh", [], "cannot install: usage:"),
    ],
)
def test_a_script_that_cannot_go_on_says_why(
    script: str, arguments: list[str], message: str
) -> None:
    process = subprocess.run(
        [DOCKER / script, *arguments],
        env={"PATH": "/usr/sbin:/usr/bin:/bin", "SPECK_LIB": "/nowhere"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1
    assert message in process.stderr


def test_the_units_start_what_the_images_start() -> None:
    edge = unit(DOCKER / "systemd" / "speck-edge.service")
    assert edge["Service"]["ExecStart"] == "/opt/speck/bin/engine.sh edge"
    assert edge["Service"]["User"] == "speck"
    assert edge["Service"]["Restart"] == "always"
    broker = unit(DOCKER / "systemd" / "mosquitto.service.d" / "speck.conf")
    # an empty line first: without it systemd would add a second command, and refuse both
    text = (DOCKER / "systemd" / "mosquitto.service.d" / "speck.conf").read_text()
    assert "ExecStart=\nExecStart=/opt/speck/bin/broker.sh\n" in text
    assert broker["Service"]["User"] == "mosquitto"
    for command in ("engine.sh", "broker.sh"):
        assert (DOCKER / "bin" / command).stat().st_mode & stat.S_IXUSR


def test_the_unit_notes_how_the_engine_ended(tmp_path: Path) -> None:
    command = unit(DOCKER / "systemd" / "speck-edge.service")["Service"]["ExecStopPost"]
    assert command.startswith("-/bin/sh -c ")
    (tmp_path / "log").mkdir()
    words = command.removeprefix("-").replace("$$", "$").replace("/var/lib/speck", str(tmp_path))
    result = {"SERVICE_RESULT": "oom-kill", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL"}
    subprocess.run(shlex.split(words), env=result, check=True)
    text = (tmp_path / "log" / "edge.out").read_text() + "speck: edge started 2026-11-26T10:00Z\n"
    end = find_last_end(text)
    assert end is not None
    assert "ended (oom-kill, killed KILL): it was killed, by the kernel" in end.reason


def _agents_options() -> dict[str, list[str]]:
    """The words after `speck agent` in the unit and in the compose files."""
    agent = unit(DOCKER / "systemd" / "speck-agent.service")
    options = {"unit": agent["Service"]["ExecStart"].partition(" agent ")[2].split()}
    for name in ("edge-agent", "cloud-agent", "spark-agent"):
        options[name] = services()[name]["command"].split()
    return options


@pytest.mark.parametrize("where", _agents_options())
def test_agents_are_started_with_options_that_they_know(where: str) -> None:
    agent_options = {option for parameter in agent.params for option in parameter.opts}
    options = [word for word in _agents_options()[where] if word.startswith("--")]
    assert set(options) <= agent_options
    assert {"--site", "--state-folder", "--listen"} <= set(options)


def test_an_agent_needs_nothing_but_click(tmp_path: Path) -> None:
    """So that its image and a Pi's Debian packages are enough."""
    expected = {"flask", "marshmallow", "yaml", "requests", "plyvel", "rich", "paho", "gunicorn"}
    script = (
        "import sys\n"
        "import speck.cli.main, speck.cli.commands.agent, speck.agent.agent\n"
        "import speck.cli.commands.runner, speck.runner.runner\n"
        f"print(sorted({expected!r} & set(sys.modules)))"
    )
    assert run(sys.executable, "-c", script).strip() == "[]"


def test_the_runner_is_started_with_options_that_it_knows() -> None:
    service = unit(DOCKER / "systemd" / "speck-runner.service")["Service"]
    known = {option for parameter in runner.params for option in parameter.opts}
    words = service["ExecStart"].partition(" runner ")[2].split()
    assert {word for word in words if word.startswith("--")} == {"--state-folder", "--as"}
    assert {"--state-folder", "--as"} <= known
    # programs outlive it, and may be read by the agent, whose group it has
    assert (service["KillMode"], service["Delegate"], service["Group"]) == (
        *("process", "yes"),
        unit(DOCKER / "systemd" / "speck-agent.service")["Service"]["User"],
    )


def test_the_runner_of_the_spark_image_is_started_with_options_that_it_knows() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    stage = text[text.index(" AS spark\n") :]
    entry = json.loads(
        re.findall(r"^ENTRYPOINT (\[.*?\])$", stage, re.M | re.S)[0].replace("\\", "")
    )
    service, agent_service = services()["spark-runner"], services()["spark-agent"]
    words = [*entry, *re.sub(r"\$\{\w+:-(\w+)\}", r"\1", service["command"]).split()]
    assert words[:2] == ["speck", "runner"]
    given = dict(zip(words[2::2], words[3::2], strict=True))
    assert given == {
        "--state-folder": "/var/lib/speck/state",
        "--spark-jar": "/opt/speck/lib/speck-spark-connector.jar",
        "--slots": "4",
        "--spark-memory-mb": "2048",
    }
    assert set(given) <= {option for parameter in runner.params for option in parameter.opts}
    assert f"/target/{Path(given['--spark-jar']).name} /opt/speck/lib/\n" in stage
    # the two meet in the state folder, under the same path, as the same user
    assert f"--state-folder {given['--state-folder']}" in agent_service["command"]
    for each in (service, agent_service):
        assert f"spark-state:{given['--state-folder']}" in each["volumes"]
        assert each["build"]["args"] == {"UID": "${SPECK_UID:-1000}"}
    (folder,) = re.findall(r"SPECK_CREDENTIALS_DIR=(\S+)", stage.partition("\nFROM ")[0])
    assert any(mount.endswith(f":{folder}:ro") for mount in service["volumes"])


def test_the_spark_site_joins_the_fog_without_a_clash() -> None:
    """The README adds it to the trial's project: names, ports and volumes are its own."""
    files = {path.name: yaml.safe_load(path.read_text()) for path in COMPOSE}
    own, fog = files.pop("compose.spark.yaml"), files.pop("compose.fog.yaml")
    assert set(files) == set(fog["include"])
    for others in files.values():
        assert not own["volumes"].keys() & others["volumes"].keys()
        assert not own["services"].keys() & others["services"].keys()

    def ports(file: dict[str, Any]) -> set[str]:
        published = (port for each in file["services"].values() for port in each["ports"])
        return {re.findall(r":-(\d+)\}", port)[0] for port in published}

    taken = set().union(*map(ports, files.values()))
    assert len(ports(own)) == 2
    assert not ports(own) & taken


@pytest.mark.parametrize("name", ["speck-edge", "speck-agent", "speck-runner"])
def test_systemd_understands_a_unit(name: str, tmp_path: Path) -> None:
    """Every setting by its name and value; the program is replaced by one that is there."""
    analyze = shutil.which("systemd-analyze")
    text = (DOCKER / "systemd" / f"{name}.service").read_text()
    assert set(unit(DOCKER / "systemd" / f"{name}.service").sections()) == {
        "Unit",
        "Service",
        "Install",
    }
    if analyze:
        local = tmp_path / f"{name}.service"
        local.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.M))
        process = subprocess.run([analyze, "verify", local], capture_output=True, text=True)
        assert name not in process.stderr, process.stderr


@pytest.mark.parametrize("name", ["edge", "cloud", "spark"])
def test_the_bodies_that_register_the_sites_fit_the_compose_files(name: str) -> None:
    body = json.loads((DOCKER / "sites" / f"{name}.json").read_text())
    assert site_from_data(body).name == name
    by_name = services()
    if name == "spark":
        assert body["spe"] == {"kind": "spark"}, "the agent leads to its runner"
    else:
        assert re.fullmatch(r"http://([a-z-]+):8081/", body["spe"]["address"])[1] in by_name  # type: ignore[index]
    assert re.fullmatch(r"tcp://([a-z-]+):1883", body["broker"]["address"])[1] in by_name  # type: ignore[index]
    environment = by_name[f"{name}-broker"]["environment"]["SPECK_MQTT_URL"]
    assert body["broker"]["address"] in environment
