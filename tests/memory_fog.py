"""A service over in-memory sites: for unit and property tests only."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from binders.memory import World
from speck.clock import Clock
from speck.config import Config
from speck.executor import Bounds
from speck.model import JsonObject, Site
from speck.operations import Patience
from speck.schema import site_from_data
from speck.service import Service

FAST = Bounds(
    poll_s=0.001, poll_most_s=0.01, retry_first_s=0.001, retry_most_s=0.01, retry_for_s=0.05
)
HASTY = Patience(start_s=5, stop_s=5, drain_idle_s=2, drain_poll_s=0.001)


def make_jar(folder: Path, name: str = "test-1.jar", content: bytes = b"1") -> Path:
    """A small jar that holds the class of the paper's listings."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr(zipfile.ZipInfo("package/ExampleJob.class"), content)
    return folder / name


def site_body(name: str, host: str | None = None) -> JsonObject:
    """A memory site; all share storage."""
    host = host or f"{name}.test"
    return {
        "name": name,
        "tier": "cloud" if name.startswith("cloud") else "edge",
        "spe": {"kind": "memory", "address": f"http://{host}:8081"},
        "broker": {"kind": "memory", "address": f"tcp://{host}:1883"},
        "labels": {"state_uri": "memory:/state"},
    }


@contextmanager
def memory_service(
    folder: Path,
    sites: Iterable[JsonObject] = (),
    *,
    slots: int = 16,
    bounds: Bounds = FAST,
    clock: Clock | None = None,
) -> Iterator[Service]:
    """A service with its own new world, the given sites and one jar, `test-1.jar`."""
    World.reset(slots=slots)
    make_jar(folder / "jars")
    config = Config(home=folder / "home", jar_folders=(folder / "jars",))
    service = Service(config, clock, bounds=bounds, patience=HASTY)
    try:
        for body in sites:
            site: Site = site_from_data(body)
            service.sites.add(site)
        yield service
    finally:
        service.close()
