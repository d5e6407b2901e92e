"""Messages through memory jobs and brokers: numbers, holes, marks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from binders.memory import MemoryBroker, MemoryEngine, World
from binders.memory.messages import Ledger, Message, Seen
from speck.binding import Target
from speck.model.observation import RunState, TakenEpoch
from tests.unit.binders.memory.sites import CLOUD_BROKER, EDGE, EDGE_BROKER, read, submission


def test_a_job_passes_messages_from_source_to_sink(world: World, jar: Path) -> None:
    MemoryBroker(Target(EDGE_BROKER)).reserve("speck-1234abcd-clean-00000000", "raw")
    MemoryBroker(Target(CLOUD_BROKER)).reserve("reader", "clean")
    MemoryEngine(Target(EDGE)).submit(submission(jar))

    world.feed(EDGE_BROKER, "raw", [b"1", b"2"], producer="sensor")
    world.feed(EDGE_BROKER, "raw", [b"3"], producer="sensor")
    assert world.pump() == 3

    source = MemoryBroker(Target(EDGE_BROKER)).view().taken["speck-1234abcd-clean-00000000"]
    sent = MemoryBroker(Target(CLOUD_BROKER)).view().sent["speck-1234abcd-clean-00000000-out"]
    assert source.taken == {"sensor": {1: 3}}
    assert source.messages == 3
    assert (sent.producer, sent.epoch, sent.number) == ("1234abcd-clean", (1 << 32) + 1, 3)
    assert read(world, CLOUD_BROKER, "reader") == [b"1", b"2", b"3"]


def test_jobs_work_whenever_numbers_are_looked_at(world: World, jar: Path) -> None:
    MemoryEngine(Target(EDGE)).submit(submission(jar, sink_readers="none"))
    world.feed(EDGE_BROKER, "raw", [b"1"])

    assert MemoryBroker(Target(CLOUD_BROKER)).view().sent != {}


def test_a_repeat_is_dropped(world: World, jar: Path) -> None:
    MemoryBroker(Target(CLOUD_BROKER)).reserve("reader", "clean")
    MemoryEngine(Target(EDGE)).submit(submission(jar))
    for number in (1, 2, 2, 1, 4):
        message = Message(b"%d" % number, "sensor", 1, number)
        world.broker(EDGE_BROKER).publish("raw", message)

    world.pump()

    taken = MemoryBroker(Target(EDGE_BROKER)).view().taken["speck-1234abcd-clean-00000000"]
    assert (taken.taken, taken.missing) == ({"sensor": {1: 2}}, {"sensor": {1: 1}})
    assert read(world, CLOUD_BROKER, "reader") == [b"1", b"2", b"4"]


def test_messages_are_held_while_a_link_s_readers_are_away(world: World, jar: Path) -> None:
    MemoryEngine(Target(EDGE)).submit(submission(jar, sink_readers="some"))
    world.feed(EDGE_BROKER, "raw", [b"1"])
    assert world.pump() == 0

    MemoryBroker(Target(CLOUD_BROKER)).reserve("reader", "clean")
    assert world.pump() == 1
    assert read(world, CLOUD_BROKER, "reader") == [b"1"]


def test_a_link_announced_to_have_no_readers_is_published_to(world: World, jar: Path) -> None:
    MemoryEngine(Target(EDGE)).submit(submission(jar, sink_readers="some"))
    MemoryBroker(Target(CLOUD_BROKER)).release("nobody", "clean", last_reader=True)
    world.feed(EDGE_BROKER, "raw", [b"1"])

    assert world.pump() == 1
    assert [message.payload for message in world.broker(CLOUD_BROKER).unread["clean"]] == [b"1"]


def test_what_nobody_had_reserved_is_lost_and_can_be_seen(world: World) -> None:
    world.feed(EDGE_BROKER, "raw", [b"1"])

    assert [message.payload for message in world.broker(EDGE_BROKER).unread["raw"]] == [b"1"]


def test_a_full_queue_drops_the_newest(world: World) -> None:
    MemoryBroker(Target(EDGE_BROKER)).reserve("reader", "raw")
    world.broker(EDGE_BROKER).queue_limit = 2
    world.feed(EDGE_BROKER, "raw", [b"1", b"2", b"3"])

    assert [message.payload for message in world.broker(EDGE_BROKER).dropped] == [b"3"]
    assert read(world, EDGE_BROKER, "reader") == [b"1", b"2"]


def test_what_a_released_session_held_can_be_seen(world: World) -> None:
    broker = MemoryBroker(Target(EDGE_BROKER))
    broker.reserve("reader", "raw")
    world.feed(EDGE_BROKER, "raw", [b"1"])

    broker.release("reader", "raw", last_reader=True)

    abandoned = world.broker(EDGE_BROKER).abandoned["reader"]
    assert [message.payload for message in abandoned] == [b"1"]


def test_touching_a_live_session_is_noted(world: World, jar: Path) -> None:
    engine, broker = MemoryEngine(Target(EDGE)), MemoryBroker(Target(EDGE_BROKER))
    engine.submit(submission(jar))

    broker.reserve("speck-1234abcd-clean-00000000", "raw")
    assert world.broker(EDGE_BROKER).thrown_out == ["speck-1234abcd-clean-00000000"]

    engine.cancel("a" * 32)
    broker.reserve("speck-1234abcd-clean-00000000", "raw")
    assert len(world.broker(EDGE_BROKER).thrown_out) == 1


# -- numbers ------------------------------------------------------------------------------


def test_holes_are_counted_and_filled() -> None:
    ledger = Seen()

    assert [ledger.add(number) for number in (1, 4, 6, 4)] == [True, True, True, False]
    assert (ledger.highest, ledger.missing) == (1, 3)
    assert [ledger.add(number) for number in (2, 3, 5)] == [True, True, True]
    assert (ledger.highest, ledger.missing) == (6, 0)


def test_the_last_four_epochs_are_kept() -> None:
    ledger = Ledger()
    for epoch in range(1, 7):
        ledger.add(Message(b"", "p", epoch, 1))

    assert ledger.taken() == {"p": {3: 1, 4: 1, 5: 1, 6: 1}}
    assert ledger.messages == 6


def takes(ledger: Ledger, *numbers: int, epoch: int = 1) -> list[int]:
    """Those of the producer p's numbers that are no repeats."""
    return [number for number in numbers if ledger.add(Message(b"", "p", epoch, number))]


