"""Compositions resolved against registered sites."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from speck.errors import InvalidError, Problem
from speck.model.composition import Port, Reader
from speck.model.engines import ArtifactKind
from speck.model.job import Delivery, DesiredState, Job, Upgrade
from speck.model.link import Link
from speck.model.site import Engine
from speck.spec.documents import load_document
from speck.spec.job_files import JobFile
from speck.spec.resolve import Slots, resolve
from speck.spec.schema import composition_from_data
from tests.unit.spec.resolving import SITES, FindFile, alone, composed, described, problems


def test_a_job_of_a_site_has_that_sites_brokers(find_file: FindFile, tmp_path: Path) -> None:
    job = described(args=("--window", "10s"), parallelism=2, pinned=True)
    resolved = resolve(composed(job), SITES, find_file)
    sha256 = hashlib.sha256((tmp_path / "x.jar").read_bytes()).hexdigest()
    assert resolved.composition.jobs == (
        Job(
            job_name="A",
            site="edge-a",
            source=Link("edge-a", "A-in"),
            sink=Link("edge-a", "A-out"),
            source_broker="tcp://a:1883",
            sink_broker="tcp://a:1883",
            entry_class="package.ExampleJob",
            artifact=sha256,
            artifact_kind=ArtifactKind.JAR,
            args=("--window", "10s"),
            parallelism=2,
            state=DesiredState.RUNNING,
            delivery=Delivery.AT_LEAST_ONCE,
            upgrade=Upgrade.SAVEPOINT,
            pinned=True,
        ),
    )
    assert resolved.files == {sha256: (tmp_path / "x.jar").resolve()}


def test_an_engine_by_its_address_has_its_sites_brokers_too(find_file: FindFile) -> None:
    by_address = described(site=None, spe_address="http://A:8081/")
    assert (
        resolve(composed(by_address), SITES, find_file).composition
        == resolve(composed(described()), SITES, find_file).composition
    )


def test_brokers_by_site_and_by_address_mean_the_same(find_file: FindFile) -> None:
    by_site = described(source_site="edge-b", sink_site="cloud")
    by_address = described(source_broker="mqtt://B/", sink_broker="tcp://c")
    one = resolve(composed(by_site), SITES, find_file).composition.jobs[0]
    other = resolve(composed(by_address), SITES, find_file).composition.jobs[0]
    assert one == other
    assert (one.source_site, one.sink_site) == ("edge-b", "cloud")
    assert one.source == Link("edge-b", "A-in")


def test_outputs_with_a_client_id_are_readers(find_file: FindFile) -> None:
    resolved = resolve(
        composed(
            described(sink_broker="tcp://c:1883"),
            inputs=(Port("A-in", site="edge-a"),),
            outputs=(
                Port("A-out", site="cloud", client_id="dashboard"),
                Port("A-out", broker="tcp://c"),
            ),
        ),
        SITES,
        find_file,
    )
    link = Link("cloud", "A-out")
    assert resolved.composition.readers == (Reader("dashboard", link, "cloud"),)
    assert resolved.warnings == []


def test_unknown_places(find_file: FindFile) -> None:
    faults = problems(
        find_file,
        described("A", site="edge-c"),
        described("B", site=None, spe_address="http://172.16.39.9:8081/"),
        described("C", source_broker="tcp://elsewhere", sink_site="mars"),
        described("D", sink_broker="ssl://c"),
        described("E", source_site="mars"),
        inputs=(Port("x", site="mars"),),
        outputs=(Port("x", broker="tcp://elsewhere"),),
    )
    mend = "register it (speck site add, or POST /sites)"
    assert faults == [
        Problem("jobs[0].site", "no registered site is named edge-c; did you mean edge-b?"),
        Problem(
            "jobs[1].spe_address",
            f"no registered site has the engine http://172.16.39.9:8081; {mend}",
        ),
        Problem(
            "jobs[2].source_broker",
            f"no registered site has the broker tcp://elsewhere:1883; {mend}",
        ),
        Problem("jobs[2].sink_site", f"no registered site is named mars; {mend}"),
        Problem("jobs[3].sink_broker", f"no registered site has the broker ssl://c:8883; {mend}"),
        Problem("jobs[4].source_site", f"no registered site is named mars; {mend}"),
        Problem("inputs[0].site", f"no registered site is named mars; {mend}"),
        Problem(
            "outputs[0].broker",
            f"no registered site has the broker tcp://elsewhere:1883; {mend}",
        ),
    ]


def test_the_error_names_the_composition_and_its_first_problem(find_file: FindFile) -> None:
    with pytest.raises(InvalidError) as error:
        resolve(composed(described(site="x"), described("B", site="y")), SITES, find_file)
    assert str(error.value) == (
        "cannot accept composition c: jobs[0].site: no registered site is named x; "
        "register it (speck site add, or POST /sites) (and 1 more)"
    )


def test_doubled_names(find_file: FindFile) -> None:
    assert problems(find_file, described("A"), described("A")) == [
        Problem("jobs[1].job_name", "jobs[0] has the name 'A' already")
    ]


def test_a_job_that_reads_what_it_writes(find_file: FindFile) -> None:
    # Once by the site's name and once by its address: the same broker.
    job = described(source_topic="x", sink_topic="x", sink_broker="tcp://a:1883")
    assert problems(find_file, job) == [
        Problem("jobs[0].sink_topic", "A reads what it writes: topic 'x' on edge-a")
    ]
    elsewhere = described(source_topic="x", sink_topic="x", sink_site="cloud")
    assert resolve(composed(elsewhere), SITES, find_file).composition.jobs


def test_a_cycle_across_sites(find_file: FindFile) -> None:
    assert problems(
        find_file,
        described("A", source_topic="x", sink_topic="y", sink_site="cloud"),
        described("B", site="cloud", source_topic="y", sink_topic="x", sink_broker="tcp://a"),
    ) == [Problem("jobs[1].sink_topic", "closes the cycle A -> B -> A")]


def test_a_cycle_is_told_beside_an_unknown_place(find_file: FindFile) -> None:
    faults = problems(
        find_file,
        described("A", site="mars", source_topic="x", sink_topic="y", sink_site="edge-a"),
        described("B", source_topic="y", sink_topic="x", sink_site="mars"),
    )
    assert [problem.path for problem in faults] == [
        "jobs[0].site",
        "jobs[1].sink_site",
        "jobs[1].sink_topic",
    ]


def test_a_missing_jar_and_a_missing_class(find_file: FindFile, tmp_path: Path) -> None:
    faults = problems(
        find_file,
        described("A", job_path="y.jar"),
        described("B", entry_class="package.Example"),
        described("C", job_path="/etc/passwd"),
        described("D", job_path="artifact:" + "0" * 64),
    )
    assert faults == [
        Problem(
            "jobs[0].job_path",
            f"cannot find the artifact y.jar in the folders of --jars ({tmp_path})",
        ),
        Problem(
            "jobs[1].entry_class",
            "the jar holds no class package.Example; the nearest are package.ExampleJob",
        ),
        Problem(
            "jobs[2].job_path",
            "cannot use the artifact /etc/passwd: it lies outside the folders of --jars"
            f" ({tmp_path})",
        ),
        Problem(
            "jobs[3].job_path",
            f"cannot find the artifact {'0' * 64}; send it with `speck artifacts push FILE`",
        ),
    ]


def test_a_job_may_say_which_engine_it_means(tmp_path: Path, find_file: FindFile) -> None:
    (tmp_path / "job.py").write_text("import sys")
    beside = replace(SITES["edge-b"].spe, beside=Engine("process", ""))
    sites = {**SITES, "edge-b": replace(SITES["edge-b"], spe=beside)}
    program = {"job_path": "job.py", "entry_class": "", "engine": "process"}
    jobs = (
        described("A", site="edge-b", **program),
        described("B", engine="flink"),
        described("C", **program),
        described("D", site="edge-b", engine="process"),
    )
    with pytest.raises(InvalidError) as error:
        resolve(composed(*jobs), sites, find_file)
    assert {problem.path: problem.message for problem in error.value.problems} == {
        "jobs[2].engine": "site edge-a has no engine of kind process; one that is reached through"
        " the site's agent is added with `speck site update edge-a --beside process`",
        "jobs[3].engine": "at site edge-b an engine of kind flink runs files of kind jar",
    }
    resolved = resolve(composed(*jobs[:2]), sites, find_file)
    assert [job.artifact_kind for job in resolved.composition.jobs] == [
        ArtifactKind.PYFILE,
        ArtifactKind.JAR,
    ]


def test_a_jar_is_looked_for_once(find_file: FindFile) -> None:
    lookups: list[str] = []

    def counting(job_path: str) -> JobFile:
        lookups.append(job_path)
        return find_file(job_path)

    resolve(composed(described("A"), described("B")), SITES, counting)
    assert lookups == ["x.jar"]


def test_arguments_that_cannot_be_passed(find_file: FindFile) -> None:
    faults = problems(
        find_file, described("A", args=("{nope}",)), described("B", args=("--epoch",))
    )
    assert faults == [
        Problem(
            "jobs[0].args[0]",
            "unknown placeholder {nope}; known are {job_name}, {source_broker}, {source_topic}, "
            "{sink_broker}, {sink_topic}, {client_id}, {sink_client_id}, "
            "{epoch}, {delivery}, {sink_readers}, "
            "{batch_records}, {linger_ms}, {compression}; "
            "write {{nope}} for the text {nope}",
        ),
        Problem("jobs[1].args[0]", "--epoch is set by speck itself; leave it out"),
    ]


def test_problems_have_the_lines_of_the_document(find_file: FindFile) -> None:
    document = load_document(
        b"""\
