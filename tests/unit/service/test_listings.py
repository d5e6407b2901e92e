"""The paper's listings 1.1 and 1.2, their own sites registered on in-memory binders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from binders.memory import World
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.schema import load_composition
from speck.spec.site_schema import site_from_data
from tests.memory_fog import make_jar, memory_service

COMPOSITIONS = Path(__file__).parents[3] / "compositions"
DONE = ApplyRequest(wait_s=10)


@pytest.fixture
def service(tmp_path: Path):
    with memory_service(tmp_path) as service:
        for body in json.loads((COMPOSITIONS / "listing-sites.json").read_text()):
            body["spe"]["kind"] = body["broker"]["kind"] = "memory"
            service.sites.add(site_from_data({**body, "labels": {"state_uri": "memory:/state"}}))
        yield service


def listing(number: str, folder: Path):
    for each in range(1, 5):
        make_jar(folder / "jars", f"test-{each}.jar")
    text = (COMPOSITIONS / f"listing-{number}.yaml").read_text()
    return load_composition(
        text.replace("/usr/src/app/jars", str(folder / "jars")).encode(), "application/yaml"
    )


PRINTED = {"A": "unchanged", "B": "remove", "C": "update", "C2": "add", "D": "move"}


@pytest.mark.parametrize(
    ("second", "expected"),
    [("1.2", PRINTED), ("1.2-as-told", {**PRINTED, "D": "unchanged"})],
)
def test_from_listing_1_1_to_1_2_exactly_the_papers_changes(
    service: Service, tmp_path: Path, second: str, expected: dict[str, str]
) -> None:
    assert service.compositions.apply(listing("1.1", tmp_path), DONE).state == "done"
    before = {job.job_name: job for job in service.jobs.all()}

    answer = service.compositions.apply(listing(second, tmp_path), DONE)

    assert answer.state == "done"
    assert {job.job_name: job.action for job in answer.plan.jobs} == expected
    unchanged = {name for name, action in expected.items() if action == "unchanged"}
    started = {it.job_name for it in answer.plan.operations if it.kind == "start"}
    assert not started & unchanged
    after = {job.job_name: job for job in service.jobs.all()}
    assert sorted(after) == ["A", "C", "C2", "D"]
    assert {job.state for job in after.values()} == {"running"}
    for name in unchanged:
        assert after[name].engine_job_id == before[name].engine_job_id
    assert after["C"].site == after["C2"].site == before["C"].site
    moved = after["D"].site != before["D"].site
    assert moved == (expected["D"] == "move")
    assert World.current().engine("http://172.16.39.7:8081").count("submit") == 1


def test_addresses_with_a_slash_belong_to_their_sites(service: Service, tmp_path: Path) -> None:
    answer = service.compositions.apply(listing("1.1", tmp_path), DONE)
    assert not [w for w in answer.warnings if "slots" in w]
    assert {job.site for job in service.jobs.all()} == {"edge-1", "edge-2", "fog-1", "cloud-1"}


def test_applying_listing_1_2_again_plans_nothing(service: Service, tmp_path: Path) -> None:
    service.compositions.apply(listing("1.1", tmp_path), DONE)
    service.compositions.apply(listing("1.2", tmp_path), DONE)
    again = service.compositions.apply(listing("1.2", tmp_path), DONE)
    assert again.plan.operations == ()
    assert again.revision == 2