def test_what_another_reader_has_taken_is_dropped_and_its_holes_are_not() -> None:
    ledger = Ledger()
    ledger.take_over([TakenEpoch("p", 1, 4, ((6, 7),)), TakenEpoch("q", 1, 9)])

    assert takes(ledger, *range(1, 10)) == [5, 8, 9]
    assert ledger.taken() == {"p": {1: 9}, "q": {1: 9}}
    assert ledger.messages == 3, "what the other one took does not count"


def test_a_hole_that_another_reader_has_left_is_missing() -> None:
    ledger = Ledger()
    ledger.take_over([TakenEpoch("p", 1, 4, ((6, 7),))])

    assert ledger.missing() == {"p": {1: 1}}
    takes(ledger, 9)
    assert ledger.missing() == {"p": {1: 2}}, "after what was taken a gap is a loss"


def test_taking_over_again_changes_nothing() -> None:
    ledger, taken = Ledger(), [TakenEpoch("p", 1, 4, ((6, 6),))]
    ledger.take_over(taken)
    takes(ledger, 5, 8)
    before = (ledger.taken(), ledger.above(), ledger.missing(), ledger.messages)

    ledger.take_over(taken)

    assert (ledger.taken(), ledger.above(), ledger.missing(), ledger.messages) == before
    assert takes(ledger, *range(1, 10)) == [7, 9]


def test_numbers_of_another_epoch_are_not_dropped() -> None:
    ledger = Ledger()
    ledger.take_over([TakenEpoch("p", 1, 4)])

    assert takes(ledger, 1, 2, epoch=2) == [1, 2]


def test_a_reader_that_came_late_drops_what_was_taken_before_it_came() -> None:
    ledger = Ledger()
    assert takes(ledger, 5, 3) == [5, 3]

    ledger.take_over([TakenEpoch("p", 1, 4)])

    assert takes(ledger, 1, 2, 3, 4, 5, 6) == [6]
    assert ledger.taken() == {"p": {1: 6}}


def test_what_nobody_took_before_a_reader_came_late_is_taken_if_it_comes() -> None:
    ledger = Ledger()
    takes(ledger, 5)

    ledger.take_over([TakenEpoch("p", 1, 2)])

    assert takes(ledger, 3, 4) == [3, 4]


def test_what_was_taken_past_a_hole_is_told_as_ranges() -> None:
    ledger = Ledger()
    assert ledger.above() == {}
    takes(ledger, 1, 2, 4, 7, 6, 9)
    ledger.add(Message(b"", "q", 1, 1))

    assert ledger.above() == {"p": {1: ((4, 4), (6, 7), (9, 9))}}
    takes(ledger, 3, 5, 8)
    assert ledger.above() == {}


def test_a_reader_tells_what_it_has_taken_past_a_hole(world: World, jar: Path) -> None:
    MemoryEngine(Target(EDGE)).submit(submission(jar))
    broker, client_id = world.broker(EDGE_BROKER), "speck-1234abcd-clean-00000000"
    for number in (1, 3):
        broker.publish("raw", Message(b"%d" % number, "p", 7, number))
    world.broker(CLOUD_BROKER).subscribe("reader", "clean")

    world.pump()
    report = broker.taken[client_id]
    assert (report.taken, report.above) == ({"p": {7: 1}}, {"p": {7: ((3, 3),)}})


