"""The paper's listings 1.1 and 1.2, their own sites registered on in-memory binders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from binders.memory import World
from speck.schema import load_composition, site_from_data
from speck.service import Service
from speck.service.compositions import Request
from tests.memory_fog import make_jar, memory_service

COMPOSITIONS = Path(__file__).parents[2] / "compositions"
DONE = Request(wait_s=10)


@pytest.fixture
def service(tmp_path: Path):
    with memory_service(tmp_path) as service:
        for body in json.loads((COMPOSITIONS / "listing-sites.json").read_text()):
            body["spe"]["kind"] = body["broker"]["kind"] = "memory"
            service.sites.add(site_from_data({**body, "labels": {"state_uri": "memory:/state"}}))
        yield service


def listing(number: str, folder: Path):
    make_jar(folder / "jars")
    text = (COMPOSITIONS / f"listing-{number}.yaml").read_text()
    return load_composition(
        text.replace("/usr/src/app/jars", str(folder / "jars")).encode(), "application/yaml"
    )


def test_from_listing_1_1_to_1_2_exactly_the_paper_s_changes(
    service: Service, tmp_path: Path
) -> None:
    first = service.compositions.apply(listing("1.1", tmp_path), DONE)
    assert first.body["state"] == "done"
    before = {job["job_name"]: job for job in service.jobs.all()}

    second = service.compositions.apply(listing("1.2", tmp_path), DONE)

    assert second.body["state"] == "done"
    actions = {job["job_name"]: job["action"] for job in second.body["plan"]["jobs"]}
    assert actions == {
        "A": "unchanged",
        "B": "remove",
        "C": "update",
        "C2": "add",
        "D": "move",
    }
    assert not [o for o in second.body["plan"]["operations"] if o["job_name"] == "A"]
    after = {job["job_name"]: job for job in service.jobs.all()}
    assert sorted(after) == ["A", "C", "C2", "D"]
    assert {job["state"] for job in after.values()} == {"running"}
    assert after["A"]["engine_job_id"] == before["A"]["engine_job_id"]
    assert World.current().engine("http://172.16.39.7:8081").count("submit") == 1


def test_addresses_with_a_slash_belong_to_their_sites(service: Service, tmp_path: Path) -> None:
    answer = service.compositions.apply(listing("1.1", tmp_path), DONE)
    assert not [w for w in answer.body["warnings"] if "slots" in w]
    assert {job["site"] for job in service.jobs.all()} == {"edge-1", "edge-2", "fog-1", "cloud-1"}


def test_applying_listing_1_2_again_plans_nothing(service: Service, tmp_path: Path) -> None:
    service.compositions.apply(listing("1.1", tmp_path), DONE)
    service.compositions.apply(listing("1.2", tmp_path), DONE)
    again = service.compositions.apply(listing("1.2", tmp_path), DONE)
    assert again.body["plan"]["operations"] == []
    assert again.body["revision"] == 2
