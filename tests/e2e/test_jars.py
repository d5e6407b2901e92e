"""Jars count by content: rebuilt is changed, and each content travels to a site once."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.e2e.harness import Speck, actions, composition, job


def rebuild(speck: Speck, name: str, comment: str) -> Path:
    """speck-jobs.jar under another name, the same classes in a file with another hash."""
    target = speck.jars / name
    fresh = target.with_suffix(".new")
    with (
        zipfile.ZipFile(speck.jars / "speck-jobs.jar") as old,
        zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        new.comment = comment.encode()
        for entry in old.infolist():
            new.writestr(entry, old.read(entry))
    fresh.replace(target)
    return target


def test_a_rebuilt_jar_is_a_change_and_another_order_of_the_yaml_is_not(speck: Speck) -> None:
    rebuild(speck, "mine.jar", "first build")
    two = composition(
        "rebuilt",
        job("r-1", "edge-a", "r/in", "r/mid", job_path="mine.jar"),
        job("r-2", "edge-a", "r/mid", "r/out"),
        inputs=[("edge-a", "r/in")],
        outputs=[("edge-a", "r/out", "e2e-rebuilt")],
    )
    first = speck.apply(two)
    before = speck.job("r-1")["engine_job_id"]

    turned = {key: two[key] for key in reversed(two)}
    turned["jobs"] = [{key: it[key] for key in reversed(it)} for it in reversed(two["jobs"])]
    again = speck.apply(turned)
    assert again["plan"]["operations"] == []
    assert actions(again) == {"r-1": "unchanged", "r-2": "unchanged"}

    rebuild(speck, "mine.jar", "second build")
    second = speck.apply(two)
    assert actions(second) == {"r-1": "update", "r-2": "unchanged"}
    reason = next(it["reason"] for it in second["plan"]["jobs"] if it["job_name"] == "r-1")
    assert reason.startswith("artifact ")
    assert speck.job("r-1")["engine_job_id"] != before
    assert second["revision"] > first["revision"]


def test_a_jar_goes_to_a_site_once_for_each_content(speck: Speck) -> None:
    rebuild(speck, "many.jar", "for many jobs")
    rebuild(speck, "copy.jar", "for many jobs")  # the same content under another path
    before = {it["id"] for it in speck.engine("edge-b", "/jars")["files"]}
    jobs = [
        job(f"m-{number}", "edge-b", f"m/in-{number}", f"m/out-{number}", job_path=path)
        for number, path in enumerate(["many.jar", "many.jar", "many.jar", "copy.jar", "copy.jar"])
    ]
    answer = speck.apply(composition("many", *jobs[:3]))
    assert [it["kind"] for it in answer["plan"]["operations"]].count("upload") == 1
    speck.apply(composition("many", *jobs))
    new = {it["id"] for it in speck.engine("edge-b", "/jars")["files"]} - before
    assert len(new) == 1
    assert len(speck.running()) == 5
