"""The sink of a job that has ended, alone: `python -m speck_link.resend`, with the job's arguments
and its state. It sends what its broker has forgotten since the job ended, reads no link, and ends
when the broker has all of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from speck_link import brokers, leftovers
from speck_link.arguments import ArgumentFaultError, Arguments, read_contract
from speck_link.batches import load_zstd
from speck_link.sink import Sink
from speck_link.state import State
from speck_link.transport import WriterOpener
from speck_link.window import ResendWindow

_TICK_S = 0.2


def resend(
    words: Sequence[str], folder: Path, open_writer: WriterOpener = brokers.open_writer
) -> None:
    """Raises ArgumentFaultError, sqlite3.Error and OSError. While a broker is away it waits."""
    contract = read_contract(Arguments(words))
    if contract.zstd:
        load_zstd()
    state = State(folder)
    own, elsewhere = leftovers.part(state.messages(), contract)
    state.close()
    links = [(link, contract.producer_of(link), own[link.client_id]) for link in contract.port]
    for link, producer, rows in (*leftovers.by_link(elsewhere), *links):
        if not rows:
            continue
        window = ResendWindow(contract.resend_s, contract.resend_bytes, 0)
        sink = Sink(contract, link, window, open_writer, producer)
        leftovers.give(rows, sink)
        while not (sink.writer.ready and sink.announce()):  # what is missing it knows then
            leftovers.wait((sink.writer,), _TICK_S)
            sink.tend(time.monotonic())
        sink.writer.disconnect()


def main() -> None:
    """Do so with the arguments of this program; status 2, and one line on stderr, if they are
    wrong."""
    try:
        resend(sys.argv[1:], Path(os.environ.get("SPECK_STATE_DIR", ".")))
    except ArgumentFaultError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
