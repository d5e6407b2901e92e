"""What every broker's binder has to keep is run on the memory binder, on real Mosquitto, Kafka,
HiveMQ and Artemis, and on a Mosquitto that many sites share in experiments (bench/mount.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contracts.brokers.benches import (
    Bench,
    CanalBench,
    KafkaBench,
    LogBench,
    MemoryBench,
    MosquittoBench,
    OtherBench,
    mounted,
)
from tests.declared import Need, make_need
from tests.mosquitto_server import mosquitto
from tests.third_party_kinds import third_party

NO_READER = "it does not report that a message has no reader"
OUT_OF_ORDER = "it delivers out of order"
LATE = "it sends retained messages behind later ones, so that a view may lack numbers"

UNREAD_IS_COUNTED = (
    "test_published_records_reach_readers_in_order_and_those_without_one_are_counted"
)

GAPS = {
    "artemis": {
        UNREAD_IS_COUNTED: NO_READER,
        "test_a_tap_sees_what_is_published_and_leaves_the_readers_alone": NO_READER,
        "test_a_session_takes_no_marks_before_its_reader_was_there": NO_READER,
        "test_a_reserved_session_keeps_what_is_published_while_its_reader_is_away": OUT_OF_ORDER,
        "test_reserving_again_takes_nothing_and_keeps_the_order": OUT_OF_ORDER,
        "test_a_mark_goes_through_the_session_of_its_reader_behind_what_waits_there": OUT_OF_ORDER,
    },
    "hivemq": {
        "test_each_view_of_a_binder_is_what_the_broker_has_now": LATE,
        "test_a_view_of_a_few_clients_has_their_numbers_and_the_identity": LATE,
        "test_view_tells_which_links_are_announced_to_have_readers": LATE,
        "test_view_tells_which_sessions_were_made": LATE,
        "test_view_reads_the_numbers_of_readers_and_sinks": LATE,
        "test_view_reads_what_was_taken_past_a_hole_and_what_was_sent_where": LATE,
        "test_a_session_that_is_made_again_changes_nothing_that_is_announced": LATE,
        "test_the_sessions_of_a_link_are_confirmed_if_all_are_there": LATE,
        "test_a_broker_keeps_the_first_identity_that_it_was_given": LATE,
        "test_release_clears_the_numbers_of_its_reader_only": LATE,
        "test_forget_clears_the_numbers_of_one_sink_only": LATE,
        "test_forget_clears_the_numbers_of_many_at_once": LATE,
    },
}


def mark_gap(request: pytest.FixtureRequest) -> None:
    """What is known to fail at other brokers. Order is a matter of chance there, and so only what
    has nothing to do with it fails each time."""
    reason = GAPS[request.param].get(request.node.originalname)
    if reason is not None:
        is_certain = reason is NO_READER
        request.node.add_marker(pytest.mark.xfail(strict=is_certain, reason=reason))


# what other rows show of the same binders (of Kafka those of logs, below), or brokers that have to
# be downloaded
REPEATED = ("kafka", "canal of 3 parts", "mosquitto of many sites", "hivemq", "artemis")


@pytest.fixture(
    params=[
        *("memory", "canal", "mosquitto"),
        *(pytest.param(kind, marks=pytest.mark.long) for kind in REPEATED),
    ]
)
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    if request.param == "memory":
        yield MemoryBench()
        return
    if request.param.startswith("canal"):
        with third_party():
            yield CanalBench(3 if "3" in request.param else 1)
        return
    if request.param == "kafka":
        with closing(KafkaBench(request.getfixturevalue("empty_kafka"))) as kafka:
            yield kafka
        return
    if request.param in ("hivemq", "artemis"):
        mark_gap(request)
        address = request.getfixturevalue(f"{request.param}_address")
        yield OtherBench(address)
        return
    with mosquitto(tmp_path_factory.mktemp("contract")) as server:
        if request.param == "mosquitto":
            yield MosquittoBench(server.address)
            return
        with mounted(server) as addresses:
            yield MosquittoBench(addresses[0])


@pytest.fixture
def need(request: pytest.FixtureRequest) -> Need:
    return make_need(request)


@pytest.fixture(
    params=[
        *("canal", "kafka"),
        *(
            pytest.param(kind, marks=pytest.mark.long)
            for kind in ("canal of 3 parts", "kafka of 3 parts")
        ),
    ]
)
def canal(request: pytest.FixtureRequest) -> Iterator[LogBench]:
    """A broker that keeps logs, of one part or of several."""
    parts = 3 if "3" in request.param else 1
    if request.param.startswith("kafka"):
        with closing(KafkaBench(request.getfixturevalue("empty_kafka"), parts)) as bench:
            bench.side.make("t", parts)
            yield bench
        return
    with third_party():
        yield CanalBench(parts)
