"""The state on disk of a composition of 1000 jobs; the paper reports 754 KB for its own.

A real store, filled by the real service; the sites are in-memory binders, since what engines do
does not change what is stored. `make bench-state` writes bench/results/state.json;
QUICK=1 takes 100 jobs.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

from bench.common import is_quick, write_result
from binders.memory import World
from speck.config import Config
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.schema import composition_from_data
from speck.spec.site_schema import site_from_data
from speck.store.leveldb import Store

JOBS = 100 if is_quick() else 1000
SITES = 6


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="speck-bench-") as folder:
        home = Path(folder)
        with zipfile.ZipFile(home / "test-1.jar", "w") as archive:
            archive.writestr("package/ExampleJob.class", b"1")
        World.reset(slots=JOBS)
        service = Service(Config(home=home / "home", jar_folders=(home,), simulated=True))
        for number in range(SITES):
            service.sites.add(site_from_data(_site(number)))
        answer = service.compositions.apply(
            composition_from_data(_chain()), ApplyRequest(wait_s=600)
        )
        assert answer.state == "done", answer
        service.records.store.compact()
        records = {}
        for key, record in service.records.store.scan(""):
            kind = key.split("/")[0]
            records[kind] = records.get(kind, 0) + len(key) + len(str(record))
        service.close()
        folder = home / "home" / "store"
        store = Store.open(folder)
        store.compact()
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        store.close()
    write_result(
        "state.json",
        {"jobs": JOBS, "bytes": size, "paper_bytes": 754_000, "characters_by_kind": records},
    )


def _site(number: int) -> dict[str, object]:
    return {
        "name": f"site-{number}",
        "tier": "edge",
        "spe": {"kind": "memory", "address": f"http://10.0.0.{number + 1}:8081"},
        "broker": {"kind": "memory", "address": f"tcp://10.0.0.{number + 1}:1883"},
    }


def _chain() -> dict[str, object]:
    return {
        "name": "chain",
        "jobs": [
            {
                "job_name": f"job-{n:04d}",
                "site": f"site-{n % SITES}",
                "source_topic": f"chain/{n}",
                "sink_topic": f"chain/{n + 1}",
                "sink_site": f"site-{(n + 1) % SITES}",
                "entry_class": "package.ExampleJob",
                "job_path": "test-1.jar",
            }
            for n in range(JOBS)
        ],
    }


if __name__ == "__main__":
    main()
