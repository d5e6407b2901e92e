"""The events about brokers and links, and their frequency."""

from __future__ import annotations

from dataclasses import dataclass, field

from speck.model.observation import BrokerView, Sent, Taken
from speck.monitor.links import LinkMemory, News, ReaderOf, judge_links

READER = ReaderOf("r", "x", "B", "c", ("a-out",))


def view(
    uptime: int | None = 1000,
    dropped: int | None = 0,
    *,
    missing: int = 0,
    sent: int = 0,
    unread: int = 0,
) -> BrokerView:
    taken = Taken(1, {"A": {1: 0}}, {"A": {1: missing}} if missing else {})
    return BrokerView({"r": taken}, {"a-out": Sent("A", 1, sent, 0, unread)}, uptime, dropped)


@dataclass
class PollCache:
    memory: LinkMemory = field(default_factory=LinkMemory)
    now: float = 0.0

    def look(self, view: BrokerView | None, after: float = 5.0, limit: int = 100) -> list[News]:
        self.now += after
        readers = {"edge": [READER]}
        self.memory, news = judge_links(
            self.now, {"edge": view}, readers, self.memory, {"edge": limit}
        )
        return news


def kinds(news: list[News]) -> list[str]:
    return [item.kind for item in news]


def test_a_broker_that_goes_on_makes_no_news() -> None:
    looks = PollCache()
    for uptime in (100, 100, 110, 110, 120, 120, 130):
        assert looks.look(view(uptime)) == []


def test_a_broker_that_runs_for_less_long_was_restarted() -> None:
    looks = PollCache()
    looks.look(view(100))

    assert kinds(looks.look(view(0))) == ["restarted"]
    assert looks.look(view(4)) == []


def test_a_restart_shows_after_a_long_pause_of_the_service_too() -> None:
    looks = PollCache()
    looks.look(view(60))

    assert kinds(looks.look(view(480), after=600)) == ["restarted"]


def test_a_broker_that_tells_no_uptime() -> None:
    looks = PollCache()
    looks.look(view(None))

    assert looks.look(view(None), after=1000) == []


def test_silence_and_return_are_told_once() -> None:
    looks = PollCache()
    looks.look(view(100))

    assert looks.look(None) == [News("silent", "edge")]
    assert looks.look(None) == []
    assert looks.look(view(115)) == [News("back", "edge", 10)]


def test_one_that_is_silent_from_the_beginning() -> None:
    looks = PollCache()
    assert kinds(looks.look(None)) == ["silent"]
    assert kinds(looks.look(view(3))) == ["back"]


def test_dropped_messages_are_told_at_once_and_then_each_minute() -> None:
    looks = PollCache()
    looks.look(view(100, 7))  # before this service looked: not its news
    assert looks.look(view(105, 10)) == [News("dropped", "edge", 3)]
    news = [item for n in range(1, 13) for item in looks.look(view(105 + 5 * n, 10 + n))]
    assert news == [News("dropped", "edge", 12)]
    assert looks.memory.dropped == {"edge": 15}


def test_what_a_broker_does_not_tell_again_was_not_dropped_twice() -> None:
    """Mosquitto's retained count expires after a minute without a change."""
    looks = PollCache()
    looks.look(view(100, 0))
    assert looks.look(view(170, 7), after=70) == [News("dropped", "edge", 7)]
    assert looks.look(view(240, None), after=70) == []
    assert looks.look(view(310, 9), after=70) == [News("dropped", "edge", 2)]
    assert looks.memory.dropped == {"edge": 9}


def test_a_restarted_broker_counts_dropped_messages_anew() -> None:
    looks = PollCache()
    looks.look(view(100, 7))

    assert kinds(looks.look(view(0, 2))) == ["restarted", "dropped"]
    assert looks.memory.dropped == {"edge": 2}


def test_numbers_that_stay_missing_are_lost_and_counted_once() -> None:
    looks = PollCache()
    looks.look(view())
    news = [item for _ in range(60) for item in looks.look(view(missing=4))]

    assert news == [News("lost", "edge", 4, READER, "A")]
    more = [item for _ in range(60) for item in looks.look(view(missing=6))]
    assert more == [News("lost", "edge", 2, READER, "A")]
    assert looks.memory.lost == {"edge": 6}


def test_numbers_that_come_late_are_not_lost() -> None:
    looks = PollCache()
    looks.look(view())
    for n in range(100):
        assert looks.look(view(missing=4 if n % 10 else 0)) == []


def test_what_is_lost_while_ever_more_is_missing() -> None:
    looks = PollCache()
    looks.look(view())
    for n in range(1, 61):
        looks.look(view(missing=n))
    assert looks.memory.lost["edge"] >= 30


def test_what_was_missing_before_the_first_look_is_not_told() -> None:
    looks = PollCache()
    for _ in range(100):
        assert looks.look(view(missing=4)) == []


def test_a_queue_that_fills_up_is_told_once_until_it_is_emptier() -> None:
    looks = PollCache()
    looks.look(view(sent=80))

    assert looks.look(view(sent=81)) == [News("filling", "edge", 81, READER)]
    assert looks.look(view(sent=90)) == []
    assert looks.look(view(sent=70)) == []
    assert looks.look(view(sent=81)) == []
    assert looks.look(view(sent=59)) == []
    assert kinds(looks.look(view(sent=81))) == ["filling"]
