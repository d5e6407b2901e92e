"""What is told of changes that are under way."""

from __future__ import annotations

from pathlib import Path

from speck.clock import SystemClock
from speck.deploy.changes import ChangeLedger, Changes
from speck.deploy.changes.registry import Running
from speck.model.change import ChangeState
from speck.model.job_operations import Upload
from speck.model.plan import Plan, Step
from speck.store.records import Records

CLOCK = SystemClock()


def test_an_end_is_shown_once_it_is_stored(tmp_path: Path) -> None:
    records = Records.open(tmp_path / "store", CLOCK)
    changes, ledger = Changes(records, CLOCK), ChangeLedger(records, CLOCK)
    steps = (Step(1, Upload("edge-a", "a" * 64), (), ""),)
    change = changes.create(Plan("c", (), steps), 1)
    ledger.accept(change, {})
    running = Running(change, "c", CLOCK)
    changes.add_cut_short(running)

    change.state, change.ended = ChangeState.FAILED, change.started
    for shown in (changes.get(change.id), *changes.all()):
        assert (shown.state, shown.ended) == ("running", None)

    ledger.end(change)
    changes.remove(running)
    for shown in (changes.get(change.id), *changes.all()):
        assert (shown.state, shown.ended is None) == ("failed", False)
    records.store.close()
