"""What kill -9 leaves of synced writes: `make bench-store` writes bench/results/store.json.

A round: a child opens the store and writes through `Records.write` from a few threads, so that
writes share a sync; it tells each write once that has returned; it is killed at a random moment.
Then the store is opened again: every acknowledged write must be there (else it is lost), every
write must be there whole or not at all (else it is torn), and events must be numbered on.

QUICK=1 takes ten rounds.

    python -m bench.store [--rounds N] [--no-file] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.common import is_quick, machine, say, write_result
from speck.clock import SystemClock
from speck.store.records import Records
from speck.store.tables import Batch

ROUNDS = 1000
THREADS = 4
KEYS = 3
"""How many records one write holds; they stand or fall together."""
LONGEST_S = 0.05
KEPT_ROUNDS = 20
"""How many rounds' records stay in the store, so that it is compacted and does not grow."""
_ACKNOWLEDGEMENT = struct.Struct("<BI")


@dataclass(slots=True)
class Tally:
    """The counts of all rounds."""

    rounds: int = 0
    killed_in_opening: int = 0
    acknowledged: int = 0
    lost: int = 0
    torn: int = 0
    faults: list[str] = field(default_factory=list)


def run(path: Path, rounds: int, chance: random.Random) -> Tally:
    """So many rounds on one store at `path`."""
    tally = Tally()
    Records.open(path, SystemClock()).store.close()
    for number in range(rounds):
        acknowledged = _write_and_be_killed(path, number, chance.uniform(0, LONGEST_S))
        tally.rounds += 1
        tally.acknowledged += sum(acknowledged)
        tally.killed_in_opening += not any(acknowledged)
        _check(path, number, acknowledged, tally)
    return tally


def _write_and_be_killed(path: Path, number: int, after_s: float) -> list[int]:
    """For each thread of the child how many of its writes were acknowledged."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(path, number, writer)
    os.close(writer)
    try:
        # From the first write on, or from the start: opening is killed in some rounds too.
        if number % 5:
            select.select([reader], [], [], 10.0)
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise RuntimeError(f"cannot go on: the writer of round {number} ended by itself")
        with os.fdopen(reader, "rb", closefd=False) as pipe:
            answers = pipe.read()
    finally:
        os.close(reader)
    acknowledged = [0] * THREADS
    for thread, count in _ACKNOWLEDGEMENT.iter_unpack(answers):
        acknowledged[thread] = max(acknowledged[thread], count)
    return acknowledged


def _child(path: Path, number: int, writer: int) -> None:
    """Write until the kill; never returns."""
    try:
        records = Records.open(path, SystemClock())
        threads = [
            threading.Thread(target=_write, args=(records, number, thread, writer))
            for thread in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException as error:
        print(f"round {number}: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


def _write(records: Records, number: int, thread: int, writer: int) -> None:
    count = 0
    while True:
        count += 1
        batch: Batch = {
            f"n/{number:06d}/{thread}/{count:06d}/{key}": {"n": count, "text": "x" * 40 * key}
            for key in range(KEYS)
        }
        records.write(batch, records.events.make("bench", f"{number}/{thread}/{count}"))
        os.write(writer, _ACKNOWLEDGEMENT.pack(thread, count))


def _check(path: Path, number: int, acknowledged: list[int], tally: Tally) -> None:
    records = Records.open(path, SystemClock())
    try:
        writes = _read_back(records, number)
        for thread in range(THREADS):
            there = writes.get(thread, {})
            lost = [n for n in range(1, acknowledged[thread] + 1) if n not in there]
            torn = [n for n, keys in there.items() if keys != set(range(KEYS))]
            tally.lost += len(lost)
            tally.torn += len(torn)
            if lost or torn:
                tally.faults.append(f"round {number}, thread {thread}: lost {lost}, torn {torn}")
        written = {f"{number}/{t}/{n}" for t, there in writes.items() for n in there}
        for fault in _find_event_faults(records, number, written):
            tally.torn += 1
            tally.faults.append(f"round {number}: {fault}")
        old = (key for key, _ in records.store.scan(f"n/{number - KEPT_ROUNDS:06d}/"))
        records.write(dict.fromkeys(old))
    finally:
        records.store.close()


def _read_back(records: Records, number: int) -> dict[int, dict[int, set[int]]]:
    """Thread -> write -> the keys of it that are there."""
    writes: dict[int, dict[int, set[int]]] = {}
    for key, _ in records.store.scan(f"n/{number:06d}/"):
        _, _, thread, count, part = key.split("/")
        writes.setdefault(int(thread), {}).setdefault(int(count), set()).add(int(part))
    return writes


def _find_event_faults(records: Records, number: int, written: set[str]) -> Iterator[str]:
    """Each write has its event, and events are numbered without a gap."""
    events = list(records.events.after())
    ids = [event.id for event in events]
    if ids and ids != list(range(ids[0], ids[0] + len(ids))):
        yield "events are not numbered on"
    mine = [e.message for e in events if e.message.startswith(f"{number}/")]
    if len(set(mine)) != len(mine) or set(mine) - written or written - set(mine):
        yield "events and writes differ"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10 if is_quick() else ROUNDS)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    parser.add_argument("--no-file", action="store_true", help="print the result only")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="speck-bench-") as folder:
        tally = run(Path(folder) / "store", options.rounds, random.Random(options.seed))
    for fault in tally.faults:
        say(fault)
    result = {
        "rounds": tally.rounds,
        "lost": tally.lost,
        "torn": tally.torn,
        "seconds": round(time.monotonic() - started, 1),
        "writes_told": tally.acknowledged,
        "rounds_killed_before_a_write": tally.killed_in_opening,
        "seed": options.seed,
        "machine": machine(),
    }
    if options.no_file:
        print(json.dumps(result))
    else:
        write_result("store.json", result)
    return 1 if tally.lost or tally.torn else 0


if __name__ == "__main__":
    sys.exit(main())
