"""What makes two jobs the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from speck.model.engines import ArtifactKind
from speck.model.job import Batching, Compression, Delivery, DesiredState, Job, Upgrade
from speck.model.link import Link
from speck.spec.differences import differences

A = Job(
    job_name="A",
    site="edge-a",
    source=Link("edge-a", "T-1"),
    sink=Link("cloud", "T-2"),
    source_broker="tcp://a:1883",
    sink_broker="tcp://c:1883",
    entry_class="x.A",
    artifact="a" * 64,
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
    ({"artifact": "b" * 64}, "artifact aaaaaaaa -> bbbbbbbb"),
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
    assert differences(A, other) == [words]


@pytest.mark.parametrize("change", COUNTS_NOT)
def test_what_only_speck_goes_by_does_not_count(change: dict[str, Any]) -> None:
    other = replace(A, **change)
    assert differences(A, other) == []


def test_arguments_are_not_run_together() -> None:
    one, two = replace(A, args=("a b",)), replace(A, args=("a", "b"))
    assert differences(one, two) != []
