"""Spark masters: those of the configuration and no others."""

from __future__ import annotations

import pytest

from speck.analyzer.masters import SparkMasters, check_master, is_on_loopback
from speck.errors import InvalidError

CLUSTER = "spark://10.0.0.5:7077"
MASTERS = SparkMasters(("local[2]", f"big={CLUSTER}"))


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (None, "local[2]"),
        ("local[2]", "local[2]"),
        ("local[1]", "local[1]"),
        ("local", "local"),
        ("big", CLUSTER),
        (CLUSTER, CLUSTER),
    ],
)
def test_what_is_configured_is_chosen(wanted: str | None, chosen: str) -> None:
    assert MASTERS.choose(wanted) == chosen


@pytest.mark.parametrize(
    "wanted",
    ["local[3]", "local[9999]", "spark://10.0.0.6:7077", "small", f"{CLUSTER},10.0.0.6:1", ""],
)
def test_what_is_not_configured_is_refused(wanted: str) -> None:
    with pytest.raises(InvalidError, match="cannot analyse"):
        MASTERS.choose(wanted)


@pytest.mark.parametrize(
    "master", ["yarn", "k8s://https://10.0.0.5:6443", "k8s://cluster", "spark://a:1,b:2", "local"]
)
def test_forms_of_masters(master: str) -> None:
    assert check_master(master) == master
    assert SparkMasters(("local[2]", f"far={master}")).choose("far") == master


@pytest.mark.parametrize("master", ["yarn2", "k8s:", "k8s://a/b", "mesos://a:1", "local[0]"])
def test_other_forms_are_refused(master: str) -> None:
    with pytest.raises(InvalidError, match="is not a Spark master: write"):
        check_master(master)


def test_a_service_of_a_cluster_alone_runs_nothing_itself() -> None:
    with pytest.raises(InvalidError, match=r"not among the masters of this service \(big\)"):
        SparkMasters((f"big={CLUSTER}",)).choose("local[1]")


@pytest.mark.parametrize(
    ("master", "on_loopback"),
    [
        ("local[*]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://127.0.0.1.example:7077", False),
        ("spark://127.0.0.1:1,10.0.0.5:1", False),
        ("yarn", False),
        ("k8s://https://127.0.0.1:6443", False),
        (CLUSTER, False),
    ],
)
def test_the_driver_of_a_master_on_loopback_listens_there_only(
    master: str, on_loopback: bool
) -> None:
    assert is_on_loopback(master) == on_loopback
