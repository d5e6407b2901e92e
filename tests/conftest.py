"""Real servers for all tests: each is started once, by the first test that asks for it."""

from __future__ import annotations

import gc
import os
import re
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

from speck.fog.paths import edge_jar
from speck.fog.sites import Fog
from tests.apart import apart_fog
from tests.class_archive import use_archive
from tests.flink_server import flink, trial_jar
from tests.kafka_server import empty_kafka, kafka_server, kafka_side
from tests.mosquitto_server import mosquitto_server
from tests.other_brokers import artemis_address, hivemq_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = "each module for itself"
EACH = "each test for itself"
GROUPS = {
    r"tests/e2e/test_(kafka|readme)\.py": MODULE,  # each has a fog of its own
    r"tests/contracts/test_storage": MODULE,
    r"tests/e2e/|tests/services/test_(calibration|fog)\.py": "fog",
    r"tests/faults/": "faults",
    r"tests/contracts/": "flink",
    r"tests/services/(flink/|test_(agents_flink|kafka_broker|link_reports)\.py)": "flink",
    r"tests/services/test_python_kafka\.py": "flink",
    r"tests/services/(analyzer/|test_pyspark)|tests/unit/bench/test_duckdb_anal": "spark",
    r"tests/properties/": EACH,  # some take a minute together and share nothing
}
"""Pattern of a test's id -> its group; what matches none is MODULE. The tests of a group run in one
process, one after the other, and share what is started once: a fog, an engine, Kafka, Spark, what a
module's fixtures make. A second fog costs more time than it saves: on two cores its engines take
half of one even while they wait."""

SHARING = {group for group in GROUPS.values() if group not in (MODULE, EACH)}
LONGEST_FIRST = ("fog", "faults", "flink", "spark", "tests/e2e/", "tests/services/", "tests/prop")
"""What takes long begins first, so that at the end no process waits long for another one."""

IN_MEMORY = Path("/dev/shm")
ROOM_BYTES = 6 << 30


def _keep_files_in_memory() -> None:
    """Stores sync each write, and thousands of tests have a store of their own. What survives the
    kill of a process does not depend on it."""
    if "TMPDIR" in os.environ or not IN_MEMORY.is_dir():
        return
    status = os.statvfs(IN_MEMORY)
    room = min(status.f_bavail * status.f_frsize, psutil.virtual_memory().available)
    if room >= ROOM_BYTES and not status.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(IN_MEMORY)
        tempfile.tempdir = None


_keep_files_in_memory()
use_archive()

# how fast the machine is says nothing of what is tested
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", UNHURRIED, max_examples=50, derandomize=True)
# other examples each time: `make test-long`, and --hypothesis-seed=N for what it found
settings.register_profile("thorough", UNHURRIED, max_examples=300)
settings.load_profile("quick")

__all__ = [
    "artemis_address",
    "empty_kafka",
    "flink",
    "fog",
    "hivemq_address",
    "kafka_server",
    "kafka_side",
    "mosquitto_server",
    "trial_jar",
]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of one group run in one process, one after the other, when there are several
    (`-n 2`): they share what is started once. (xdist 3.8 finds no groups under pytest 9.2.)"""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _group_of(nodeid)

    # as sorted below; xdist takes the group with most tests first: of quick unit tests
    config.option.loadscopereorder = False
    return ByGroup(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several processes
        items.sort(key=lambda item: _rank(_group_of(item.nodeid)))
        _mix(items)


def _mix(items: list[pytest.Item]) -> None:
    """Put some properties, which compute, behind each module of services, which mostly waits: where
    all processes wait at the same time, cores are idle."""
    waiting = [item for item in items if _group_of(item.nodeid).startswith("tests/services/")]
    computing = [item for item in items if item.nodeid.startswith("tests/properties/")]
    modules = [list(each) for _, each in groupby(waiting, key=lambda item: _group_of(item.nodeid))]
    if not modules:
        return
    share = -(-len(computing) // len(modules))
    mixed = [
        item
        for number, module in enumerate(modules)
        for item in (*module, *computing[number * share : (number + 1) * share])
    ]
    first = items.index(waiting[0])
    taken = set(mixed)
    before = [item for item in items[:first] if item not in taken]
    items[:] = [*before, *mixed, *(item for item in items[first:] if item not in taken)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """At the end of a group that shares something, end what it shares: engines take CPU time even
    while they wait, and those of a session would wait for all tests that follow."""
    group = _group_of(item.nodeid)
    is_over = nextitem is None or _group_of(nextitem.nodeid) != group
    if group not in SHARING or not is_over:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    runtestprotocol(item, nextitem=None)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Some 400 000 objects are made and kept: there is no garbage to be found among them, now or
    later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _group_of(nodeid: str) -> str:
    groups = (group for start, group in GROUPS.items() if re.match(start, nodeid))
    group = next(groups, MODULE)
    if group is EACH:
        return nodeid
    return nodeid.partition("::")[0] if group is MODULE else group


def _rank(group: str) -> int:
    ranks = (rank for rank, start in enumerate(LONGEST_FIRST) if group.startswith(start))
    return next(ranks, len(LONGEST_FIRST))


@pytest.fixture(scope="session")
def fog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fog]:
    """edge-a to edge-c (8 slots each) and cloud (24), for tests that leave them as they were.

    No site can read another's state.
    """
    fog = apart_fog(tmp_path_factory.mktemp("fog"))
    fog.up(edges=3, slots=8, cloud_slots=24, shared_state=False)
    yield fog
    fog.down(keep=True)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of all tests. It has the connector, whose operators need no links."""
    from speck.analyzer.session import start_session

    jars = [edge_jar("speck-spark-connector.jar")]
    spark = start_session("local[2]", is_small=True, partitions=2, jars=jars)
    yield spark
    spark.stop()
