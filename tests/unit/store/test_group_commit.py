"""Writes of many threads are committed together, and fail on their own."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from speck.store.group_commit import GroupCommit
from speck.store.tables import Batch
from tests.waiting import wait_for


class Disk:
    """Takes batches once it is open, and refuses those of a key `bad`."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.busy = threading.Event()
        self.commits: list[list[Batch]] = []

    def commit(self, batches: list[Batch]) -> None:
        self.busy.set()
        assert self.open.wait(30)
        if any("bad" in batch for batch in batches):
            raise ValueError("bad")
        self.commits.append(batches)


def test_what_waits_during_a_commit_shares_the_next_one() -> None:
    disk = Disk()
    commits = GroupCommit(disk.commit)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(commits.write, {"first": {}})
        assert disk.busy.wait(30)
        others = [pool.submit(commits.write, {f"k{n}": {}}) for n in range(8)]
        wait_for(lambda: commits.queued == 8, "the others to wait")
        disk.open.set()
        for write in (first, *others):
            write.result(30)
    assert disk.commits[0] == [{"first": {}}]
    assert [len(batches) for batches in disk.commits] == [1, 8]


def test_the_lead_goes_from_one_to_the_next() -> None:
    """Each of them commits what came meanwhile, in the order in which it came."""
    entered, go_on = threading.Semaphore(0), threading.Semaphore(0)
    written: list[list[str]] = []

    def commit(batches: list[Batch]) -> None:
        entered.release()
        assert go_on.acquire(timeout=30)
        written.append([key for batch in batches for key in batch])

    commits = GroupCommit(commit)
    with ThreadPoolExecutor(5) as pool:
        writes = [pool.submit(commits.write, {"a": {}})]
        for keys in ("bc", "de"):
            assert entered.acquire(timeout=30)
            for waiting, key in enumerate(keys, 1):
                writes.append(pool.submit(commits.write, {key: {}}))
                wait_for(lambda most=waiting: commits.queued == most, "it to wait")
            go_on.release()
        go_on.release()
        for write in writes:
            write.result(30)
    assert written == [["a"], ["b", "c"], ["d", "e"]]


class _Interrupted(Exception):
    pass


def test_a_write_that_is_interrupted_stops_no_other() -> None:
    def interrupt(number: int, frame: object) -> None:
        raise _Interrupted

    def interrupt_once_it_waits() -> None:
        wait_for(lambda: commits.queued == 1, "the write to wait")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    disk = Disk()
    commits = GroupCommit(disk.commit)
    former = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(commits.write, {"first": {}})
            assert disk.busy.wait(30)
            pool.submit(interrupt_once_it_waits)
            with pytest.raises(_Interrupted):
                commits.write({"interrupted": {}})
            disk.open.set()
            first.result(30)
            pool.submit(commits.write, {"later": {}}).result(30)
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert disk.commits == [[{"first": {}}], [{"later": {}}]]


def test_one_that_fails_does_not_fail_the_others() -> None:
    disk = Disk()
    commits = GroupCommit(disk.commit)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(commits.write, {"first": {}})
        assert disk.busy.wait(30)
        good = [pool.submit(commits.write, {key: {}}) for key in ("a", "b")]
        bad = pool.submit(commits.write, {"bad": {}})
        wait_for(lambda: commits.queued == 3, "the others to wait")
        disk.open.set()
        for write in (first, *good):
            write.result(30)
        with pytest.raises(ValueError, match="bad"):
            bad.result(30)
    written = {key for batches in disk.commits for batch in batches for key in batch}
    assert written == {"first", "a", "b"}
