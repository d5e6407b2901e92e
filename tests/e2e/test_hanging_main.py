"""A jar whose `main` never returns, from its apply to its removal, on a real engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from binders.flink.engine import FlinkEngine
from speck.binding import Artifact, Submission, Target
from speck.errors import DuplicateJobError
from speck.fog.service import serving
from speck.fog.sites import Fog
from speck.model.engines import ArtifactKind
from tests.e2e.harness import NOT_RUNNING, composition, job
from tests.flink_server import JOB_CLASS, sha256_of

SITE = "edge-a"


@pytest.mark.long
def test_it_is_reported_and_removed_and_its_id_never_starts(
    fog: Fog, trial_jar: Path, tmp_path: Path
) -> None:
    hold, name = tmp_path / "hold", f"hangs-{uuid4().hex[:8]}"
    hold.touch()
    jar = Path(shutil.copy(trial_jar, tmp_path / "hangs.jar"))
    args = ["--hold-main", str(hold)]
    hanging = job(name, SITE, "h/in", "h/out", job_path=jar.name, entry_class=JOB_CLASS, args=args)
    limits = {"SPECK_MAIN_TIMEOUT": "2", "SPECK_WATCH_S": "0.5"}
    with serving(tmp_path / "home", [tmp_path], more=limits) as service:

        def call(method: str, path: str, *statuses: int, **more: Any) -> Any:
            answer = requests.request(method, service.url + path, timeout=120, **more)
            assert answer.status_code in statuses, answer.text
            return answer.json() if answer.content else {}

        for body in fog.site_bodies():
            call("POST", "/sites", 201, json=body)
        address = next(it.engine_address for it in fog.sites() if it.name == SITE)
        engine = FlinkEngine(Target(address))
        try:
            change = call("POST", "/compositions?wait=60", 200, json=composition("h", hanging))
            assert change["state"] == "failed"
            operations = call("GET", f"/changes/{change['change']}", 200)["operations"]
            assert "it did not return within 2 s" in json.dumps(operations)
            assert "cannot reach" not in json.dumps(operations)
            first = call("GET", f"/jobs/{name}", 200)["engine_job_id"]
            call("DELETE", "/compositions/h?wait=30&drop_queues=true&drain_limit=0", 204)
            assert hold.exists(), "removing it did not wait for main"
            hold.unlink()
            late = Submission(
                first,
                name,
                Artifact(sha256_of(jar), jar, ArtifactKind.JAR),
                JOB_CLASS,
                ("--job-name", name),
            )
            with pytest.raises(DuplicateJobError):
                engine.submit(late)
            states = [it.state for it in engine.jobs().values() if it.name == name]
            assert [state for state in states if str(state).upper() not in NOT_RUNNING] == []
        finally:
            hold.unlink(missing_ok=True)
            engine.close()
