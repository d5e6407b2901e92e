"""The stages of the planner, one by one: each takes frozen values and returns one."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

import speck.deploy.planner as planner
from speck.deploy.planner.backlog import find_backlog
from speck.deploy.planner.cuts import find_cuts
from speck.deploy.planner.debts import find_debts
from speck.deploy.planner.decisions import decide
from speck.deploy.planner.handovers import find_followers
from speck.deploy.planner.leaving import find_leaving
from speck.deploy.planner.situation import Conditions, Outside, Situation, situate
from speck.deploy.planner.steps import Reserved, Stopped
from speck.deploy.planner.stops import stop_jobs
from speck.deploy.planner.wire import wire
from speck.deploy.planner.wiring import Cuts, Followers, Leaving
from speck.model.composition import Composition
from speck.model.ids import source_client_id
from speck.model.incarnation import Inventory
from speck.model.job import Job
from speck.model.job_change import Action
from speck.model.link import Link
from tests.unit.deploy.planner.plans import INSTALLATION, A, B, deployed, job, running

T = Link("cloud", "T-2")
MOST_FIELDS = 10


def situation_of(
    inventory: Inventory, *jobs: Job, conditions: Conditions | None = None
) -> Situation:
    inputs = (inventory, running(inventory), INSTALLATION, Outside())
    return situate(Composition("c", jobs), *inputs, conditions or Conditions())


def reader_of(each: Job) -> str:
    return source_client_id(INSTALLATION, each.job_name, each.source)


def test_the_situation_keeps_jobs_that_are_left_alone_as_they_are_deployed() -> None:
    changed = replace(A, sink=Link("cloud", "T-9"))
    left = situation_of(deployed(A, B), changed, B, conditions=Conditions(leave=frozenset("A")))
    assert left.jobs.wanted == {"A": A, "B": B}
    assert situation_of(deployed(A, B), changed, B).jobs.wanted["A"] == changed


def test_the_situation_knows_who_writes_to_each_link_of_a_port() -> None:
    wide = replace(A, more_sinks=(Link("cloud", "T-9"),))
    situation = situation_of(deployed(wide, B), wide, B)
    assert {link: len(jobs) for link, jobs in situation.jobs.producers.items()} == {
        T: 1,
        Link("cloud", "T-9"): 1,
        B.sink: 1,
    }


def test_a_decision_is_made_for_each_job_that_is_wanted_or_there() -> None:
    new = job("C", "cloud/T-2", "cloud/T-4")
    decisions = decide(situation_of(deployed(A, B), replace(A, site="edge-b"), new))
    actions = {each.job_name: each.action for each in decisions}
    assert actions == {"A": Action.MOVE, "B": Action.REMOVE, "C": Action.ADD}


def test_a_reader_follows_the_one_that_leaves_its_link() -> None:
    new = job("C", "cloud/T-2", "cloud/T-4")
    followers = find_followers(situation_of(deployed(A, B), A, new))
    assert {c: s.client_id for c, s in followers.predecessors.items()} == {
        reader_of(new): reader_of(B)
    }
    assert not followers.beside


def test_readers_that_swap_their_sinks_make_a_cut_at_their_link() -> None:
    c = job("C", "cloud/T-2", "cloud/T-4")
    situation = situation_of(deployed(A, B, c), A, replace(B, sink=c.sink), replace(c, sink=B.sink))
    cuts, decisions = find_cuts(situation, Followers(), decide(situation))
    assert (cuts.links, cuts.jobs, cuts.between) == ({T}, {"A"}, {"B", "C"})
    assert [each.stops for each in decisions] == [True, True, True]
    assert not decide(situation)[0].stops, "a stage changes nothing"


def test_a_producer_that_gets_another_source_leaves_its_link_and_joins_it_again() -> None:
    situation = situation_of(deployed(A, B), replace(A, source=Link("edge-a", "T-8")), B)
    leaving = find_leaving(situation, decide(situation), Cuts())
    assert [each.job_name for each in leaving.producers[T]] == ["A"]
    assert list(leaving.readers) == [A.source]


def test_a_link_owes_its_reader_what_those_have_sent_that_leave_it() -> None:
    there = Link("cloud", "T-9")
    situation = situation_of(deployed(A, B), replace(A, sink=there), replace(B, source=there))
    decisions = decide(situation)
    leaving = find_leaving(situation, decisions, Cuts())
    debts = find_debts(situation, decisions, Followers(), Cuts(), leaving, None)
    assert [drain.link for drain in debts.drains.values()] == [T]
    assert debts.emptied == {reader_of(B)}
    assert not find_debts(situation, decisions, Followers(), Cuts(), Leaving(), None).drains


def test_nothing_has_to_be_read_first_where_all_run() -> None:
    assert not find_backlog(wire(situation_of(deployed(A, B), A))).jobs


def test_stops_are_numbered_after_the_steps_before_them() -> None:
    stopped = stop_jobs(wire(situation_of(deployed(A, B))), Reserved(), count(8))
    assert isinstance(stopped, Stopped)
    assert [step.id for step in stopped.steps] == [8, 9, 10]
    assert stopped.of == {"A": 8, "B": 10}


def list_types() -> list[type[object]]:
    """The dataclasses of the planner."""
    modules = [planner] + [
        importlib.import_module(f"{planner.__name__}.{each.name}")
        for each in pkgutil.iter_modules(planner.__path__)
    ]
    return [
        value
        for module in modules
        for _, value in inspect.getmembers(module, inspect.isclass)
        if value.__module__ == module.__name__ and dataclasses.is_dataclass(value)
    ]


@pytest.mark.parametrize("each", list_types(), ids=lambda each: each.__name__)
def test_a_type_of_the_planner_is_small_and_frozen(each: type[object]) -> None:
    assert len(each.__dataclass_fields__) <= MOST_FIELDS  # type: ignore[attr-defined]
    assert each.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_a_walk_of_the_planner_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[4]
    spec = importlib.util.spec_from_file_location("walks", root / "tools" / "walks.py")
    assert spec is not None and spec.loader is not None
    walks = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "walks", walks)
    spec.loader.exec_module(walks)
    counted = walks.Walks(walks.read_modules(root, "speck/deploy"))
    assert counted.count("speck.deploy.planner", "plan") <= 15
    assert counted.count("speck.deploy.deployer", "Deployer.prepare") <= 30