name: c
jobs:
- job_name: A
  site: edge-a
  source_topic: x
  sink_topic: y
  entry_class: package.Other
  job_path: x.jar
- job_name: B
  spe_address: http://nowhere
  source_topic: y
  sink_topic: z
  entry_class: package.Other
  job_path: x.jar
""",
        "text/yaml",
    )
    description = composition_from_data(document.data, document.line_of)
    with pytest.raises(InvalidError) as error:
        resolve(description, SITES, find_file, line_of=document.line_of)
    assert [(problem.path, problem.line) for problem in error.value.problems] == [
        ("jobs[0].entry_class", 7),
        ("jobs[1].spe_address", 10),
    ]


def test_a_job_alone(find_file: FindFile) -> None:
    resolved = resolve(alone(described()), SITES, find_file, find_slots=lambda: Slots({}))
    assert [job.job_name for job in resolved.composition.jobs] == ["A"]
    assert resolved.warnings == ["slots of site edge-a are not known; its jobs need 1"]


def test_what_is_wrong_with_a_job_alone(find_file: FindFile) -> None:
    with pytest.raises(InvalidError) as error:
        resolve(alone(described(site="mars", args=("{x}",))), SITES, find_file)
    assert [problem.path for problem in error.value.problems] == ["site", "args[0]"]
    assert str(error.value) == (
        "cannot accept job A: site: no registered site is named mars; "
        "register it (speck site add, or POST /sites) (and 1 more)"
    )
