"""Sessions of links: what is kept in them, and what releasing them ends."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from speck.binding import BrokerCapability, MessageBroker
from speck.binding.capabilities import BROKER_CALLS
from speck.errors import BrokerRefusedError, UnreachableError
from tests.contracts.brokers.benches import SENT, TAKEN, Bench
from tests.declared import Need


def test_reach_says_what_answered(bench: Bench) -> None:
    broker = bench.open()

    assert broker.reach() in ("memory", "canal 1", "mqtt 5", "kafka")
    assert broker.capabilities <= frozenset(BrokerCapability)


def check_readers(bench: Bench, topic: str, announced: str | None) -> None:
    """What the sinks of a link are told of its readers, where they are told of them."""
    if not bench.keeps_logs:
        assert bench.readers(topic) == announced


def test_a_call_of_a_capability_that_it_does_not_have_is_refused_by_its_name(bench: Bench) -> None:
    broker = bench.open()
    calls = {
        BrokerCapability.REPORTS: lambda: broker.forget("one"),
        BrokerCapability.MARKS: lambda: broker.mark("one", "0a"),
        **_measure(broker),
    }
    for capability in calls.keys() - broker.capabilities:
        with pytest.raises(BrokerRefusedError, match=rf"no capability `{capability}`"):
            calls[capability]()


def _measure(broker: MessageBroker) -> dict[BrokerCapability, Callable[[], object]]:
    return {BrokerCapability.METRICS: broker.measure}


def test_a_reserved_session_keeps_what_is_published_while_its_reader_is_away(bench: Bench) -> None:
    payloads = [b"%d" % number for number in range(500)]

    bench.open().reserve("speck-abc-merge-1", bench.topic("traffic/a"))
    bench.publish(bench.topic("traffic/a"), payloads)

    assert bench.drain("speck-abc-merge-1") == payloads


def test_reserving_again_takes_nothing_and_keeps_the_order(bench: Bench) -> None:
    broker = bench.open()
    payloads = [b"%d" % number for number in range(300)]
    broker.reserve("speck-abc-merge-1", bench.topic("traffic/a"))

    for start in range(0, 300, 100):
        bench.publish(bench.topic("traffic/a"), payloads[start : start + 100])
        broker.reserve("speck-abc-merge-1", bench.topic("traffic/a"))
        broker.reserve("speck-abc-merge-1", bench.topic("traffic/a"))

    assert bench.drain("speck-abc-merge-1") == payloads


def test_a_fresh_session_holds_nothing_of_one_that_was_there(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("speck-abc-merge-1", bench.topic("traffic/a"))
    bench.publish(bench.topic("traffic/a"), [b"old"])
    broker.reserve("speck-abc-merge-1", bench.topic("traffic/a"), fresh=True)
    bench.publish(bench.topic("traffic/a"), [b"new"])
    assert bench.drain("speck-abc-merge-1") == [b"new"]


def test_reserving_says_whether_the_session_was_there(bench: Bench) -> None:
    broker = bench.open()

    assert not broker.reserve("speck-abc-merge-1", bench.topic("traffic/a")).existed
    assert broker.reserve("speck-abc-merge-1", bench.topic("traffic/a")).existed
    broker.release("speck-abc-merge-1", bench.topic("traffic/a"), last_reader=True)
    assert not broker.reserve("speck-abc-merge-1", bench.topic("traffic/a")).existed


def test_each_reservation_says_for_how_long_the_session_is_kept(bench: Bench) -> None:
    """From then on, whether it was made, made anew or found, and whoever asks; None: until it is
    released. Nobody can keep a session in time that is kept for no time."""
    broker, link = bench.open(), ("speck-abc-merge-1", bench.topic("traffic/a"))
    kept_s = broker.reserve(*link).kept_s
    assert kept_s is None or 0 < kept_s < math.inf
    again = [
        broker.reserve(*link),
        broker.reserve(*link, fresh=True),
        broker.reserve(*link, lost=True),
        bench.open().reserve(*link),
        broker.reserve("another", link[1]),
    ]
    assert {each.kept_s for each in again} == {kept_s}


def test_view_tells_which_sessions_were_made(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("one", bench.topic("traffic/a"), fresh=True)
    broker.reserve("two", bench.topic("traffic/b/c"))
    broker.reserve("three", bench.topic("traffic/a"))
    broker.release("three", bench.topic("traffic/a"), last_reader=False)
    assert broker.view().sessions == {
        ("one", bench.topic("traffic/a")),
        ("two", bench.topic("traffic/b/c")),
    }


def test_a_session_that_is_made_again_changes_nothing_that_is_announced(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("one", bench.topic("traffic/a"))
    before = broker.view()
    bench.publish(bench.topic("traffic/a"), [b"1"])

    assert broker.reserve("one", bench.topic("traffic/a"), lost=True).existed

    after = broker.view()
    assert (after.readers, after.sessions) == (before.readers, before.sessions)
    check_readers(bench, bench.topic("traffic/a"), "some")
    assert bench.drain("one") == [b"1"]


def test_the_sessions_of_a_link_are_confirmed_if_all_are_there(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    broker.reserve("one", bench.topic("traffic/a"))
    broker.reserve("two", bench.topic("traffic/a/b"))
    assert broker.confirm_sessions(bench.topic("traffic/a"), ["one"])
    assert not broker.confirm_sessions(bench.topic("traffic/a"), ["one", "two"])
    assert broker.confirm_sessions(bench.topic("traffic/c"), [])
    check_readers(bench, bench.topic("traffic/a"), "some")
    check_readers(bench, bench.topic("traffic/c"), None)


def test_each_session_on_a_topic_gets_everything(bench: Bench) -> None:
    broker = bench.open()
    for client_id in ("one", "two"):
        broker.reserve(client_id, bench.topic("traffic/a"))

    bench.publish(bench.topic("traffic/a"), [b"1", b"2"])

    assert bench.drain("one") == [b"1", b"2"]
    assert bench.drain("two") == [b"1", b"2"]


def test_readers_are_announced_until_the_last_is_released(bench: Bench) -> None:
    broker = bench.open()
    check_readers(bench, bench.topic("traffic/a"), None)

    broker.reserve("one", bench.topic("traffic/a"))
    broker.reserve("two", bench.topic("traffic/a"))
    check_readers(bench, bench.topic("traffic/a"), "some")

    broker.release("one", bench.topic("traffic/a"), last_reader=False)
    check_readers(bench, bench.topic("traffic/a"), "some")

    broker.release("two", bench.topic("traffic/a"), last_reader=True)
    check_readers(bench, bench.topic("traffic/a"), "none")


def test_release_ends_the_session(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("one", bench.topic("traffic/a"))
    bench.publish(bench.topic("traffic/a"), [b"before"])

    broker.release("one", bench.topic("traffic/a"), last_reader=True)
    bench.publish(bench.topic("traffic/a"), [b"between"])
    broker.reserve("one", bench.topic("traffic/a"))
    bench.publish(bench.topic("traffic/a"), [b"after"])

    assert bench.drain("one") == [b"after"]


def test_releasing_a_session_that_is_not_there_is_harmless(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("one", bench.topic("traffic/a"))
    bench.publish(bench.topic("traffic/a"), [b"1"])

    broker.release("nobody", bench.topic("traffic/a"), last_reader=False)

    check_readers(bench, bench.topic("traffic/a"), "some")
    assert bench.drain("one") == [b"1"]
    assert not broker.reserve("nobody", bench.topic("traffic/a")).existed, (
        "the release made a session"
    )


@pytest.mark.parametrize("last_reader", [True, False])
def test_release_clears_the_numbers_of_its_reader_only(bench: Bench, last_reader: bool) -> None:
    broker = bench.open()
    for client_id in ("gone", "stays"):
        broker.reserve(client_id, bench.topic("traffic/a"))
        if not bench.keeps_logs:
            bench.tell_taken(client_id, TAKEN)
            bench.tell_sent(client_id, SENT)

    for _ in range(2):  # the first answer may have been lost
        broker.release("gone", bench.topic("traffic/a"), last_reader=last_reader)

        view = broker.view()
        assert set(view.taken) == {"stays"}
        if not bench.keeps_logs:
            assert set(view.sent) == {"gone", "stays"}
            assert view.readers == {bench.topic("traffic/a"): not last_reader}


def test_calls_may_overlap(bench: Bench) -> None:
    broker = bench.open()
    threads = 4
    together = threading.Barrier(threads)

    def work(number: int) -> None:
        together.wait(60)
        for round_ in range(2):
            broker.reserve(f"job-{number}-{round_}", bench.topic(f"topic/{number}"))
            broker.view()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))

    for number in range(threads):
        bench.publish(bench.topic(f"topic/{number}"), [b"x"])
        assert bench.drain(f"job-{number}-1") == [b"x"]


@pytest.mark.parametrize(
    "call",
    [
        "reach",
        "reserve",
        "release",
        "confirm_sessions",
        "mark",
        "publish",
        "tap",
        "view",
        "forget",
        "measure",
        "check",
    ],
)
def test_no_answer_is_unreachable(bench: Bench, need: Need, call: str) -> None:
    broker = bench.open_absent()
    for name, capability in BROKER_CALLS.items():
        if name == call:
            broker = need(broker, capability)
    calls = {
        "reach": broker.reach,
        "reserve": lambda: broker.reserve("one", bench.topic("traffic/a")),
        "release": lambda: broker.release("one", bench.topic("traffic/a"), last_reader=True),
        "confirm_sessions": lambda: broker.confirm_sessions(bench.topic("traffic/a"), ["one"]),
        "mark": lambda: broker.mark("one", "0af9"),
        "publish": lambda: broker.publish(bench.topic("traffic/a"), [b"x"]),
        "tap": lambda: broker.tap(bench.topic("traffic/a"), lambda _: None, lambda: False),
        "view": broker.view,
        "forget": lambda: broker.forget("one"),
        "measure": lambda: broker.measure(),
        "check": broker.check,
    }

    with pytest.raises(UnreachableError, match=r"^cannot reach"):
        calls[call]()


def test_close_may_come_twice(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("one", bench.topic("traffic/a"))

    broker.close()
    broker.close()

    bench.publish(bench.topic("traffic/a"), [b"1"])
    assert bench.open().reserve("one", bench.topic("traffic/a")).existed, "the session is gone"
    check_readers(bench, bench.topic("traffic/a"), "some")
    assert bench.drain("one") == [b"1"]


def test_a_broker_keeps_the_first_identity_that_it_was_given(bench: Bench) -> None:
    broker = bench.open()
    first = broker.identify("1" * 32)
    assert first is not None and broker.identify() == first
    assert broker.identify("2" * 32) == first
    assert bench.open().identify() == first
    assert broker.view().identity == first
