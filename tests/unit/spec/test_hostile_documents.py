"""Documents and jars that are made to take long, or much memory (attack S9)."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binders.flink.artifacts import class_fault
from speck.errors import MOST_PROBLEMS, InvalidError, find_similar
from speck.spec import topology
from speck.spec.job_files import JobFile
from speck.spec.schema import load_composition
from speck.spec.yaml_loader import MAX_BYTES

CPU_S = 4.0
"""A second is promised, on a machine that does nothing else; before there were limits these took 4
to 59 s."""
MEMORY_MB = 256

JOB = (
    "- {{job_name: j{0}, site: edge-a, source_topic: t{0}, sink_topic: u{0},"
    " entry_class: a.B, job_path: x.jar}}\n"
)


def fill(head: str, piece: Callable[[int], str], tail: str = "") -> str:
    """As many pieces as a document may have bytes."""
    parts, size = [head], len(head) + len(tail)
    while size + len(next_part := piece(len(parts))) < MAX_BYTES:
        parts.append(next_part)
        size += len(next_part)
    return "".join([*parts, tail])


DOCUMENTS: dict[str, Callable[[], str]] = {
    "unknown keys": lambda: fill("", lambda i: f"zkey{i:06d}: 1\n"),
    "long unknown keys": lambda: fill("", lambda i: f"{i:06d}{'abcdefghij' * 20}: 1\n"),
    "jobs of unknown keys": lambda: fill(
        "jobs:\n", lambda i: "- {" + ",".join(f"k{i}{j}: 1" for j in range(9)) + "}\n"
    ),
    "empty jobs": lambda: "jobs: [" + "{}," * 9_999 + "{}]",
    "empty ports": lambda: "jobs: []\ninputs: [" + "{}," * 90_000 + "{}]",
    "jobs that are null": lambda: "jobs: [" + "~," * 9_999 + "~]",
    "wrong jobs": lambda: fill(
        "jobs:\n",
        lambda i: '- {job_name: "!", site: 3, source_topic: "#", sink_topic: "", args: 1}\n',
    ),
    "values": lambda: "[" + "1," * 190_000 + "1]",
    "short values": lambda: "[" + "a," * 520_000 + "a]",
    "tag directives": lambda: fill("", lambda i: f"%TAG !{i}! a\n", "---\njobs: []\n"),
    "directives of other lines": lambda: fill("", lambda i: f"%TAG !{i}! a\r", "---\njobs: []\n"),
    "empty lists": lambda: "jobs: [" + "[]," * 340_000 + "[]]",
    "empty texts": lambda: "jobs: [" + '"",' * 340_000 + '""]',
    "values in a block": lambda: "- a\n" * 260_000,
    "arguments": lambda: "jobs:\n- args: [" + "{}," * 150_000 + "{}]\n",
    "duplicate keys": lambda: fill("", lambda i: "a: 1\n"),
    "deep lists": lambda: "[" * 500_000,
    "a long text": lambda: "name: " + "a" * (MAX_BYTES - 20),
    "escapes": lambda: 'name: "' + "\\u00e9" * 170_000 + '"',
    "comments": lambda: "#\n" * 500_000,
    "defaults for many jobs": lambda: (
        "defaults: {args: [" + "a," * 50_000 + "a]}\njobs: [" + "{}," * 9_000 + "{}]"
    ),
    "valid jobs": lambda: fill("name: c\njobs:\n", lambda i: JOB.format(i)),
}


def read_all() -> None:
    """Read each of the documents, in a process of its own: what one leaves in memory is no room for
    the next."""
    for name in DOCUMENTS:
        process = get_context("fork").Process(target=read, args=(name,))
        process.start()
        process.join()


def read(name: str) -> None:
    """Read and check one of the documents, and print the CPU time that it took and the memory."""
    text = DOCUMENTS[name]().encode()
    before, problems = time.process_time(), 0
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for media in ("application/yaml", "application/json"):
        try:
            topology.check(load_composition(text, media))
        except InvalidError as error:
            problems = max(problems, len(error.problems))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    spent = time.process_time() - before
    cost = {"cpu_s": spent, "mb": grown / 1024, "problems": problems}
    print(json.dumps({name: cost}), flush=True)


@pytest.fixture(scope="module")
def costs() -> dict[str, dict[str, float]]:
    """What each document costs a process that does nothing else."""
    command = f"from {__name__} import read_all; read_all()"
    process = subprocess.run([sys.executable, "-c", command], stdout=subprocess.PIPE, check=True)
    lines = process.stdout.splitlines()
    return {name: cost for line in lines for name, cost in json.loads(line).items()}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_takes_little_time_and_memory(
    name: str, costs: dict[str, dict[str, float]]
) -> None:
    cost = costs[name]
    assert cost["cpu_s"] < CPU_S, cost
    assert cost["mb"] < MEMORY_MB, cost
    assert cost["problems"] <= MOST_PROBLEMS


def test_a_jar_of_long_class_names_is_searched_in_no_time(tmp_path: Path) -> None:
    dice = random.Random(1)

    def scramble(length: int) -> str:
        return "".join(dice.sample("abcdefghijklmnopqrstuvwxyz" * (length // 26 + 1), length))

    file = tmp_path / "a.jar"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as jar:
        for _ in range(15):
            jar.writestr(f"{scramble(60_000)}.class", b"")
        for _ in range(5_000):
            jar.writestr(f"a/b/{scramble(52)}.class", b"")
    before = time.process_time()
    for length in (199, 52):
        fault = class_fault(JobFile("a" * 64, file), f"a.{scramble(length)}")
        assert fault is not None
        assert len(fault) < 1_000
    assert time.process_time() - before < CPU_S


def test_a_jar_with_too_large_a_directory_is_not_opened(tmp_path: Path) -> None:
    file = tmp_path / "a.jar"
    with zipfile.ZipFile(file, "w") as jar:
        for number in range(300):
            jar.writestr(f"{number:06d}{'x' * 60_000}.class", b"")
    fault = class_fault(JobFile("b" * 64, file), "a.B")
    assert fault is not None
    assert "the file is no jar: it holds 300 files in a directory of 18" in fault


def test_only_short_words_are_compared() -> None:
    assert find_similar("job_nmae", ["job_name"], 1, 0.7) == ["job_name"]
    assert find_similar("a" * 65, ["a" * 64], 1, 0.0) == []
    assert find_similar("a" * 64, ["a" * 65], 1, 0.0) == []
    assert find_similar("last", [f"{n}-first" for n in range(500)] + ["last"], 1, 0.9) == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=30)
        | st.dictionaries(st.sampled_from(("job_name", "site", "args", "topic", "x")), inner)
    ),
    max_leaves=60,
)
TOP = ("name", "jobs", "inputs", "outputs", "defaults", "requirements", "drift", "other")


@given(st.dictionaries(st.sampled_from(TOP), VALUES))
def test_no_more_faults_are_told_than_are_read(data: dict[str, object]) -> None:
    try:
        load_composition(json.dumps(data).encode(), "application/json")
    except InvalidError as error:
        assert 1 <= len(error.problems) <= MOST_PROBLEMS
