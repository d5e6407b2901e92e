"""Writes of many threads are committed together, and fail on their own."""

from __future__ import annotations

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
