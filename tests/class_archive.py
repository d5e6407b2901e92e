"""An archive of the classes that a single-JVM Flink loads (class data sharing): an engine that maps
it starts in half of the CPU time.

`make test` writes it once for these jars and this Java. Without it engines start as users' do, and
a JVM ignores an archive that does not fit. It is for tests only: the exit guard is a Java agent,
and Java calls an archive of a JVM with an agent unfit for production.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from uuid import uuid4

from binders.flink.engine import FlinkEngine
from speck.binding import Artifact, ArtifactKind, Submission, Target
from speck.errors import PermanentError
from speck.fog import flink, flink_conf
from speck.fog.paths import cache_folder, edge_jar, flink_folder
from speck.model.observation import RunState
from tests.flink_server import JOB_CLASS, build_trial_jar, flink_cluster, sha256_of
from tests.waiting import wait_for

_OPTIONS = (
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:+AllowArchivingWithJavaAgent",
    "-XX:-PrintWarnings",
    "-Xlog:cds*=off",
)


def find_archive() -> Path:
    """The file for the archive of this Java and these jars. Raises PermanentError if one of them is
    not there."""
    jars = (edge_jar("speck-exit-guard.jar"), edge_jar("speck-runtime.jar"))
    files = (flink.find_java().resolve(), *jars, *flink.flink_jars(flink_folder()))
    parts = [f"{file} {file.stat().st_mtime_ns}" for file in files]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache_folder() / f"engine-{digest}.jsa"


def use_archive() -> None:
    """Let the engines that this process starts map the archive, if there is one."""
    try:
        archive = find_archive()
    except PermanentError:  # no engine can be started, either
        return
    if archive.exists():
        flink_conf.JAVA_OPTIONS += (*_OPTIONS, f"-XX:SharedArchiveFile={archive}")


def write_archive() -> None:
    """Write the archive of what an engine and its first job have loaded, unless it is there."""
    archive = find_archive()
    if archive.exists():
        return
    for former in archive.parent.glob("engine-*.jsa"):
        former.unlink()
    with tempfile.TemporaryDirectory() as name:
        folder, unfinished = Path(name), Path(name, "engine.jsa")
        flink_conf.JAVA_OPTIONS += (*_OPTIONS, f"-XX:ArchiveClassesAtExit={unfinished}")
        with flink_cluster(folder / "flink", slots=1) as server:
            _run_job(FlinkEngine(Target(server.url)), folder)
            server.engine.stop(120.0)
        archive.write_bytes(unfinished.read_bytes())


def _run_job(engine: FlinkEngine, folder: Path) -> None:
    """Start a job and stop it with a savepoint."""
    jar = build_trial_jar(folder / "job")
    job, trigger = uuid4().hex, uuid4().hex
    artifact = Artifact(sha256_of(jar), jar, ArtifactKind.JAR)
    engine.submit(Submission(job, "trial", artifact, JOB_CLASS, ()))
    wait_for(lambda: engine.status(job) is RunState.RUNNING, "a job")
    engine.view()
    engine.stop(job, None, trigger)
    wait_for(lambda: engine.save_progress(job, trigger).done, "its savepoint")
    engine.close()


if __name__ == "__main__":
    write_archive()
