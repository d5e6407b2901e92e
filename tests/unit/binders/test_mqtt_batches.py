"""What speck's readers make of messages with many records."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binders.mqtt.batches import FRAMED, MAX_BYTES, ZSTD, unpack
from binders.mqtt.records import read_records
from speck.errors import PermanentError
from speck.model.record import Record


def number(value: int) -> bytes:
    varint = b""
    while value > 0x7F:
        varint += bytes([value & 0x7F | 0x80])
        value >>= 7
    return varint + bytes([value])


def frames(*payloads: bytes) -> bytes:
    return b"".join(number(len(payload)) + payload for payload in payloads)


def compressed(framed: bytes) -> bytes:
    return number(len(framed)) + bytes(pyarrow.Codec("zstd").compress(framed))


def message(payload: bytes, stamp: str | None, content_type: str | None) -> SimpleNamespace:
    properties = SimpleNamespace()
    if stamp:
        properties.UserProperty = [("other", "x"), ("speck", stamp)]
    if content_type:
        properties.ContentType = content_type
    return SimpleNamespace(payload=payload, properties=properties)


def test_a_message_without_our_content_type_is_one_record() -> None:
    payload = frames(b"a", b"b")
    assert read_records(message(payload, "p/1/7", None)) == [Record("p/1/7", payload)]
    assert read_records(message(payload, None, "text/plain")) == [Record(None, payload)]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=40), st.booleans())
def test_a_batch_is_its_records_each_with_its_number(payloads: list[bytes], zstd: bool) -> None:
    framed = frames(*payloads)
    body = compressed(framed) if zstd else framed
    records = list(unpack(f"p/12/5+{len(payloads)}", ZSTD if zstd else FRAMED, body))
    assert records == [Record(f"p/12/{n}", payload) for n, payload in enumerate(payloads, 5)]


def test_a_batch_that_we_did_not_stamp_has_no_numbers() -> None:
    for stamp in (None, "p/1/7", "+3"):
        assert list(unpack(stamp, FRAMED, frames(b"a"))) == [Record(None, b"a")]


@pytest.mark.parametrize(
    ("content_type", "payload", "message"),
    [
        (FRAMED, b"", "it is empty"),
        (FRAMED, frames(b"abc")[:-1], "past its end"),
        (FRAMED, b"\xff" * 6, "within a length"),
        (FRAMED, frames(b"a"), "has 1 records, not 2"),
        (FRAMED, bytes(10_001), "more than 10000 records"),
        (ZSTD, b"\x05nonsense", "cannot read a batch"),
        (ZSTD, number(MAX_BYTES + 1) + b"x", "are more than"),
    ],
)
def test_what_is_damaged_is_refused(content_type: str, payload: bytes, message: str) -> None:
    with pytest.raises(PermanentError, match=message):
        list(unpack("p/1/1+2", content_type, payload))


@given(st.binary(max_size=200), st.sampled_from([FRAMED, ZSTD]))
def test_nothing_does_more_than_to_be_refused(payload: bytes, content_type: str) -> None:
    try:
        list(unpack("p/1/1+2", content_type, payload))
    except PermanentError as error:
        assert str(error).startswith("cannot read a batch")


@pytest.mark.parametrize(
    "stamp", ["p/1/" + "9" * 5_000 + "+1", "p/1/1+" + "9" * 5_000, "p" * 60_000 + "/1/1+3"]
)
def test_a_stamp_that_no_sink_gives_is_no_stamp(stamp: str) -> None:
    """`int` refuses thousands of digits, and each record would repeat a long series."""
    records = list(unpack(stamp, FRAMED, b"\x01a\x01b\x01c"))
    assert [(record.stamp, record.payload) for record in records] == [
        (None, b"a"),
        (None, b"b"),
        (None, b"c"),
    ]
