"""How the driver's JVM starts: ready early, and with little work beside that of Spark.

Most of a first answer is loading and compiling the classes of Spark. An archive of loaded classes
(class data sharing) is mapped into memory instead: the application that stays up writes one after
its first answer, and later JVMs of the same Java and the same Spark use it. A JVM ignores an
archive that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of the JVM that only prints the command line of the driver's."""

_OPTIONS = (
    # pauses do not matter: G1 takes threads of its own from the few cores
    "-XX:+UseParallelGC",
    # Spark's planner has many methods that are called some thousand times: to optimise each takes
    # longer than it saves. Loops over rows reach these numbers soon.
    "-XX:Tier4InvocationThreshold=30000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=60000",
)
_SMALL_OPTIONS = (
    # one thread for pauses of some ms, and no memory for each of several
    "-XX:+UseSerialGC",
    # the first compiler's code does for few rows; the second takes longer than it saves
    "-XX:TieredStopAtLevel=1",
    # the heap grows with what it holds, not with what could be left as garbage
    "-Xms96m",
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
)
"""Of a JVM for few rows."""
SMALL_HEAP = "512m"
"""The heap of a JVM for few rows: Spark accepts none below 450 MB."""
ARCHIVES = 3
"""The archives to keep, of some 130 MB each: those used last."""

_END_S = 10.0
_OBJECTS, _STRINGS = "[Ljava.lang.Object;", "[Ljava.lang.String;"
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def list_options(*, is_small: bool = False) -> list[str]:
    """The options of the driver's JVM; of one for few rows."""
    own = _SMALL_OPTIONS if is_small else _OPTIONS
    archive = find_archive()
    if archive.is_file() and archive.stat().st_uid == os.getuid():
        with suppress(OSError):
            os.utime(archive)
        return [*own, f"-XX:SharedArchiveFile={archive}", _QUIET]
    # Java 17 and later
    options = "-XX:+IgnoreUnrecognizedVMOptions", "-XX:+RecordDynamicDumpInfo"
    return [*own, *options, _QUIET]


def find_archive() -> Path:
    """The file for the archive of this Java and this Spark, in the user's cache."""
    import pyspark

    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin/java") if home else Path(shutil.which("java") or "java")
    jars = Path(pyspark.__file__).parent / "jars"
    parts = [pyspark.__version__]
    for file in (java.resolve(), jars):
        parts += [str(file), str(file.stat().st_mtime_ns if file.exists() else 0)]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return Path(cache, "speck", f"spark-{digest}.jsa")


def write_archive(spark: SparkSession) -> bool:
    """Write the archive of what the driver's JVM has loaded, unless there is one; returns whether
    it was written. Takes seconds, during which the JVM stands still, and memory that it keeps. A
    JVM that cannot is left alone."""
    archive = find_archive()
    if archive.exists():
        return False
    unfinished = archive.with_name(f".{secrets.token_hex(8)}.jsa")
    try:
        archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _dump(spark, unfinished)
        unfinished.replace(archive)
        with suppress(OSError):  # another process removes them, too
            _remove_unused(archive.parent)
    except Exception as error:  # of Java's, too: it is only slower without
        print(f"cannot write {archive}: {error}")
        return False
    finally:
        with suppress(OSError):  # the cache may be no folder
            unfinished.unlink()
    return True


def end_jvm(spark: SparkSession) -> None:
    """End Spark with the driver's JVM: the next session starts another one."""
    context = type(spark.sparkContext)
    gateway = context._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # which ends the JVM
    try:
        gateway.proc.wait(_END_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    context._gateway = context._jvm = None


def _remove_unused(folder: Path) -> None:
    """Remove the archives of a Java or Spark that was replaced. A JVM that has mapped one keeps
    it."""
    by_age = sorted(folder.glob("spark-*.jsa"), key=lambda file: file.stat().st_mtime_ns)
    for file in by_age[:-ARCHIVES]:
        file.unlink(missing_ok=True)


def _dump(spark: SparkSession, file: Path) -> None:
    """As `jcmd VM.cds dynamic_dump` does it, which a runtime without development tools lacks."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    lang = gateway.jvm.java.lang

    def array_of(kind: str, *values: object) -> object:
        array = gateway.new_array(getattr(lang, kind), len(values))
        for place, value in enumerate(values):
            array[place] = value
        return array

    management = gateway.jvm.javax.management
    name = management.ObjectName("com.sun.management:type=DiagnosticCommand")
    words = array_of("String", "dynamic_dump", str(file))
    kinds = "javax.management.ObjectName", "java.lang.String", _OBJECTS, _STRINGS
    # by reflection, since the class of the server itself is not exported
    method = lang.Class.forName("javax.management.MBeanServer").getMethod(
        "invoke", array_of("Class", *(lang.Class.forName(kind) for kind in kinds))
    )
    arguments = name, "vmCds", array_of("Object", words), array_of("String", _STRINGS)
    server = lang.management.ManagementFactory.getPlatformMBeanServer()
    method.invoke(server, array_of("Object", *arguments))
