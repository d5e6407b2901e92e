"""What the benchmarks share: a fog with a service, results as JSON, the machine's facts."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import requests

from bench.engine_jobs import write_jobs
from speck.errors import SpeckError
from speck.fog.flink import find_java
from speck.fog.mosquitto import find_mosquitto
from speck.fog.paths import edge_jar
from speck.fog.service import serving
from speck.fog.site_record import MOSQUITTO
from speck.fog.sites import Fog
from speck.fog.wan import Wan
from speck.model.values import JsonObject

RESULTS = Path(__file__).parent / "results"
RAW = Path(__file__).parent / "raw"
_AGENTS_S = 120.0


def find_code() -> str:
    """The commit of the product, with `+` when its tracked files differ from it.

    Commits that touch neither the product nor its jobs (benchmarks, tests, documents) do not
    count: what was measured stays the same.
    """
    folder = Path(__file__).parents[1]

    def git(*words: str) -> str:
        process = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True)
        return process.stdout.strip()

    tests = ":(exclude)edge_jobs/*/src/test/*"
    product = ("speck", "binders", "policies", "edge_jobs", "compositions", tests)
    changes = git("status", "--porcelain", "--untracked-files=no", "--", *product)
    commit = git("log", "-1", "--format=%h", "--", *product)
    return (commit + "+" if changes else commit) or "unknown"


_BEGAN = time.time()
_CODE = find_code()  # as the program begins: a commit while it runs is not what was measured


def is_quick() -> bool:
    """QUICK=1: few and short runs, to see that an experiment works; its figures prove nothing."""
    return os.environ.get("QUICK") == "1"


def say(text: str) -> None:
    """Talk, on stderr."""
    print(text, file=sys.stderr, flush=True)


def end_well_when_told() -> None:
    """SIGTERM ends an experiment as Ctrl-C does: what it has started goes with it. SIGINT does so
    in the background, too, where a shell lets programs begin that ignore it."""
    if threading.current_thread() is threading.main_thread():
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.default_int_handler)


def write_result(name: str, content: JsonObject) -> Path:
    """Write bench/results/<name>, with how it was made (`made`), and print it on stdout; the file.

    QUICK=1 writes bench/raw/<name>-quick.json instead: a trial never replaces a figure.
    """
    folder, file = (RAW, Path(name).stem + "-quick.json") if is_quick() else (RESULTS, name)
    folder.mkdir(exist_ok=True)
    text = json.dumps({**content, "made": provenance(_BEGAN)}, indent=1)
    (folder / file).write_text(text + "\n")
    print(text)
    return folder / file


def write_series(name: str, series: str, content: JsonObject) -> Path:
    """Replace a series of bench/results/<name>, with how that series was made; the file. What else
    is in the file stays as it was made."""
    file = RESULTS / name
    result = json.loads(file.read_text()) if file.exists() else {}
    if is_quick():
        file, result = RAW / f"{file.stem}-{series}-quick.json", {}
    file.parent.mkdir(exist_ok=True)
    result[series] = {**content, "made": provenance(_BEGAN)}
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result[series], indent=1))
    return file


def provenance(began: float) -> JsonObject:
    """How and when a result is made. `began`: when its program did, in s since 1970."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    module = spec.name if spec else Path(sys.argv[0]).name
    return {
        "command": " ".join(["python -m", module, *sys.argv[1:]]),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(time.time() - began, 1),
        "quick": is_quick(),
        "code": _CODE,
        "machine": {**machine(), **versions()},
    }


def versions() -> JsonObject:
    """The versions of the fog's components; missing components are left out."""
    versions_by_tool: JsonObject = {}
    for key, package in (("flink", "apache-flink-libraries"), ("spark", "pyspark")):
        with suppress(PackageNotFoundError):
            versions_by_tool[key] = version(package)
    for key, find, option in (("mosquitto", find_mosquitto, "-h"), ("java", find_java, "-version")):
        with suppress(SpeckError, OSError):
            process = subprocess.run([find(), option], capture_output=True, text=True, timeout=20)
            if match := re.search(r"version \"?([\w.+]+)", process.stdout + process.stderr):
                versions_by_tool[key] = match.group(1)
    return versions_by_tool


def machine() -> JsonObject:
    """The machine on which the figures were measured."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def timed(action: Callable[[], object]) -> float:
    """Seconds that `action` takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


class Api:
    """The service over HTTP; refuses any answer that is no success."""

    def __init__(self, url: str):
        self.url = url
        self.session = requests.Session()
        self.session.trust_env = False

    def call(self, method: str, path: str, body: object = None, **query: object) -> JsonObject:
        answer = self.session.request(method, self.url + path, json=body, params=query, timeout=900)
        if not answer.ok:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text[:2000]}")
        return answer.json() if answer.content else {}

    def apply(self, composition: JsonObject) -> JsonObject:
        """Apply and wait until the change is done."""
        answer = self.call("POST", "/compositions", composition, wait=800)
        if answer.get("state") != "done":
            raise RuntimeError(self.call("GET", f"/changes/{answer['change']}"))
        return answer


@contextmanager
def fog_with_service(
    edges: int,
    clouds: int,
    slots: int,
    checkpoint_interval_s: float = 1.0,
    *,
    wan: Wan | None = None,
    speeds: Mapping[str, float] | None = None,
    cloud_broker: str = MOSQUITTO,
    more: Mapping[str, str] | None = None,
    programs: bool = False,
    spark: bool = False,
) -> Iterator[tuple[Fog, Api]]:
    """A fresh local fog registered with a fresh service, both gone afterwards; `more` are
    variables of the service's environment. With `programs` or `spark` (see `Fog.up`) each site
    keeps its state to itself and has an agent, and there are the jobs of `bench.engine_jobs`."""
    end_well_when_told()
    with tempfile.TemporaryDirectory(prefix="speck-bench-") as folder:
        fog = Fog(Path(folder) / "fog")
        try:
            say(f"bringing up {edges + clouds} sites")
            fog.up(
                edges=edges,
                clouds=clouds,
                slots=slots,
                cloud_slots=slots,
                checkpoint_interval_s=checkpoint_interval_s,
                wan=wan,
                speeds=speeds,
                cloud_broker=cloud_broker,
                programs=programs,
                spark=spark,
            )
            jars = [edge_jar("speck-jobs.jar").parent]
            if programs or spark:
                jars = list(write_jobs(Path(folder) / "programs"))
            with serving(Path(folder) / "home", jars, more=more) as server:
                api = Api(server.url)
                for body in fog.site_bodies():
                    api.call("POST", "/sites", body)
                if programs or spark:
                    fog.start_agents(server.url)
                    await_agents(api)
                yield fog, api
        finally:
            fog.down()


def await_agents(api: Api) -> None:
    """Wait until each site's agent has been heard, and no engine is missing. Raises
    RuntimeError."""
    until = time.monotonic() + _AGENTS_S
    while not all(
        site.get("last_seen") and site.get("state") != "degraded"
        for site in api.call("GET", "/sites")["sites"]
    ):
        if time.monotonic() > until:
            raise RuntimeError(f"cannot hear from an agent at each site in {_AGENTS_S:g} s")
        time.sleep(0.1)


def sleep_until(at: float) -> None:
    """Do nothing until then (monotonic)."""
    time.sleep(max(0.0, at - time.monotonic()))
