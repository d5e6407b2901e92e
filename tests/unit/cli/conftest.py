"""The CLI against the real application over memory sites, on a loopback port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from speck.cli.main import root
from speck.service import Service
from tests.memory_fog import memory_service, site_body
from tests.served import served

SITES = ("edge-a", "edge-b", "cloud")

COMPOSITION = """\
name: chain
jobs:
- job_name: clean
  site: edge-a
  sink_site: cloud
  source_topic: raw
  sink_topic: clean
  entry_class: package.ExampleJob
  job_path: test-1.jar
- job_name: keep
  site: cloud
  source_topic: clean
  sink_topic: kept
  entry_class: package.ExampleJob
  job_path: test-1.jar
inputs: [{site: edge-a, topic: raw}]
outputs: [{site: cloud, topic: kept}]
"""

Run = Callable[..., Result]


class Server:
    """The application's address, and its service to look into."""

    def __init__(self, url: str, service: Service):
        self.url = url
        self.service = service


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A service over three memory sites, answering on a free port."""
    with (
        memory_service(tmp_path, map(site_body, SITES)) as service,
        served(service) as url,
    ):
        yield Server(url, service)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `speck` where no service answers; keywords are variables of its environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("SPECK_TOKEN", "SPECK_TOKEN_FILE", "SPECK_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*args: str, stdin: str | None = None, **env: str) -> Result:
        settings = {
            "SPECK_SERVER": "http://127.0.0.1:1",
            "SPECK_HOME": str(tmp_path / "offline"),
            **env,
        }
        return CliRunner().invoke(root, args, input=stdin, env=settings, prog_name="speck")

    return run


@pytest.fixture
def speck(server: Server, alone: Run) -> Run:
    """Runs `speck` against `server`."""

    def run(*args: str, stdin: str | None = None, **env: str) -> Result:
        return alone(*args, stdin=stdin, **{"SPECK_SERVER": server.url, **env})

    return run


@pytest.fixture
def chain(tmp_path: Path) -> str:
    """A file with a composition of two jobs."""
    file = tmp_path / "chain.yaml"
    file.write_text(COMPOSITION)
    return str(file)
