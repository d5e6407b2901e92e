"""Every composition in compositions/ loads, and resolves once its sites are registered."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from speck.jars import JarFinder
from speck.model import Broker, Engine, Job, Site, Tier
from speck.resolve import Resolved, resolve
from speck.schema import dump_composition, load_composition, site_from_data
from speck.topology import check

FOLDER = Path(__file__).parents[2] / "compositions"
LISTINGS = ("listing-1.1.yaml", "listing-1.2.yaml")
KEYS = {
    "job_name",
    "spe_address",
    "source_broker",
    "sink_broker",
    "source_topic",
    "sink_topic",
    "entry_class",
    "job_path",
}


def jars(folder: Path, *classes: str) -> None:
    for jar in ("test-1.jar", "speck-jobs.jar"):
        with zipfile.ZipFile(folder / jar, "w") as archive:
            for name in classes:
                archive.writestr(name.replace(".", "/") + ".class", b"")


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
    sites = {
        name: Site(
            name,
            Tier.EDGE,
            Engine("flink", f"http://{name}:8081"),
            Broker("mqtt", f"tcp://{name}:1883"),
        )
        for name in ("edge-a", "edge-b", "cloud")
    }
    composition = load_composition(file.read_bytes(), "application/yaml")
    resolved = resolve(
        composition,
        sites,
        JarFinder([tmp_path], lambda sha256: None),
        free_slots=dict.fromkeys(sites, 8),
    )
    foreign = file.name == "example-foreign-jar.yaml"
    assert len(resolved.warnings) == foreign, resolved.warnings
    assert all("has placeholders in its args" in warning for warning in resolved.warnings)


def listing(name: str, folder: Path) -> Resolved:
    """A listing resolved with its own sites; its jar folder is where the test put it."""
    jars(folder, "package.ExampleJob")
    sites = map(site_from_data, json.loads((FOLDER / "listing-sites.json").read_text()))
    finder = JarFinder([folder], lambda sha256: None)
    return resolve(
        load_composition((FOLDER / name).read_bytes(), "application/yaml"),
        {site.name: site for site in sites},
        lambda path: finder(path.removeprefix("/usr/src/app/jars/")),
    )


def by_name(resolved: Resolved) -> dict[str, Job]:
    return {job.job_name: job for job in resolved.composition.jobs}


@pytest.mark.parametrize("name", LISTINGS)
def test_the_listings_use_only_the_papers_keys(name: str) -> None:
    composition = load_composition((FOLDER / name).read_bytes(), "application/yaml")
    text = (FOLDER / name).read_text()
    written = {line[2:].partition(":")[0] for line in text.splitlines()[1:]}
    assert written == KEYS
    assert composition.name == "default"


def test_the_graphs_of_the_listings(tmp_path: Path) -> None:
    one, two = (listing(name, tmp_path) for name in LISTINGS)
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
    one, two = (by_name(listing(name, tmp_path)) for name in LISTINGS)
    assert list(one) == ["A", "B", "C", "D"]
    assert list(two) == ["A", "C", "C2", "D"]
    assert one["A"] == two["A"]
    assert one["C"].source == two["C"].source
    assert one["C"].site == two["C"].site
    assert one["C"].sink != two["C"].sink
    assert one["D"].spe_address != two["D"].spe_address
    assert one["D"].source.broker != two["D"].source.broker
    assert one["D"].sink.broker != two["D"].sink.broker
