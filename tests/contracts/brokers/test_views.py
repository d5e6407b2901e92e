"""What a view of a broker says: numbers, readers, links, and the broker's own work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.binding import BrokerCapability
from speck.model.measurement import BrokerMeasures
from speck.model.observation import TakenEpoch
from tests.contracts.brokers.benches import (
    SENT,
    TAKEN,
    Bench,
    KafkaBench,
    MosquittoBench,
    OtherBench,
    mounted,
)
from tests.declared import Need
from tests.mosquitto_server import mosquitto
from tests.waiting import LIMIT_S, wait_for


@pytest.fixture
def totals(request: pytest.FixtureRequest, bench: Bench) -> None:
    """For a test of what a broker publishes of itself below `$SYS`: others do not, which `check`
    says."""
    if isinstance(bench, OtherBench):
        reason = "it publishes nothing below $SYS"
        request.node.add_marker(pytest.mark.xfail(strict=True, reason=reason))


@pytest.fixture
def uptime(request: pytest.FixtureRequest, bench: Bench, totals: None) -> None:
    """For a test of how long a broker has run: Kafka's protocol says nothing of that."""
    if isinstance(bench, KafkaBench):
        reason = "its protocol says nothing of its uptime"
        request.node.add_marker(pytest.mark.xfail(strict=True, reason=reason))


