"""Descriptions become resolved jobs; all faults are reported at once."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from binders.flink.artifacts import CONNECTOR_CLASS
from speck.errors import InvalidError, Problem
from speck.model.composition import CompositionDescription, Port, Reader, composition_of_one
from speck.model.engines import ArtifactKind
from speck.model.job import (
    Batching,
    Compression,
    Delivery,
    DesiredState,
    Job,
    JobDescription,
    Upgrade,
)
from speck.model.link import Link
from speck.model.site import Broker, Engine, Site, Tier
from speck.model.values import cut
from speck.spec.documents import load_document
from speck.spec.job_files import JobFile, JobFileFinder
from speck.spec.resolve import Slots, resolve
from speck.spec.schema import composition_from_data

FindFile = Callable[[str], JobFile]


def site(name: str, host: str, tier: Tier = Tier.EDGE) -> Site:
    return Site(
        name, tier, Engine("flink", f"http://{host}:8081"), Broker("mqtt", f"tcp://{host}:1883")
    )


SITES = {
    "edge-a": site("edge-a", "a"),
    "edge-b": site("edge-b", "b"),
    "cloud": site("cloud", "c", Tier.CLOUD),
}


@pytest.fixture
def find_file(tmp_path: Path) -> FindFile:
    with zipfile.ZipFile(tmp_path / "x.jar", "w") as archive:
        archive.writestr("package/ExampleJob.class", b"")
    return JobFileFinder([tmp_path], lambda sha256: None)


def described(name: str = "A", **changes: Any) -> JobDescription:
    job = JobDescription(
        job_name=name,
        site="edge-a",
        source_topic=f"{name}-in",
        sink_topic=f"{name}-out",
        entry_class="package.ExampleJob",
        job_path="x.jar",
    )
    return replace(job, **changes)


def composed(*jobs: JobDescription, **more: Any) -> CompositionDescription:
    return CompositionDescription("c", jobs, **more)


def closed(*jobs: JobDescription) -> CompositionDescription:
    """Jobs of edge-a with all their ends declared, so that they cause no warning."""
    return composed(
        *jobs,
        inputs=tuple(Port(job.source_topic, site="edge-a") for job in jobs),
        outputs=tuple(Port(job.sink_topic, site="edge-a") for job in jobs),
    )


def alone(job: JobDescription) -> CompositionDescription:
    return CompositionDescription(composition_of_one(job.job_name), (job,))


def problems(find_file: FindFile, *jobs: JobDescription, **more: Any) -> list[Problem]:
    ports = {key: more.pop(key) for key in ("inputs", "outputs") if key in more}
    with pytest.raises(InvalidError) as error:
        resolve(composed(*jobs, **ports), SITES, find_file, **more)
    assert error.value.status == 422
    return list(error.value.problems)


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


def test_a_job_with_an_own_contract_is_warned_of(find_file: FindFile) -> None:
    resolved = resolve(closed(described("A", args=("--in={source_topic}",))), SITES, find_file)
    assert resolved.warnings == [
        "job A has placeholders in its args: unless it reports its sequence numbers anyway, speck"
        " cannot determine when its links are drained, how far it lags, or which messages came"
        " twice"
    ]


def test_too_few_free_slots(find_file: FindFile) -> None:
    jobs = (described("A", parallelism=2), described("B", parallelism=2), described("C"))
    assert problems(find_file, *jobs, find_slots=lambda: Slots({"edge-a": 3})) == [
        Problem(
            "jobs[1].parallelism",
            "too few free slots at site edge-a: its jobs need 5, "
            "3 are free or held by this composition",
        )
    ]


def test_held_slots_count_as_free_and_stopped_jobs_need_none(find_file: FindFile) -> None:
    jobs = (
        described("A", parallelism=2),
        described("B", parallelism=9, state=DesiredState.STOPPED),
    )
    resolved = resolve(
        closed(*jobs), SITES, find_file, find_slots=lambda: Slots({"edge-a": 1}, {"edge-a": 1})
    )
    assert resolved.warnings == []


@pytest.mark.parametrize("free", [{}, {"edge-a": None}])
def test_slots_that_are_not_known_are_a_warning(
    find_file: FindFile, free: dict[str, int | None]
) -> None:
    job = described(parallelism=2)
    resolved = resolve(closed(job), SITES, find_file, find_slots=lambda: Slots(free))
    assert resolved.warnings == ["slots of site edge-a are not known; its jobs need 2"]


def test_slots_are_not_looked_at_when_nothing_was_observed(find_file: FindFile) -> None:
    assert resolve(closed(described(parallelism=99)), SITES, find_file).warnings == []


def test_exactly_once_needs_mqtt_5(find_file: FindFile) -> None:
    job = described(delivery=Delivery.EXACTLY_ONCE, sink_site="cloud")
    numbers_by_broker = {"tcp://a:1883": False, "tcp://c:1883": True}
    assert problems(find_file, job, number_carriers=numbers_by_broker) == [
        Problem(
            "jobs[0].delivery",
            "exactly_once needs the capability `numbers`, which the broker tcp://a:1883 does"
            " not have",
        )
    ]
    at_least = described(sink_site="cloud")
    assert resolve(
        composed(at_least), SITES, find_file, number_carriers=numbers_by_broker
    ).composition.jobs


def test_exactly_once_through_an_unknown_broker_is_a_warning(find_file: FindFile) -> None:
    job = described(delivery=Delivery.EXACTLY_ONCE)
    resolved = resolve(closed(job), SITES, find_file, number_carriers={"tcp://a:1883": None})
    assert resolved.warnings == [
        "whether the broker tcp://a:1883 has the capability `numbers` is not known; "
        "job A needs it for exactly_once"
    ]


BATCHED = Batching(batch_records=100)


def test_batches_for_an_old_broker_are_a_warning(find_file: FindFile) -> None:
    job = described(link=BATCHED, sink_site="cloud")
    numbers_by_broker = {"tcp://a:1883": True, "tcp://c:1883": False}
    assert (
        "job A sends its records one by one: batches need the capability `numbers`, which the"
        " broker tcp://c:1883 does not have"
    ) in resolve(composed(job), SITES, find_file, number_carriers=numbers_by_broker).warnings


def test_who_reads_batches_from_outside_is_warned(find_file: FindFile) -> None:
    sends = "job A sends batches to A-out at edge-a"
    must_split = "must split them (docs/guarantees.md says how)"
    output = resolve(closed(described(link=BATCHED)), SITES, find_file)
    assert output.warnings == [f"{sends}, an output: its readers {must_split}"]
    assert output.composition.jobs[0].link == BATCHED
    compressed = described(link=Batching(compression=Compression.ZSTD))
    assert resolve(closed(compressed), SITES, find_file).warnings == output.warnings
    assert resolve(closed(described(link=Batching(linger_ms=5))), SITES, find_file).warnings == [
        "job A sends each record at once: linger_ms of its link has no effect while batch_records"
        " is 1"
    ]


def test_a_job_with_an_own_contract_that_reads_batches_is_warned_of(find_file: FindFile) -> None:
    first = described(link=BATCHED)
    second = described("B", source_topic="A-out", args=("{source_topic}",))
    warnings = resolve(composed(first, second), SITES, find_file).warnings
    assert (
        "job A sends batches to A-out at edge-a, which job B reads: since it has placeholders in"
        " its args, it must split them (docs/guarantees.md says how) by itself"
    ) in warnings


def test_batches_between_a_job_and_those_of_elsewhere_are_warned_of(find_file: FindFile) -> None:
    sender = resolve(composed(described(link=BATCHED)), SITES, find_file).composition.jobs[0]
    readers = [
        described(name, source_topic="A-out", args=("{source_topic}",)) for name in ("B", "C")
    ]
    there = [resolve(composed(one), SITES, find_file).composition.jobs[0] for one in readers]
    expected = [
        f"job A sends batches to A-out at edge-a, which job {name} reads: since it has placeholders"
        " in its args, it must split them (docs/guarantees.md says how) by itself"
        for name in ("B", "C")
    ]
    warnings = resolve(composed(described(link=BATCHED)), SITES, find_file, others=there).warnings
    assert [warning for warning in warnings if "sends batches" in warning] == expected
    assert expected[0] in resolve(alone(readers[0]), SITES, find_file, others=[sender]).warnings
    unconcerned = resolve(composed(described("D")), SITES, find_file, others=[sender, *there])
    assert not [warning for warning in unconcerned.warnings if "sends batches" in warning]


def test_a_job_that_is_not_told_of_its_link_is_refused(find_file: FindFile) -> None:
    job = described(link=BATCHED, args=("{source_topic}",))
    assert [p.path for p in problems(find_file, job)] == ["jobs[0].link"]


def test_topics_that_nobody_writes_or_reads_are_warnings(find_file: FindFile) -> None:
    assert resolve(composed(described()), SITES, find_file).warnings == [
        "no job writes topic 'A-in' on edge-a (read by A); "
        "list it under inputs if it is fed from outside",
        "no job reads topic 'A-out' on edge-a (written by A); "
        "list it under outputs if it is read from outside",
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


def test_a_jar_that_brings_the_connector_is_named_once(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "fat.jar", "w") as fat:
        for name in ("package.ExampleJob", CONNECTOR_CLASS):
            fat.writestr(f"{name.replace('.', '/')}.class", b"")
    jobs = [described(name, job_path=str(tmp_path / "fat.jar")) for name in "ABC"]
    warnings = resolve(composed(*jobs), SITES, JobFileFinder([tmp_path], lambda _: None)).warnings
    (warning,) = [each for each in warnings if "connector" in each]
    jar = cut(f"{tmp_path}/fat.jar")
    assert warning.startswith(f"the file of job A and 2 more ({jar}) holds speck's")
