"""What a resolved composition asks of engines and brokers: slots, MQTT 5, batches, topics."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from binders.flink.artifacts import CONNECTOR_CLASS
from speck.errors import Problem
from speck.model.composition import CompositionDescription, Port
from speck.model.job import Batching, Compression, Delivery, DesiredState, JobDescription
from speck.model.values import cut
from speck.spec.job_files import JobFileFinder
from speck.spec.resolve import Slots, resolve
from tests.unit.spec.resolving import SITES, FindFile, alone, composed, described, problems


def closed(*jobs: JobDescription) -> CompositionDescription:
    """Jobs of edge-a with all their ends declared, so that they cause no warning."""
    return composed(
        *jobs,
        inputs=tuple(Port(job.source_topic, site="edge-a") for job in jobs),
        outputs=tuple(Port(job.sink_topic, site="edge-a") for job in jobs),
    )


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


def test_a_jar_that_brings_the_connector_is_named_once(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "fat.jar", "w") as fat:
        for name in ("package.ExampleJob", CONNECTOR_CLASS):
            fat.writestr(f"{name.replace('.', '/')}.class", b"")
    jobs = [described(name, job_path=str(tmp_path / "fat.jar")) for name in "ABC"]
    warnings = resolve(composed(*jobs), SITES, JobFileFinder([tmp_path], lambda _: None)).warnings
    (warning,) = [each for each in warnings if "connector" in each]
    jar = cut(f"{tmp_path}/fat.jar")
    assert warning.startswith(f"the file of job A and 2 more ({jar}) holds speck's")