def test_sites_that_share_a_broker_do_not_see_each_other(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with (
        mosquitto(tmp_path_factory.mktemp("shared"), sys_interval="1") as server,
        mounted(server) as addresses,
    ):
        one, other = (MosquittoBench(address) for address in addresses)
        one.tell_sent("sink", SENT)
        other.tell_taken("reader", TAKEN)
        one.open().reserve("a reader", "t")
        other.publish("t", [b"not for the reader"])
        one.publish("t", [b"for the reader"])
        view, beside = one.open().view(), other.open().view()
        assert (view.sent, view.taken, view.readers) == ({"sink": SENT}, {}, {"t": True})
        assert (beside.sent, beside.taken, beside.readers) == ({}, {"reader": TAKEN}, {})
        assert one.drain("a reader") == [b"for the reader"]
        wait_for(lambda: one.open().measure()[0].uptime_s is not None, "the broker's own totals")


@pytest.mark.usefixtures("uptime")
def test_view_tells_how_long_the_broker_runs_and_what_it_dropped(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.METRICS)
    view = broker.view()

    assert view.uptime_s is not None
    assert view.uptime_s >= 0
    assert view.dropped == 0


@pytest.mark.usefixtures("totals")
def test_it_tells_of_its_own_work(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.METRICS)
    broker.reserve("one", bench.topic("traffic/a"))
    limit_s = 5.0 if isinstance(bench, OtherBench) else LIMIT_S
    before = wait_for(lambda: _with_messages(broker.measure()[0]), "totals", limit_s)
    bench.publish(bench.topic("traffic/a"), [b"x"] * 20)
    assert before.messages_in is not None
    expected = before.messages_in + 20

    def counted() -> BrokerMeasures | None:
        measures, view = broker.measure()
        assert bench.keeps_logs or view.readers == {bench.topic("traffic/a"): True}
        # a broker may count while a poll is under way, whose own message it then holds, too
        is_counted = (measures.messages_in or 0) >= expected and measures.queued in (20, 21, 22)
        return measures if is_counted else None

    measures = wait_for(counted, "20 messages more, which wait")
    assert measures.dropped == 0
    assert bench.keeps_logs or (measures.uptime_s or 0) >= (before.uptime_s or 0)


def _with_messages(measures: BrokerMeasures) -> BrokerMeasures | None:
    return measures if measures.messages_in is not None else None


def test_each_view_of_a_binder_is_what_the_broker_has_now(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    assert broker.view().sent == {}
    bench.tell_sent("sink", SENT)
    bench.tell_sent("other", SENT)
    assert broker.view().sent == {"sink": SENT, "other": SENT}
    later = replace(SENT, number=45)
    bench.tell_sent("sink", later)
    broker.forget("other")
    assert broker.view().sent == {"sink": later}
    assert broker.measure()[1].sent == {"sink": later}
    broker.forget("sink")
    assert broker.view().sent == {}


def test_a_view_of_a_few_clients_has_their_numbers_and_the_identity(
    bench: Bench, need: Need
) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    identity = broker.identify("0" * 32)
    for name in ("one", "two", "three"):
        bench.tell_sent(name, SENT)
        bench.tell_taken(name, TAKEN)
    view = broker.view(["one", "two", "unknown", "no/+/topic"])
    assert (view.sent, view.taken) == (
        dict.fromkeys(["one", "two"], SENT),
        {"one": TAKEN, "two": TAKEN},
    )
    assert view.identity == identity
    many = [f"client-{number}" for number in range(500)]
    assert broker.view([*many, "three"]).sent["three"] == SENT
    nobody = broker.view([])
    assert (nobody.sent, nobody.taken, nobody.identity) == ({}, {}, identity)


def test_view_tells_which_links_are_announced_to_have_readers(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    broker.reserve("one", bench.topic("traffic/a"))
    broker.reserve("two", bench.topic("traffic/b/c"))
    broker.release("two", bench.topic("traffic/b/c"), last_reader=True)

    readers = broker.view().readers
    assert readers.pop(bench.topic("traffic/b/c"), False) is False
    assert readers == {bench.topic("traffic/a"): True}


def test_view_reads_the_numbers_of_readers_and_sinks(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    assert broker.view().taken == {}

    bench.tell_taken("speck-abc-merge-1", TAKEN)
    bench.tell_sent("speck-abc-clean-1-out", SENT)

    view = broker.view()
    assert view.taken == {"speck-abc-merge-1": TAKEN}
    assert view.sent == {"speck-abc-clean-1-out": SENT}
    assert view.lag("speck-abc-merge-1", bench.topic("traffic/a"), ["speck-abc-clean-1-out"]) == 4


def test_view_reads_what_was_taken_past_a_hole_and_what_was_sent_where(
    bench: Bench, need: Need
) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    epoch = (3 << 32) + 5
    taken = replace(TAKEN, above={"abc-clean": {epoch: ((43, 43), (45, 60))}}, mark="0af9")
    sent = replace(SENT, topic=bench.topic("traffic/a"))
    bench.tell_taken("speck-abc-merge-1", taken)
    bench.tell_taken("speck-abc-old-1", TAKEN)
    bench.tell_sent("speck-abc-clean-1-out", sent)
    bench.tell_sent("speck-abc-old-1-out", SENT)

    view = broker.view()

    assert view.taken == {
        "speck-abc-merge-1": taken,
        "speck-abc-old-1": TAKEN,
    }
    assert view.taken["speck-abc-merge-1"].epochs() == (
        TakenEpoch("abc-clean", epoch, 40, ((43, 43), (45, 60))),
    )
    assert view.find_sent(bench.topic("traffic/a"), "speck-abc-clean-1-out") == sent
    assert view.find_sent(bench.topic("traffic/b"), "speck-abc-clean-1-out") is None
    assert view.find_sent(bench.topic("traffic/b"), "speck-abc-old-1-out") == SENT


def test_forget_clears_the_numbers_of_one_sink_only(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    for client_id in ("gone", "stays"):
        bench.tell_taken(client_id, TAKEN)
        bench.tell_sent(client_id + "-out", SENT)

    broker.forget("gone-out")
    broker.forget("never-was")

    view = broker.view()
    assert set(view.taken) == {"gone", "stays"}
    assert set(view.sent) == {"stays-out"}


def test_forget_clears_the_numbers_of_many_at_once(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    sinks = [f"gone-{number}-out" for number in range(30)]
    for client_id in (*sinks, "stays-out"):
        bench.tell_sent(client_id, SENT)

    for _ in range(2):  # the first answer may have been lost
        broker.forget("never-was", *sinks, sinks[0])

        assert set(broker.view().sent) == {"stays-out"}


def test_to_forget_nobody_asks_nothing_of_the_broker(bench: Bench, need: Need) -> None:
    need(bench.open(), BrokerCapability.REPORTS).forget()
    need(bench.open_absent(), BrokerCapability.REPORTS).forget()
