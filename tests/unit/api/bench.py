"""An application over memory sites: edge-a, edge-b and cloud, and a jar of one class."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient

from binders.memory import World
from speck.api.app import create_app
from speck.config import Config
from speck.deploy.execution import Bounds
from speck.service import Service
from tests.waiting import wait_for

ENTRY_CLASS = "package.ExampleJob"


@dataclass(frozen=True)
class Bench:
    """The application, its service and the engines' other side."""

    world: World
    service: Service
    client: FlaskClient
    jar: Path

    def add_sites(self) -> None:
        """Register edge-a, edge-b and cloud."""
        for name in ("edge-a", "edge-b", "cloud"):
            assert self.client.post("/sites", json=site(name)).status_code == 201

    def wait_for_operation(self, kind: str, state: str) -> None:
        """Until an operation of a change under way has that state."""

        def is_there() -> bool:
            return any(
                (operation.kind, operation.state) == (kind, state)
                for running in self.service.changes.all_under_way()
                for operation in (each.outcome() for each in running.change.operations)
            )

        wait_for(is_there, f"a {kind} that is {state}")

    def wait_until_blocked(self) -> None:
        """Until nothing but a site that does not answer keeps the changes under way going."""
        under_way = self.service.changes.all_under_way
        wait_for(lambda: {r.change.state for r in under_way()} == {"blocked"}, "a blocked change")

    def open(self, config: Config) -> FlaskClient:
        """Another application over the same service that believes in another config."""
        self.service.config = config
        return create_app(self.service).test_client()


def site(name: str, **more: Any) -> dict[str, Any]:
    """A site's description."""
    return {
        "name": name,
        "tier": "cloud" if name == "cloud" else "edge",
        "spe": {"kind": "memory", "address": f"http://{name}:8081"},
        "broker": {"kind": "memory", "address": f"tcp://{name}:1883"},
        **more,
    }


def job(name: str, **more: Any) -> dict[str, Any]:
    """A job's description, on edge-a unless it says otherwise."""
    return {
        "job_name": name,
        "site": "edge-a",
        "source_topic": f"{name}-in",
        "sink_topic": f"{name}-out",
        "entry_class": ENTRY_CLASS,
        "job_path": "test-1.jar",
        **more,
    }


def composition(*jobs: dict[str, Any], name: str = "demo") -> dict[str, Any]:
    """A composition's description."""
    return {"name": name, "jobs": list(jobs)}


@contextmanager
def open_bench(folder: Path) -> Iterator[Bench]:
    """A new application with its home in `folder`."""
    world = World.reset(slots=8)
    jars = folder / "jars"
    jars.mkdir()
    jar = jars / "test-1.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("package/ExampleJob.class", b"")
    config = Config(home=folder / "home", jar_folders=(jars,), threads=8, simulated=True)
    service = Service(config, bounds=Bounds(poll_s=0.005, retry_first_s=0.01, retry_for_s=0.05))
    app = create_app(service)
    yield Bench(world, service, app.test_client(), jar)
    for address in ("edge-a", "edge-b", "cloud"):  # let what a test held come to its end
        world.engine(f"http://{address}:8081").unreachable = False
        world.engine(f"http://{address}:8081").let_go()
        world.broker(f"tcp://{address}:1883").unreachable = False
    service.close()
