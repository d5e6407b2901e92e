"""Two memory sites and a jar."""

from __future__ import annotations

from pathlib import Path

from binders.memory import World
from speck.binding import Artifact, Submission
from speck.model.engines import ArtifactKind

EDGE = "http://172.16.39.7:8081"
EDGE_BROKER = "tcp://172.16.39.7:1883"
CLOUD_BROKER = "tcp://172.16.192.18:1883"


def submission(
    jar: Path,
    job_id: str = "a" * 32,
    name: str = "clean",
    *,
    source: tuple[str, str] = (EDGE_BROKER, "raw"),
    sink: tuple[str, str] = (CLOUD_BROKER, "clean"),
    attempt: int = 1,
    sink_readers: str = "some",
    parallelism: int = 1,
    savepoint: str | None = None,
) -> Submission:
    args = (
        *("--job-name", name),
        *("--source-broker", source[0], "--source-topic", source[1]),
        *("--sink-broker", sink[0], "--sink-topic", sink[1]),
        *("--client-id", f"speck-1234abcd-{name}-00000000", "--epoch", str(attempt)),
        *("--delivery", "at_least_once", "--sink-readers", sink_readers, "--own", "arg"),
    )
    return Submission(
        job_id,
        name,
        Artifact("f" * 64, jar, ArtifactKind.JAR),
        "x.Job",
        args,
        parallelism,
        savepoint,
    )


def read(world: World, broker: str, client_id: str) -> list[bytes]:
    return world.broker(broker).take(client_id)
