"""Artifacts, client ids and masters that a caller may name, or not."""

from __future__ import annotations

import hashlib
import socket
from typing import Any

import pytest

from tests.unit.api.bench import Bench, composition, job


@pytest.mark.parametrize(
    ("length", "status"), [(10, 400), (1 << 40, 413)], ids=["cut short", "too large"]
)
def test_an_artifact_that_is_not_taken_leaves_nothing(
    length: int, status: int, bench: Bench
) -> None:
    answer = bench.client.put(
        f"/artifacts/{'5' * 64}", data=b"abc", environ_overrides={"CONTENT_LENGTH": str(length)}
    )
    assert answer.status_code == status
    folder = bench.service.config.artifacts
    assert not folder.exists() or list(folder.iterdir()) == []


def test_an_artifact_is_used_by_its_hash(bench: Bench) -> None:
    bench.add_sites()
    content = bench.jar.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    assert bench.client.put(f"/artifacts/{sha256}", data=content).status_code == 201
    answer = bench.client.post("/jobs", json=job("new", job_path=f"artifact:{sha256}"))
    assert answer.status_code == 201


def test_a_deployer_names_no_client_that_speck_did_not_create(bench: Bench) -> None:
    bench.add_sites()
    admin, deployer = (
        {"Authorization": f"Bearer {bench.service.tokens.add(role, role)}"}
        for role in ("admin", "deployer")
    )
    broker = bench.world.broker("tcp://edge-a:1883")
    broker.subscribe("plc-line-7", "plant/line-7").holder = "the machine itself"

    def post(client_id: str, who: dict[str, str], query: str = "?wait=30") -> Any:
        output = {"topic": "A-out", "site": "edge-a", "client_id": client_id}
        body = {**composition(job("A")), "outputs": [output]}
        return bench.client.post(f"/compositions{query}", json=body, headers=who)

    for query in ("", "?dry_run=true"):
        refused = post("plc-line-7", deployer, query)
        assert refused.status_code == 422
        (fault,) = refused.json["errors"]
        assert fault["path"] == "outputs[0].client_id"
        assert "choose an id that begins with speck-out-" in fault["message"]
    assert broker.thrown_out == []
    assert broker.sessions["plc-line-7"].topics == {"plant/line-7"}
    assert post("speck-out-dashboard", deployer).status_code == 200
    assert post("dashboard", admin).status_code == 200, "an administrator knows their clients"
    assert post("dashboard", deployer).status_code == 200, "now speck has made it"
    assert post("other", deployer).status_code == 422


def test_an_administrator_lists_client_ids_for_deployers(bench: Bench) -> None:
    bench.add_sites()
    admission = bench.service.compositions._admission
    admission._client_ids = (*admission._client_ids, "demo-*")
    bench.service.tokens.add("root", "admin")
    deployer = {"Authorization": f"Bearer {bench.service.tokens.add('ci', 'deployer')}"}
    output = {"topic": "A-out", "site": "edge-a", "client_id": "demo-local"}
    body = {**composition(job("A")), "outputs": [output]}
    assert bench.client.post("/compositions", json=body, headers=deployer).status_code == 202


def test_a_deployer_chooses_no_spark_master(bench: Bench) -> None:
    """Whoever may choose the master makes this machine run the driver of a stranger's cluster."""
    bench.service.tokens.add("root", "admin")
    deployer = {"Authorization": f"Bearer {bench.service.tokens.add('ci', 'deployer')}"}
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.setblocking(False)
        master = f"spark://127.0.0.1:{stranger.getsockname()[1]}"
        refused = bench.client.post("/analyses", json={"master": master}, headers=deployer)
        with pytest.raises(BlockingIOError):
            stranger.accept()
    assert refused.status_code == 422
    assert "an administrator adds one with SPECK_SPARK_MASTERS" in refused.json["detail"]
    assert bench.service.analyses.all() == []
