import pytest

from binders.mqtt import bookkeeping
from binders.mqtt.bookkeeping import DROPPED, UPTIME, Retained, Totals, parse_sent, parse_taken
from speck.model.measurement import MOST_OF_PROBLEM, BrokerMeasures
from speck.model.observation import BrokerView, Sent, Taken, TakenEpoch


def test_taken_is_read_with_numbers_as_numbers() -> None:
    payload = (
        b'{"v":1,"at":5,"checkpoint":3,"taken":{"p":{"4294967297":10}},'
        b'"missing":{"p":{"4294967297":1}},"messages":12}'
    )

    assert parse_taken(payload) == Taken(3, {"p": {4294967297: 10}}, {"p": {4294967297: 1}}, 12, 5)


def test_what_a_reader_may_leave_out() -> None:
    assert parse_taken(b'{"v":1,"checkpoint":0}') == Taken(0, {})


def test_what_a_reader_has_taken_past_a_hole_is_read() -> None:
    payload = (
        b'{"v":1,"checkpoint":3,"taken":{"p":{"4294967297":10}},'
        b'"above":{"p":{"4294967297":[[12,12],[15,20]]},"q":{"1":[]}}}'
    )

    taken = parse_taken(payload)

    assert taken.above == {"p": {4294967297: ((12, 12), (15, 20))}, "q": {1: ()}}
    assert taken.epochs() == (TakenEpoch("p", 4294967297, 10, ((12, 12), (15, 20))),)


@pytest.mark.parametrize(("payload", "mark"), [(b',"mark":"0af9"', "0af9"), (b"", None)])
def test_the_mark_of_a_reader_is_read(payload: bytes, mark: str | None) -> None:
    assert parse_taken(b'{"v":1,"checkpoint":7' + payload + b"}").mark == mark


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'"above":[]', "ranges by producer are no object"),
        (b'"above":{"p":[[1,2]]}', "ranges of p are no object"),
        (b'"above":{"p":{"1":{}}}', "ranges of p are no list"),
        (b'"above":{"p":{"x":[[1,2]]}}', "no number"),
        (b'"above":{"p":{"1":[3]}}', "a range of p is no pair of rising numbers"),
        (b'"above":{"p":{"1":[[3]]}}', "a range of p is no pair of rising numbers"),
        (b'"above":{"p":{"1":[[1,2,3]]}}', "a range of p is no pair of rising numbers"),
        (b'"above":{"p":{"1":[[4,3]]}}', "a range of p is no pair of rising numbers"),
        (b'"above":{"p":{"1":[[0,3]]}}', "a range of p is no pair of rising numbers"),
        (b'"above":{"p":{"1":[["1","2"]]}}', "a range of p is no pair of rising numbers"),
        (b'"above":{"p":{"1":[[1.0,2]]}}', "a range of p is no pair of rising numbers"),
        (b'"mark":1', "mark is no text"),
        (b'"mark":["a"]', "mark is no text"),
    ],
)
def test_ranges_and_marks_of_another_kind_are_a_value_error(payload: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_taken(b'{"v":1,"checkpoint":1,' + payload + b"}")


@pytest.mark.parametrize("pair", [b"[true,2]", b"[true,true]", b"[1,true]"])
def test_true_is_no_number_of_a_range(pair: bytes) -> None:
    with pytest.raises(ValueError, match="no pair of rising numbers"):
        parse_taken(b'{"v":1,"checkpoint":1,"above":{"p":{"1":[' + pair + b"]}}}")


def test_sent_is_read() -> None:
    payload = b'{"v":1,"at":5,"producer":"p","epoch":4294967297,"number":7}'

    assert parse_sent(payload) == Sent("p", 4294967297, 7, 5)


def test_what_a_sink_and_a_reader_say_of_losses_is_read() -> None:
    sent = (
        b'{"v":1,"producer":"p","epoch":1,"number":7,"refused":3,"left_out":2,"lost":1,'
        b'"problem":"cannot write"}'
    )
    assert parse_sent(sent) == Sent(
        "p", 1, 7, refused=3, left_out=2, lost=1, problem="cannot write"
    )
    assert parse_taken(b'{"v":1,"checkpoint":1,"dropped":4}').dropped == 4
    long = b'{"v":1,"producer":"p","epoch":1,"number":7,"problem":"%s"}' % (b"x" * 10_000)
    assert parse_sent(long).problem == "x" * MOST_OF_PROBLEM


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{", "line 1 column 2"),
        (b"\xff", "not valid UTF-8"),
        (b"[]", "no JSON object"),
        (b'{"checkpoint":1}', "version None"),
        (b'{"v":1}', "checkpoint is no whole number"),
        (b'{"v":1,"checkpoint":true}', "checkpoint is no whole number"),
        (b'{"v":1,"checkpoint":-1}', "checkpoint is no whole number"),
        (b'{"v":1,"checkpoint":100000000000000000000}', "checkpoint is no whole number"),
        (b'{"v":1,"checkpoint":1,"mark":"\\ud800"}', "surrogate"),
        (b'{"v":1,"checkpoint":1,"taken":[]}', "no object"),
        (b'{"v":1,"checkpoint":1,"taken":{"p":3}}', "numbers of p are no object"),
        (b'{"v":1,"checkpoint":1,"taken":{"p":{"x":3}}}', "no number"),
        (b'{"v":1,"checkpoint":1,"taken":{"p":{"1":"3"}}}', "1 is no whole number"),
    ],
)
def test_anything_else_is_a_value_error(payload: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_taken(payload)


def test_sent_needs_a_producer() -> None:
    with pytest.raises(ValueError, match="producer is no text"):
        parse_sent(b'{"v":1,"epoch":1,"number":1}')


def test_the_topic_that_a_sink_sends_to_is_read() -> None:
    payload = b'{"v":1,"producer":"p","epoch":1,"number":7,"topic":"traffic/a"}'

    assert parse_sent(payload) == Sent("p", 1, 7, topic="traffic/a")
    assert parse_sent(b'{"v":1,"producer":"p","epoch":1,"number":7}').topic is None


def test_a_topic_that_is_no_text_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="topic is no text"):
        parse_sent(b'{"v":1,"producer":"p","epoch":1,"number":7,"topic":["a"]}')


