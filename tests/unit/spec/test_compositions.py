"""Every composition in compositions/ loads, and resolves once its sites are registered."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import yaml

from speck.model.job import Job
from speck.model.site import Broker, Engine, Site, Tier
from speck.spec.job_files import JobFileFinder
from speck.spec.resolve import Resolved, Slots, resolve
from speck.spec.schema import dump_composition, load_composition
from speck.spec.site_schema import site_from_data
from speck.spec.topology import check
from tests.python_jobs import build_programs

FOLDER = Path(__file__).parents[3] / "compositions"
LISTINGS = ("listing-1.1.yaml", "listing-1.2.yaml")
AS_TOLD = "listing-1.2-as-told.yaml"


def jars(folder: Path, *classes: str) -> None:
    for jar in (*(f"test-{number}.jar" for number in range(1, 5)), "speck-jobs.jar"):
        with zipfile.ZipFile(folder / jar, "w") as archive:
            for name in classes:
                # with a fixed time, or the hashes would follow the clock
                archive.writestr(zipfile.ZipInfo(name.replace(".", "/") + ".class"), b"")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.name)
def test_loads_and_survives_being_dumped(file: Path) -> None:
    composition = load_composition(file.read_bytes(), "application/yaml")
    assert check(composition)[0] == []
    dumped = json.dumps(dump_composition(composition)).encode()
    assert load_composition(dumped, "application/json") == composition


@pytest.mark.parametrize("file", sorted(FOLDER.glob("example-*.yaml")), ids=lambda file: file.name)
def test_examples_resolve_without_a_warning_but_for_the_foreign_jar(
    file: Path, tmp_path: Path
) -> None:
    jars(tmp_path, "io.speck.jobs.PassThrough", "io.speck.jobs.Forward")
    build_programs(tmp_path)
    sites = {
        name: Site(
            name,
            Tier.EDGE,
            Engine("flink", f"http://{name}:8081", beside=Engine("process", "")),
            Broker("mqtt", f"tcp://{name}:1883"),
        )
        for name in ("edge-a", "edge-b", "cloud")
    }
    composition = load_composition(file.read_bytes(), "application/yaml")
    resolved = resolve(
        composition,
        sites,
        JobFileFinder([tmp_path], lambda sha256: None),
        find_slots=lambda: Slots(dict.fromkeys(sites, 8)),
    )
    foreign = file.name == "example-foreign-jar.yaml"
    assert len(resolved.warnings) == foreign, resolved.warnings
    assert all("has placeholders in its args" in warning for warning in resolved.warnings)


def listing(name: str, folder: Path) -> Resolved:
    """A listing resolved with its own sites; its jar folder is where the test put it."""
    jars(folder, "package.ExampleJob")
    sites = map(site_from_data, json.loads((FOLDER / "listing-sites.json").read_text()))
    finder = JobFileFinder([folder], lambda sha256: None)
    return resolve(
        load_composition((FOLDER / name).read_bytes(), "application/yaml"),
        {site.name: site for site in sites},
        lambda path: finder(path.removeprefix("/usr/src/app/jars/")),
    )


def by_name(resolved: Resolved) -> dict[str, Job]:
    return {job.job_name: job for job in resolved.composition.jobs}


PAPER = {
    "listing-1.1.yaml": """
        A 172.16.39.7 172.16.39.7 T-1 172.16.192.18 T-C-filter test-1.jar
        B 172.16.48.8 172.16.48.8 T-2 172.16.192.18 T-C-filter test-2.jar
        C 172.16.192.18 172.16.192.18 T-C-filter 172.16.177.7 T-D-merger test-3.jar
        D 172.16.177.7 172.16.177.7 T-D-merger 172.16.177.7 T-D-total test-4.jar
    """,
    "listing-1.2.yaml": """
        A 172.16.39.7 172.16.39.7 T-1 172.16.192.18 T-C-filter test-1.jar
        C 172.16.192.18 172.16.192.18 T-C-filter 172.16.192.18 T-C2-filter test-3.jar
        C2 172.16.192.18 172.16.192.18 T-C2-filter 172.16.193.22 T-D-merger test-4.jar
        D 172.16.177.20 172.16.193.22 T-D-merger 172.16.193.22 T-D-total test-4.jar
    """,
    # Its text: "D stays", and C2 writes to where D reads.
    AS_TOLD: """
        A 172.16.39.7 172.16.39.7 T-1 172.16.192.18 T-C-filter test-1.jar
        C 172.16.192.18 172.16.192.18 T-C-filter 172.16.192.18 T-C2-filter test-3.jar
        C2 172.16.192.18 172.16.192.18 T-C2-filter 172.16.177.7 T-D-merger test-4.jar
        D 172.16.177.7 172.16.177.7 T-D-merger 172.16.177.7 T-D-total test-4.jar
    """,
}
"""SpecK, DAIS 2021, listings 1.1 and 1.2: job, engine, source broker and topic, sink broker and
topic, jar."""


@pytest.mark.parametrize("name", PAPER)
def test_the_listings_are_the_papers_field_by_field(name: str) -> None:
    fields = (line.split() for line in PAPER[name].strip().splitlines())
    assert yaml.safe_load((FOLDER / name).read_text()) == {
        "jobs": [
            {
                "job_name": job_name,
                "spe_address": f"http://{engine}:8081/",
                "source_broker": f"tcp://{source}:1883",
                "sink_broker": f"tcp://{sink}:1883",
                "source_topic": source_topic,
                "sink_topic": sink_topic,
                "entry_class": "package.ExampleJob",
                "job_path": f"/usr/src/app/jars/{jar}",
            }
            for job_name, engine, source, source_topic, sink, sink_topic, jar in fields
        ]
    }


@pytest.mark.parametrize("name", PAPER)
def test_a_listing_has_no_name_of_its_own(name: str) -> None:
    assert load_composition((FOLDER / name).read_bytes(), "application/yaml").name == "default"


@pytest.mark.parametrize("second", [LISTINGS[1], AS_TOLD])
def test_the_graphs_of_the_listings(second: str, tmp_path: Path) -> None:
    one, two = (listing(name, tmp_path) for name in (LISTINGS[0], second))
    assert [(edge.start, edge.end) for edge in one.graph.edges] == [
        ("A", "C"),
        ("B", "C"),
        ("C", "D"),
    ]
    assert [(edge.start, edge.end) for edge in two.graph.edges] == [
        ("A", "C"),
        ("C", "C2"),
        ("C2", "D"),
    ]


def test_what_differs_between_the_listings(tmp_path: Path) -> None:
    one, two, third = (by_name(listing(name, tmp_path)) for name in PAPER)
    assert third["D"] == one["D"]
    assert list(one) == ["A", "B", "C", "D"]
    assert list(two) == ["A", "C", "C2", "D"]
    assert one["A"] == two["A"]
    assert {two["C"].site, two["C2"].site, third["C2"].site} == {one["C"].site}
    assert one["C"].source == two["C"].source
    assert one["C"].site == two["C"].site
    assert one["C"].sink != two["C"].sink
    assert one["D"].site != two["D"].site
    assert one["D"].source.site != two["D"].source.site
    assert one["D"].sink.site != two["D"].sink.site