def test_a_reader_takes_no_more_than_it_is_to_read_until(world: World, jar: Path) -> None:
    submitted = submission(jar)
    args = (*submitted.args, "--until", "p/7/1/3-3")
    MemoryEngine(Target(EDGE)).submit(replace(submitted, args=args))
    broker, client_id = world.broker(EDGE_BROKER), "speck-1234abcd-clean-00000000"
    world.broker(CLOUD_BROKER).subscribe("reader", "clean")
    messages = [Message(b"%d" % number, "p", 7, number) for number in (1, 2, 3)]
    for message in (Message(b"early"), *messages, Message(b"late")):
        broker.publish("raw", message)
    world.pump()
    assert world.broker(CLOUD_BROKER).take("reader") == [b"early", b"1", b"3"]
    (running,) = world.engine(EDGE).running()
    running.end(RunState.FINISHED)
    assert broker.take(client_id) == [b"2", b"late"]


def test_a_mark_is_told_with_the_checkpoint_that_covers_what_came_before(
    world: World, jar: Path
) -> None:
    MemoryEngine(Target(EDGE)).submit(submission(jar))
    broker, client_id = world.broker(EDGE_BROKER), "speck-1234abcd-clean-00000000"
    reads = world.broker(CLOUD_BROKER).subscribe("reader", "clean")
    broker.publish("raw", Message(b"1", "p", 7, 1))
    assert MemoryBroker(Target(EDGE_BROKER)).mark(client_id, "a1")
    (running,) = world.engine(EDGE).running()

    world.broker(CLOUD_BROKER).sessions.clear()  # nobody takes what it has to send
    world.pump()
    running.checkpoint("memory:/here")
    assert broker.taken[client_id].mark is None
    world.broker(CLOUD_BROKER).sessions["reader"] = reads
    world.pump(checkpoint=False)
    assert broker.taken[client_id].mark is None
    world.pump()
    assert (broker.taken[client_id].mark, broker.taken[client_id].messages) == ("a1", 1)
    assert world.broker(CLOUD_BROKER).take("reader") == [b"1"]


def test_a_mark_that_no_checkpoint_covers_goes_back_to_its_session(world: World, jar: Path) -> None:
    engine = MemoryEngine(Target(EDGE))
    engine.submit(submission(jar, sink_readers="none"))
    broker, client_id = world.broker(EDGE_BROKER), "speck-1234abcd-clean-00000000"
    MemoryBroker(Target(EDGE_BROKER)).mark(client_id, "a1")
    world.pump(checkpoint=False)
    (running,) = world.engine(EDGE).running()
    engine.cancel(running.id)
    engine.submit(replace(submission(jar, sink_readers="none"), engine_job_id="0" * 32))
    world.pump()
    assert broker.taken[client_id].mark == "a1"
    assert MemoryBroker(Target(EDGE_BROKER)).measure()[0].queued == 0


def test_a_session_takes_marks_once_a_reader_of_ours_has_held_it(world: World, jar: Path) -> None:
    broker, client_id = MemoryBroker(Target(EDGE_BROKER)), "speck-1234abcd-clean-00000000"
    assert not broker.mark(client_id, "a0")
    broker.reserve(client_id, "raw")
    assert not broker.mark(client_id, "a1")
    MemoryEngine(Target(EDGE)).submit(submission(jar))
    assert broker.mark(client_id, "a2")
    world.engine(EDGE).running()[0].end(RunState.FAILED)
    assert broker.mark(client_id, "a3")
    assert world.broker(EDGE_BROKER).take(client_id) == []
    broker.mark(client_id, "a4")
    broker.release(client_id, "raw", last_reader=True)
    assert not world.broker(EDGE_BROKER).abandoned


def test_a_sink_tells_the_topic_that_it_sends_to(world: World, jar: Path) -> None:
    MemoryEngine(Target(EDGE)).submit(submission(jar, sink_readers="none"))
    world.feed(EDGE_BROKER, "raw", [b"1"], "sensor")

    world.pump()

    (sent,) = world.broker(CLOUD_BROKER).sent.values()
    assert sent.topic == "clean"


def test_a_job_drops_what_its_arguments_say_was_taken(world: World, jar: Path) -> None:
    plain = submission(jar, sink_readers="none")
    engine = MemoryEngine(Target(EDGE))
    engine.submit(replace(plain, args=(*plain.args, "--taken", "sensor/1/2/4-4")))
    world.feed(EDGE_BROKER, "raw", [b"1", b"2", b"3", b"4", b"5"], "sensor")

    world.pump()

    assert [m.payload for m in world.broker(CLOUD_BROKER).published["clean"]] == [b"3", b"5"]