def test_what_a_sink_holds_back_is_read() -> None:
    payload = b'{"v":1,"producer":"p","epoch":1,"number":7,"unread":4}'

    assert parse_sent(payload) == Sent("p", 1, 7, unread=4)


def test_retained_topics_make_a_view_and_empty_ones_clear() -> None:
    read = Retained()
    read.add("speck/sent/gone", b'{"v":1,"producer":"p","epoch":1,"number":7}')
    read.add("speck/sent/gone", b"")
    read.add("speck/taken/r", b'{"v":1,"checkpoint":0}')
    read.add("speck/readers/a/b", b"some")
    read.add("speck/readers/c", b"none")
    read.add("$SYS/broker/uptime", b"12 seconds")
    read.add("$SYS/broker/publish/messages/dropped", b"3")

    assert read.view() == BrokerView(
        {"r": Taken(0, {})}, {}, uptime_s=12, dropped=3, readers={"a/b": True, "c": False}
    )


def test_a_broker_that_tells_nothing_of_itself() -> None:
    assert Retained().view() == BrokerView({}, {}, uptime_s=None, dropped=None)


def make_totals(
    before: dict[str, int], elapsed_s: float = 0.0, **values: int
) -> bookkeeping.Totals:
    topics = {name: topic for topic, name in bookkeeping.TOTALS.items()}
    topics |= {"stored": bookkeeping.STORED, "retained": bookkeeping.RETAINED_COUNT}
    totals = bookkeeping.Totals(before, elapsed_s)
    for name, value in values.items():
        totals.add(topics[name], f"{value} seconds".encode())
    return totals


def test_totals_that_a_broker_does_not_tell_again_are_as_they_were() -> None:
    """Mosquitto's retained $SYS messages expire after a minute without a change."""
    first = make_totals({}, uptime_s=10, dropped=5, messages_in=7, stored=9, retained=6)
    assert (first.measures().dropped, first.measures().queued) == (5, 3)
    later = make_totals(first.values(), uptime_s=100, messages_in=8)
    assert (later.measures().dropped, later.measures().messages_in) == (5, 8)


def test_a_broker_that_began_anew_is_not_what_it_was() -> None:
    first = make_totals({}, uptime_s=100, dropped=5)
    assert make_totals(first.values(), uptime_s=3, messages_in=1).measures().dropped is None


def test_a_broker_that_tells_nothing_tells_nothing() -> None:
    first = make_totals({}, uptime_s=100, dropped=5)
    assert make_totals(first.values()).measures() == BrokerMeasures()


def test_a_broker_that_began_anew_long_ago_is_not_what_it_was_either() -> None:
    """It has been up for longer by now than at the look before, but not since then."""
    first = make_totals({}, uptime_s=100, dropped=5)
    again = make_totals(first.values(), 600, uptime_s=200, messages_in=1)
    assert again.measures().dropped is None
    went_on = make_totals(first.values(), 600, uptime_s=690, messages_in=1)  # as of 10 s ago
    assert went_on.measures().dropped == 5


@pytest.mark.parametrize(
    "text",
    [b"9" * 400, b"9" * 5000, b"9" * 16, b"-1", b"1_000", "\u0663".encode(), b"", b" ", b"1e9"],
)
def test_numbers_that_nobody_can_add_up_are_none(text: bytes) -> None:
    retained, totals = Retained(), Totals({})
    for topic in (DROPPED, UPTIME):
        with pytest.raises(ValueError, match="number"):
            retained.add(topic, text)
        with pytest.raises(ValueError, match="number"):
            totals.add(topic, text)
    for field in ('"taken":{"p":{"%s":1}}', '"above":{"p":{"%s":[[1,2]]}}'):
        with pytest.raises(ValueError, match="number"):
            parse_taken(b'{"v":1,"checkpoint":1,' + field.encode() % text + b"}")
    totals.add(UPTIME, b"1234 seconds")
    assert totals.values() == {UPTIME: 1234}
