"""The disk fails at each of the writes of a change, before or after it has taken the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import plyvel
import pytest

from speck.errors import StoreWriteError
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.store.records import Records
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import DONE, composition, engine, list_stored_jobs, reopened
from tests.service_helpers import job_body as body
from tests.waiting import wait_for

SITES = [site_body("edge-a"), site_body("cloud")]
FIRST = composition(body("A"))
SECOND = composition(body("A", "cloud", sink_topic="new"))
THIRD = composition(body("A", args=["x"]))


class FailingDisk:
    """Takes `left` writes more, then none; the last may arrive though it is refused."""

    def __init__(self, service: Service, writes_left: int, *, arrives: bool):
        self.writes_left = writes_left
        self._arrives = arrives
        self._put: Callable[[Mapping[bytes, bytes | None]], None] = service.records.store._put
        service.records.store._put = self.put  # type: ignore[method-assign]

    @property
    def failed(self) -> bool:
        return self.writes_left < 0

    def put(self, rows: Mapping[bytes, bytes | None]) -> None:
        self.writes_left -= 1
        if not self.failed or (self._arrives and self.writes_left == -1):
            self._put(rows)
        if self.failed:
            raise plyvel.IOError(b"IO error: 000003.log: Input/output error")


def fails(folder: Path, writes_left: int, *, arrives: bool) -> bool:
    """An apply over a disk that takes so many writes; false when these were enough."""
    with memory_service(folder, SITES) as service:
        service.compositions.apply(FIRST, DONE)
        before = known_to_engines()
        disk = FailingDisk(service, writes_left, arrives=arrives)
        try:
            answer = service.compositions.apply(SECOND, DONE)
            assert answer.state == ("done" if not answer.under_way else None)
        except StoreWriteError as error:
            assert "Input/output error; check that disk" in str(error)
            assert disk.failed
        wait_for(lambda: not service.changes.all_under_way())
        for operation in ("check_ready", "apply"):
            if disk.failed:
                with pytest.raises(StoreWriteError):
                    if operation == "apply":
                        service.compositions.apply(THIRD, ApplyRequest(drop_queues=True))
                    else:
                        service.check_ready()
        service.close()
        records = Records.open(service.config.store, service.clock)
        names = known_to_engines() - before
        assert names <= list_stored_jobs(records), "something went out that is not stored"
        records.store.close()
        again = reopened(service)
        try:
            wait_for(lambda: not again.changes.all_under_way())
            answer = again.compositions.apply(SECOND, DONE)
            assert answer.state == "done"
            assert again.composition_views.get("c").head.deployed_revision == 2
            assert again.jobs.get("A").state == "running"
            assert len(running()) == 1, "one incarnation"
            assert running() <= list_stored_jobs(again.records)
        finally:
            again.close()
        return disk.failed


def known_to_engines() -> set[str]:
    return {job_id for site in ("edge-a", "cloud") for job_id in engine(site).jobs}


def running() -> set[str]:
    return {
        job_id
        for site in ("edge-a", "cloud")
        for job_id, job in engine(site).jobs.items()
        if not job.state.terminal
    }


@pytest.mark.parametrize("arrives", [False, True], ids=["refused", "refused though written"])
def test_a_disk_that_fails_at_any_write_of_a_change(tmp_path: Path, arrives: bool) -> None:
    writes_left = 0
    while fails(tmp_path / str(writes_left), writes_left, arrives=arrives):
        writes_left += 1
    assert writes_left > 10, "a change takes more writes than that"
