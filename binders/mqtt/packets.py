"""Cuts what a broker sends into packets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paho.mqtt.exception import MalformedPacket

_MOST_DIGITS = 4
"""Of the length of a packet."""


class PacketReader:
    """`keeps` is asked with the first byte and the size of each packet, before that is complete. It
    may raise; a packet that is not kept is skipped, and takes no memory."""

    def __init__(self, keeps: Callable[[int, int], bool]) -> None:
        self._keeps = keeps
        self._unread = bytearray()
        self._to_skip = 0

    def read(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """The packets that are complete with this piece: the first byte of each, and what follows
        its length. Raises MalformedPacket."""
        self._unread += piece[self._to_skip :]
        self._to_skip = max(0, self._to_skip - len(piece))
        data, start = self._unread, 0
        while (size := _read_length(data, start + 1)) is not None:
            end = sum(size) + start + 1
            if not self._keeps(data[start], size[0]):
                self._to_skip = max(0, end - len(data))
            elif end > len(data):
                break
            else:
                yield data[start], bytes(data[start + 1 + size[1] : end])
            start = min(end, len(data))
        del data[:start]


def _read_length(data: bytearray, start: int) -> tuple[int, int] | None:
    """The number that begins there, and of how many digits; None while some are missing."""
    number = 0
    for count, digit in enumerate(data[start : start + _MOST_DIGITS]):
        number |= (digit & 0x7F) << 7 * count
        if digit < 0x80:
            return number, count + 1
    if len(data) - start >= _MOST_DIGITS:
        raise MalformedPacket("a packet's length has more than four digits")
    return None
