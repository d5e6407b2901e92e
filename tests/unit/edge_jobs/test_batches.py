"""Batches of the Python client, against the binder that reads them for speck."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speck_link.batches import FRAMED, ZSTD, BatchError, encode_length, pack, unpack

from binders.mqtt.batches import unpack as unpack_for_speck

RECORDS = st.lists(st.binary(max_size=300), min_size=1, max_size=30)


@given(RECORDS, st.booleans())
def test_a_batch_is_read_by_both(records: list[bytes], zstd: bool) -> None:
    kind, payload = pack(records, in_batches=True, zstd=zstd)
    stamp = f"p/1/5+{len(records)}" if kind else "p/1/5"
    read = list(unpack_for_speck(stamp, kind, payload))
    assert [each.payload for each in read] == records
    assert [each.stamp for each in read] == [f"p/1/{n}" for n in range(5, 5 + len(records))]
    if kind is not None:
        assert unpack(kind, payload, len(records)) == records


def test_compression_is_left_out_where_it_saves_nothing() -> None:
    assert pack([b"ab"], in_batches=True, zstd=True) == (None, b"ab")
    kind, payload = pack([b"a" * 1000], in_batches=True, zstd=True)
    assert kind == ZSTD
    assert len(payload) < 100


@pytest.mark.parametrize(
    ("kind", "payload", "count"),
    [
        (FRAMED, b"", None),
        (FRAMED, b"\x05ab", None),
        (FRAMED, b"\x80\x80\x80\x80\x80\x80", None),
        (FRAMED, b"\x01a", 2),
        (ZSTD, b"\x05notzstd", 1),
        (ZSTD, encode_length(1 << 30) + b"x", 1),
    ],
)
def test_a_damaged_batch_is_refused(kind: str, payload: bytes, count: int | None) -> None:
    with pytest.raises(BatchError):
        unpack(kind, payload, count)
