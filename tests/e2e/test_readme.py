"""The README's walk-through, block by block, as a reader would paste it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from speck.cli.main import root
from speck.fog.ports import pick_port
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- test: (\w+) -->\n```sh\n(.*?)```", re.DOTALL)


class Reader:
    """Somebody in a copy of what the checkout has, with the service on a free port."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.port = pick_port("127.0.0.1", 0)
        self.blocks = dict(BLOCK.findall((ROOT / "README.md").read_text()))
        for name in ("compositions", "edge_jobs"):
            (folder / name).symlink_to(ROOT / name)
        self.env = {
            **os.environ,
            "SPECK_ANALYZER_WARM": "0",  # what is tried here shares the machine with other tests
            "XDG_CACHE_HOME": os.devnull,  # nor is an archive of Spark's classes left for later
            "SPECK_METRICS_S": "1",  # "give it a while" is a short while
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SPECK_HOME": str(folder / "home"),
            "SPECK_PORT": str(self.port),
            "SPECK_SERVER": f"http://127.0.0.1:{self.port}",
            "NO_COLOR": "1",
        }
        self.service: subprocess.Popen[bytes] | None = None

    def text(self, name: str) -> str:
        return self.blocks[name].replace("localhost:8080", f"127.0.0.1:{self.port}")

    def paste(self, name: str) -> str:
        """Run a block; its output. Every command must succeed."""
        return self._run(self.text(name))

    def start(self) -> str:
        """The first block: its first line is the service, left running."""
        first, rest = self.text("start").split("&\n", 1)
        log = (self.folder / "service.log").open("wb")
        service = self.service = subprocess.Popen(
            first.split(), cwd=self.folder, env=self.env, stdout=log, stderr=log
        )
        wait_for(lambda: self._ready() or service.poll() is not None, log.name)
        assert service.poll() is None, log.name
        return self._run(rest)

    def await_measures(self, *jobs: str) -> None:
        """ "Give it a while": until the collector has figures of all of them."""

        def have_figures() -> bool:
            # in this process: one command after another would keep a core busy
            top = CliRunner().invoke(root, ["top", "--once"], env=self.env)
            rows = [line.split() for line in top.stdout.splitlines()]
            return {row[0] for row in rows if row[3] != "-"} >= {"NAME", *jobs}

        wait_for(have_figures, "figures of all jobs")

    def end(self) -> None:
        subprocess.run(["speck", "fog", "down"], cwd=self.folder, env=self.env, check=False)
        if self.service is not None:
            self.service.terminate()
            self.service.wait(60)

    def _ready(self) -> bool:
        process = subprocess.run(
            ["curl", "-sf", f"http://127.0.0.1:{self.port}/readyz"],
            capture_output=True,
            check=False,
        )
        return process.returncode == 0

    def _run(self, script: str) -> str:
        process = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    if shutil.which("curl") is None:
        pytest.fail("cannot run the README's commands: install curl")
    reader = Reader(tmp_path_factory.mktemp("reader"))
    try:
        yield reader
    finally:
        reader.end()


def objects(text: str) -> list[dict]:
    """The JSON objects that stand one after another in `text`."""
    decoder, values, at = json.JSONDecoder(), [], 0
    while (at := text.find("{", at)) != -1:
        values.append(None)
        values[-1], at = decoder.raw_decode(text, at)
    return values


def test_the_walk_through_does_what_it_says(reader: Reader) -> None:
    assert "edge-a" in reader.start()

    new_job, job_list, copy_job = objects(reader.paste("jobs"))
    assert new_job["state"] == copy_job["state"] == "running"
    assert [job["job_name"] for job in job_list["jobs"]] == ["copy"]

    (job_at_cloud,) = objects(reader.paste("move"))
    assert (job_at_cloud["site"], job_at_cloud["state"]) == ("cloud", "running")

    text = reader.paste("composition")
    planned, applied, composition, *_ = objects(text)
    assert planned["plan"]["summary"]["add"] == 2
    assert applied["state"] == "done"
    assert {job["state"] for job in composition["jobs"]} == {"running"}
    assert "flowchart" in text

    output = reader.paste("cli")
    assert "clean" in output
    assert "running" in output

    seen = reader.paste("records").splitlines()
    assert len(seen) == 3
    assert all(line.endswith('{"sensor": "s-1", "value": 21.5}') for line in seen)
    assert all(line.count("/") == 2 for line in seen), "producer, epoch and number of each"

    reader.await_measures("clean", "keep")
    output = reader.paste("place")
    assert "between sites:" in output
    assert "paid off: when" in output
    assert "the autopilot of chain is on" in output

    reader.paste("end")
