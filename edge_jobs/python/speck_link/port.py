"""Where a job writes: the links of its sink, most often one. Each has numbers, batches and a window
of its own, and its own part of a checkpoint."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from speck_link import leftovers
from speck_link.arguments import Contract, Link
from speck_link.messages import SENT, UNSENT, Builder, Message, choose_epoch, most_batch_bytes
from speck_link.sink import Sink
from speck_link.state import Row, State
from speck_link.transport import Writer, WriterOpener
from speck_link.window import ResendWindow

_MOST_HELD = 4 << 20

Choose = Callable[[bytes, int], int | None]
"""To which of so many links a record goes; None: to the next one in turn."""


@dataclass
class Outlet:
    """One link: its sink, the last number that it has, and what is on the way to the sink."""

    sink: Sink
    name: str
    epoch: int
    number: int
    builder: Builder
    held: list[Message]
    """Until the checkpoint, under exactly_once."""


class Port:
    """The links of a job's sink."""

    def __init__(
        self, contract: Contract, state: State, connect: WriterOpener, choose: Choose
    ) -> None:
        self._contract, self._connect, self._choose = contract, connect, choose
        self._before = json.loads(state.fact("sink") or "{}")
        self._numbers: dict[str, Any] = json.loads(state.fact("port") or "{}")
        self._place = self._before.get("place", 0)
        self._turn = 0
        self._held_bytes = 0
        own, self.elsewhere = leftovers.part(state.messages(), contract)
        self._outlets = [self._open(link, own[link.client_id]) for link in contract.port]
        self.sinks = [each.sink for each in self._outlets]
        self.writers: list[Writer] = [sink.writer for sink in self.sinks]

    def _open(self, link: Link, rows: list[Row]) -> Outlet:
        """Go on with the numbers of the state, and with what is left to publish."""
        contract = self._contract
        producer = contract.producer_of(link)
        before = self._numbers.get(link.client_id)
        if before is None and link == contract.sink:
            before = self._before
        before = before or {}
        if contract.is_exact and self._before.get("exact") and before.get("producer") == producer:
            epoch, number = before["epoch"], before["number"]
        else:
            epoch, number = choose_epoch(contract.attempt, before.get("epoch", 0)), 0
        window = ResendWindow(contract.resend_s, contract.resend_bytes, contract.resend_state_bytes)
        sink = Sink(contract, link, window, self._connect, producer)
        leftovers.give(rows, sink)
        builder = Builder(contract.batch_records, zstd=contract.zstd)
        name = leftovers.name_link(link, producer if contract.numbers_apart else None)
        return Outlet(sink, name, epoch, number, builder, [])

    # -- records

    @property
    def is_full(self) -> bool:
        return self._held_bytes > _MOST_HELD or any(sink.is_full for sink in self.sinks)

    @property
    def has_unbuilt(self) -> bool:
        """Whether records wait for others of their message."""
        return any(len(each.builder) for each in self._outlets)

    def write(self, record: bytes) -> None:
        outlet = self._pick(record)
        sink, builder = outlet.sink, outlet.builder
        most, limit = sink.max_payload, self._contract.max_record_bytes
        if len(record) > min(limit, most):
            sink.leave_out(len(record))
            return
        if not builder.has_room(record, most_batch_bytes(limit, most)):
            self._build(outlet)
        builder.add(record, time.monotonic())
        sink.records_sent += 1
        if builder.is_full:
            self._build(outlet)

    def _pick(self, record: bytes) -> Outlet:
        count = len(self._outlets)
        if count == 1:
            return self._outlets[0]
        chosen = self._choose(record, count)
        if chosen is None:
            self._turn = chosen = (self._turn + 1) % count
        return self._outlets[chosen]

    def _build(self, outlet: Outlet) -> None:
        kind, payload, count = outlet.builder.build()
        message = Message(self._place, outlet.epoch, outlet.number + 1, count, kind, payload)
        self._place += count
        outlet.number += count
        if self._contract.is_exact:
            outlet.held.append(message)
            self._held_bytes += message.size
        else:
            outlet.sink.add(message)

    def build_what_waited(self, now: float) -> None:
        for each in self._outlets:
            if len(each.builder) and now - each.builder.began >= self._contract.linger_s:
                self._build(each)

    def build_all(self) -> None:
        for each in self._outlets:
            if len(each.builder):
                self._build(each)

    def tend(self, now: float) -> None:
        for sink in self.sinks:
            sink.tend(now)

    def disconnect(self) -> None:
        for writer in self.writers:
            writer.disconnect()

    # -- checkpoints

    def announce(self) -> bool:
        """Announce of each link up to which number the broker has everything; whether it has all
        of that."""
        announced = [sink.announce() for sink in self.sinks]
        return all(announced)

    def take_rows(self) -> tuple[list[Row], list[int]]:
        """What a checkpoint has to store, and the places of what it deletes."""
        rows: list[Row] = []
        gone: list[int] = []
        for each in self._outlets:
            fresh, old = each.sink.window.store(each.sink.first_pending)
            rows += [message.to_row(each.name, SENT) for message in fresh]
            rows += [message.to_row(each.name, UNSENT) for message in each.held]
            gone += old
        return rows, gone

    def release(self) -> None:
        """The checkpoint is complete: what it holds goes out."""
        self._held_bytes = 0
        for each in self._outlets:
            held, each.held = each.held, []
            for message in held:
                each.sink.add(message)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(each.number for each in self._outlets)

    def render(self) -> dict[str, str]:
        """What the state is to know of the numbers. One link goes by the name `sink` alone, so that
        it is the same job that writes to others under the same numbers."""
        contract = self._contract
        of_links = {
            each.sink.link.client_id: {
                "producer": contract.producer_of(each.sink.link),
                "epoch": each.epoch,
                "number": each.number,
            }
            for each in self._outlets
        }
        first = of_links[contract.sink.client_id]
        sink = {**first, "exact": contract.is_exact, "place": self._place}
        port = of_links if contract.numbers_apart else {}
        return {"sink": json.dumps(sink), "port": json.dumps(port)}
