"""Small documents that stand for much more than they have bytes: what they become is limited."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from speck.errors import MOST_PROBLEMS, InvalidError
from speck.model.job import Batching, Job, JobDescription
from speck.model.link import Link
from speck.model.site import Broker, Engine, Site, Tier
from speck.spec.documents import limits_for
from speck.spec.expansion import expansion_problem, text_bytes
from speck.spec.fields import MAX_ARGUMENT_BYTES, MAX_LABELS
from speck.spec.job_contract import MAX_RENDERED, render_args, rendered_fault
from speck.spec.job_files import JobFile
from speck.spec.resolve import resolve
from speck.spec.schema import (
    composition_from_data,
    load_composition,
)
from speck.spec.site_schema import site_from_data
from speck.spec.topology import MAX_EDGE_BYTES, Graph, node_of
from tests.sample_job import make_job

KIB = 1024


def job(number: int, **more: Any) -> dict[str, Any]:
    fixed = {"job_name": f"j{number}", "site": "s"}
    return fixed | {"source_topic": f"t{number}", "sink_topic": f"u{number}"} | more


CODE = {"entry_class": "a.B", "job_path": "x.jar"}


@contextmanager
def little_memory(most: int = 32 << 20) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


# Each is within the limits of a document, and of a single field.
EXPANDING: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "arguments for many jobs": (
        lambda: {"defaults": {**CODE, "args": ["x" * 60 * KIB]}, "jobs": [*map(job, range(480))]},
        "defaults.args",
    ),
    "many short arguments": (
        lambda: {"defaults": {**CODE, "args": ["abc"] * 999}, "jobs": [*map(job, range(3_000))]},
        "defaults.args",
    ),
    "a class for many jobs": (
        lambda: {
            "defaults": {"entry_class": "a." + "B" * 4_000, "job_path": "x.jar"},
            "jobs": [*map(job, range(9_000))],
        },
        "defaults.entry_class",
    ),
    "a path for many jobs": (
        lambda: {
            "defaults": {"entry_class": "a.B", "job_path": "é" * 2_000},
            "jobs": [*map(job, range(9_000))],
        },
        "defaults.job_path",
    ),
    "jobs with much of their own": (
        lambda: {"jobs": [job(n, **CODE, args=["x" * 60 * KIB]) for n in range(100)]},
        "jobs",
    ),
}


@pytest.mark.parametrize("name", EXPANDING)
def test_a_composition_is_counted_with_its_defaults_written_out(name: str) -> None:
    make, path = EXPANDING[name]
    data = make()
    with little_memory(), pytest.raises(InvalidError) as refused:
        composition_from_data(data)
    (problem,) = refused.value.problems
    assert problem.path == path
    assert f"at most {limits_for(10_000).bytes} are taken" in problem.message


def test_the_refusal_names_the_line() -> None:
    text = "name: c\ndefaults:\n  job_path: x.jar\n  args: [" + "x" * 60_000 + "]\njobs:\n"
    text += "".join(
        f"- {{job_name: j{n}, site: s, source_topic: t{n}, sink_topic: u{n}, entry_class: a.B}}\n"
        for n in range(200)
    )
    with pytest.raises(InvalidError) as refused:
        load_composition(text.encode(), "application/yaml")
    assert [(p.path, p.line) for p in refused.value.problems] == [("defaults.args", 4)]


def test_what_a_job_sets_itself_is_not_counted_for_it() -> None:
    jobs = [job(n, args=[]) for n in range(480)]
    data = {"defaults": {**CODE, "args": ["x" * 60 * KIB]}, "jobs": jobs}
    assert len(composition_from_data(data).jobs) == 480


@pytest.mark.parametrize("jobs", ["x", None, [None, 1, "y"], {}])
@pytest.mark.parametrize("defaults", ["x", None, [1], {}])
def test_what_is_no_composition_is_left_to_the_schema(jobs: Any, defaults: Any) -> None:
    assert expansion_problem({"jobs": jobs, "defaults": defaults}, 1_000) is None


def test_ten_thousand_plain_jobs_with_defaults_are_taken() -> None:
    defaults = {
        "entry_class": "org.example.traffic.CleanSpeeds",
        "job_path": "artifact:" + "a" * 64,
        "args": ["--window", "10s", "--field", "speed"],
        "sink_site": "cloud",
    }
    data = {"name": "c", "defaults": defaults, "jobs": [*map(job, range(10_000))]}
    assert len(composition_from_data(data).jobs) == 10_000


def test_merge_keys_and_aliases_expand_nothing() -> None:
    with pytest.raises(InvalidError) as refused:
        load_composition(b"x: &a [1]\njobs: [*a, *a]\n", None)
    assert "anchors and aliases are not allowed" in str(refused.value)
    with pytest.raises(InvalidError) as refused:
        load_composition(b"<<: {args: [x]}\njobs: []\n", None)
    assert refused.value.problems[0].path == "<<"


@pytest.mark.parametrize("key", ["jobs", "inputs", "outputs"])
def test_lists_are_limited(key: str) -> None:
    data = {"jobs": [], key: [{}] * 1_001}
    with pytest.raises(InvalidError) as refused:
        composition_from_data(data, most_jobs=1_000)
    (problem,) = refused.value.problems
    assert (problem.path, problem.message) == (key, f"must be at most 1000 {key}")


# -- one job, one site ----------------------------------------------------------------------


@pytest.mark.parametrize("args", [["x" * (MAX_ARGUMENT_BYTES + 1)], ["é" * 200] * 200])
@pytest.mark.parametrize("place", ["jobs[0].args", "defaults.args"])
def test_the_arguments_of_one_job_are_limited(args: list[str], place: str) -> None:
    own = {"args": args} if place.startswith("jobs") else {}
    data = {"jobs": [job(0, **CODE, **own)]} | ({} if own else {"defaults": {"args": args}})
    with pytest.raises(InvalidError) as refused:
        composition_from_data(data)
    (problem,) = refused.value.problems
    assert problem.path == place
    assert f"at most {MAX_ARGUMENT_BYTES}" in problem.message
    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize("field", ["entry_class", "job_path", "spe_address", "sink_broker"])
def test_every_text_of_a_job_is_limited(field: str) -> None:
    own = {"entry_class": "a.B", "job_path": "x", "sink_broker": "tcp://a:1"}
    own["spe_address"] = "http://a:1"
    own[field] += "/" + "b" * 5_000
    data = {"jobs": [{"job_name": "j", "source_topic": "t", "sink_topic": "u", **own}]}
    with pytest.raises(InvalidError) as refused:
        composition_from_data(data)
    assert [problem.path for problem in refused.value.problems] == [f"jobs[0].{field}"]
    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize(
    ("labels", "path"),
    [
        ({f"l{n}": "x" for n in range(MAX_LABELS + 1)}, "labels"),
        ({"long": "x" * 1_025}, "labels.long"),
    ],
)
def test_the_labels_of_a_site_are_limited(labels: dict[str, str], path: str) -> None:
    spe, broker = {"address": "http://a:1"}, {"address": "tcp://a:2"}
    with pytest.raises(InvalidError) as refused:
        site_from_data(
            {"name": "s", "tier": "edge", "spe": spe, "broker": broker, "labels": labels}
        )
    assert [problem.path for problem in refused.value.problems] == [path]


# -- what is made of a composition ----------------------------------------------------------

SITE = Site("s", Tier.EDGE, Engine("flink", "http://a:1"), Broker("mqtt", "tcp://a:2"))


def resolved(source: str, args: tuple[str, ...]) -> Job:
    return make_job("j", Link("s", source), Link("s", "u"), args=args)


def test_placeholders_are_counted_with_their_values() -> None:
    args = ("{source_topic}" * 4_000,)
    many = resolved("t" * 60_000, args)
    with little_memory(4 << 20):
        fault = rendered_fault(many)
    assert fault is not None
    assert f"have {4_000 * 60_000} characters, at most {MAX_RENDERED}" in fault
    few = resolved("t" * 50, args)
    assert rendered_fault(few) is None
    assert sum(map(len, render_args(few, "i", 1, True))) <= MAX_RENDERED


def test_too_long_rendered_arguments_are_refused_before_anything_starts(tmp_path: Path) -> None:
    described = composition_from_data(
        {"jobs": [job(0, **CODE, args=["{source_topic}" * 4_000]) | {"source_topic": "t" * 60_000}]}
    )
    with little_memory(), pytest.raises(InvalidError) as refused:
        resolve(described, {"s": SITE}, lambda path: jar_with_class(tmp_path))
    assert [problem.path for problem in refused.value.problems] == ["jobs[0].args"]


def jar_with_class(folder: Path) -> JobFile:
    import zipfile

    file = folder / "a.jar"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/B.class", b"")
    return JobFile("0" * 64, file)


def test_the_topics_of_all_edges_are_counted() -> None:
    topic = "t" * 60_000
    writers = [JobDescription(f"w{n}", f"in{n}", topic, "x", "a.B", site="s") for n in range(30)]
    readers = [JobDescription(f"r{n}", topic, f"out{n}", "x", "a.B", site="s") for n in range(30)]
    nodes = [node_of(each, index) for index, each in enumerate([*writers, *readers])]
    with little_memory(1 << 20):
        (problem,) = Graph(tuple(nodes)).problems()
    assert f"have {30 * 30 * 60_000} bytes, at most {MAX_EDGE_BYTES}" in problem.message
    assert len(problem.message) < 1_000


def test_pairs_of_batching_writers_and_foreign_readers_are_warned_of_a_few_times(
    tmp_path: Path,
) -> None:
    batching = Batching(batch_records=100)
    writers = [
        JobDescription(f"w{n}", f"in{n}", "t", "x", "a.B", site="s", link=batching)
        for n in range(300)
    ]
    readers = [
        JobDescription(f"r{n}", "t", f"out{n}", "x", "a.B", site="s", args=("{epoch}",))
        for n in range(300)
    ]
    described = replace(composition_from_data({"jobs": []}), jobs=(*writers, *readers))
    jar = jar_with_class(tmp_path)
    warnings = resolve(described, {"s": SITE}, lambda path: jar).warnings
    assert sum("sends batches to" in warning for warning in warnings) == MOST_PROBLEMS


def test_inputs_and_outputs_without_a_job_are_warned_of_a_few_times() -> None:
    ends = [{"site": "s", "topic": f"t{number}"} for number in range(2_000)]
    description = composition_from_data({"jobs": [], "inputs": ends, "outputs": ends})
    warnings = Graph.of_description(description).warnings()
    assert len(warnings) == 2 * (MOST_PROBLEMS + 1)
    assert "no job reads the input: 1900 more" in warnings


def test_text_is_counted_in_bytes_of_utf_8() -> None:
    value = {"é": ["ab", "\ud800", 1, None, {"k": "x"}]}
    assert text_bytes(value) == 2 + 2 + 3 + 8 + 8 + 2
    assert text_bytes(json.loads("[]")) == 0
