"""What makes two jobs the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speck.model.engines import ArtifactKind
from speck.model.job import Batching, Compression, Delivery, DesiredState, Job, Upgrade
from speck.model.link import Link
from speck.spec.fingerprint import differences, fingerprint

A = Job(
    job_name="A",
    site="edge-a",
    source=Link("edge-a", "T-1"),
    sink=Link("cloud", "T-2"),
    source_broker="tcp://a:1883",
    sink_broker="tcp://c:1883",
    entry_class="x.A",
    jar="a" * 64,
    artifact_kind=ArtifactKind.JAR,
)
COUNTS: list[tuple[dict[str, Any], str]] = [
    ({"site": "edge-b"}, "site edge-a -> edge-b"),
    ({"source_broker": "tcp://b:1883"}, "the broker of edge-a has a new address"),
    ({"sink_broker": "tcp://b:1883"}, "the broker of cloud has a new address"),
    ({"source": Link("edge-a", "T-9")}, "source edge-a/T-1 -> edge-a/T-9"),
    (
        {"sink": Link("edge-a", "T-2"), "sink_broker": "tcp://a:1883"},
        "sink cloud/T-2 -> edge-a/T-2",
    ),
    ({"jar": "b" * 64}, "jar aaaaaaaa -> bbbbbbbb"),
    ({"entry_class": "x.B"}, "entry_class x.A -> x.B"),
    ({"args": ("--x",)}, "args changed"),
    ({"parallelism": 2}, "parallelism 1 -> 2"),
    ({"delivery": Delivery.AT_MOST_ONCE}, "delivery at_least_once -> at_most_once"),
    ({"link": Batching(batch_records=100)}, "link changed"),
    ({"link": Batching(compression=Compression.ZSTD)}, "link changed"),
]
COUNTS_NOT: list[dict[str, Any]] = [
    {"state": DesiredState.STOPPED},
    {"upgrade": Upgrade.STATELESS},
    {"pinned": True},
]


@pytest.mark.parametrize(("change", "words"), COUNTS)
def test_what_an_incarnation_is_started_with_counts(change: dict[str, Any], words: str) -> None:
    other = replace(A, **change)
    assert fingerprint(other) != fingerprint(A)
    assert differences(A, other) == [words]


@pytest.mark.parametrize("change", COUNTS_NOT)
def test_what_only_speck_goes_by_does_not_count(change: dict[str, Any]) -> None:
    other = replace(A, **change)
    assert fingerprint(other) == fingerprint(A)
    assert differences(A, other) == []


def test_arguments_are_not_run_together() -> None:
    one, two = replace(A, args=("a b",)), replace(A, args=("a", "b"))
    assert fingerprint(one) != fingerprint(two)


def test_a_fingerprint_is_the_same_everywhere_and_always() -> None:
    assert fingerprint(A) == ("9462f03fd57442bac37e1d895dab5d97469a3dba4778e9f18a0cfa1bca448396")


@given(st.lists(st.sampled_from([c for c, _ in COUNTS] + COUNTS_NOT), max_size=4))
def test_two_jobs_are_the_same_exactly_when_nothing_differs(changes: list[dict[str, Any]]) -> None:
    other = A
    for change in changes:
        other = replace(other, **change)
    assert (fingerprint(other) == fingerprint(A)) == (differences(A, other) == [])
