"""What a broker sends is cut into packets, however it arrives."""

from __future__ import annotations

import pytest
from paho.mqtt.exception import MalformedPacket

from binders.mqtt.packets import PacketReader

LARGE = b"x" * 300
PACKETS = [(0x20, b"\0\0\0"), (0x31, LARGE), (0xD0, b""), (0x40, b"\0\7")]
STREAM = b"\x20\3\0\0\0" + b"\x31\xac\2" + LARGE + b"\xd0\0" + b"\x40\2\0\7"


def read(reader: PacketReader, size: int) -> list[tuple[int, bytes]]:
    pieces = (STREAM[at : at + size] for at in range(0, len(STREAM), size))
    return [packet for piece in pieces for packet in reader.read(piece)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, len(STREAM)])
def test_packets_come_in_pieces_of_any_size(size: int) -> None:
    assert read(PacketReader(lambda command, length: True), size) == PACKETS


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, len(STREAM)])
def test_a_packet_that_is_not_kept_is_skipped_and_takes_no_memory(size: int) -> None:
    reader = PacketReader(lambda command, length: length < 100)
    assert read(reader, size) == [PACKETS[0], *PACKETS[2:]]
    assert len(reader._unread) == 0


def test_a_packet_may_be_refused_before_it_has_come() -> None:
    def refuse(command: int, length: int) -> bool:
        raise ValueError(f"{length} bytes")

    with pytest.raises(ValueError, match="200000000 bytes"):
        list(PacketReader(refuse).read(b"\x31\x80\x84\xaf\x5f"))


def test_a_length_has_four_digits_at_most() -> None:
    reader = PacketReader(lambda command, length: True)
    assert list(reader.read(b"\x31\xff\xff\xff")) == []
    with pytest.raises(MalformedPacket):
        list(reader.read(b"\xff"))
