"""What a restart takes up of the changes that were under way, without any site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from speck.clock import SystemClock
from speck.deploy.changes import ChangeLedger, ChangeRecovery, Changes
from speck.errors import NotFoundError
from speck.model.change import Change, ChangeState
from speck.model.job_operations import Upload
from speck.model.plan import Plan, Step
from speck.model.site import Site
from speck.store.records import Records

CLOCK = SystemClock()


class Plans:
    """A planner whose plan is one upload, or none at all."""

    def __init__(self) -> None:
        self.fails = False

    def plan_anew(self, change: Change) -> tuple[Plan, Mapping[str, Site]]:
        if self.fails:
            raise NotFoundError("cannot go on: it is gone")
        return Plan("c", (), (Step(1, Upload("edge-a", "a" * 64), (), ""),)), {}


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    records = Records.open(tmp_path / "store", CLOCK)
    yield records
    records.store.close()


def recovery(records: Records, plans: Plans | None = None) -> tuple[ChangeRecovery, Changes]:
    changes = Changes(records, CLOCK)
    ledger = ChangeLedger(records, CLOCK)
    return ChangeRecovery(changes, ledger, plans or Plans(), CLOCK), changes


def accept(records: Records, name: str) -> Change:
    """A change of a composition whose end is not stored."""
    steps = (Step(1, Upload("edge-a", "a" * 64), (), ""),)
    change = Changes(records, CLOCK).create(Plan(name, (), steps), 1)
    ChangeLedger(records, CLOCK).accept(change, {})
    return change


def test_what_was_cut_short_is_under_way_again_under_its_id(records: Records) -> None:
    first, second = accept(records, "A"), accept(records, "B")
    recovered, changes = recovery(records)
    taken_up = recovered.take_up()
    assert [each.change.id for each in taken_up] == [first.id, second.id]
    assert all(each.execution is None for each in taken_up)
    assert changes.all_under_way() == taken_up


def test_what_was_asked_to_end_stays_ended(records: Records) -> None:
    change = accept(records, "A")
    ChangeLedger(records, CLOCK).record_wish_to_end(change)
    recovered, changes = recovery(records)
    assert recovered.take_up() == []
    assert changes.get(change.id).state == "cancelled"
    assert ChangeLedger(records, CLOCK).find_wishes_to_end() == set()


def test_a_change_has_its_new_plan_behind_what_was_begun(records: Records) -> None:
    accept(records, "A")
    recovered, _ = recovery(records)
    (running,) = recovered.take_up()
    recovered.plan_anew(running.change)
    assert running.change.state is ChangeState.RUNNING
    assert [record.step.id for record in running.change.operations] == [2]
    assert [operation.id for operation in running.change.earlier] == [1]


def test_a_change_is_as_before_when_no_plan_can_be_made(records: Records) -> None:
    accept(records, "A")
    plans = Plans()
    recovered, _ = recovery(records, plans)
    (running,) = recovered.take_up()
    plans.fails = True
    for attempt in (recovered.check, recovered.plan_anew):
        with pytest.raises(NotFoundError):
            attempt(running.change)
    assert running.change.operations == []
