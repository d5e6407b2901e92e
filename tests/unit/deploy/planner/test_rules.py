"""The rules of docs/planning.md, by their drawn examples: each has the name of its function, and
each function that finds something for a plan is named there."""

from __future__ import annotations

import pkgutil
import re
from dataclasses import replace
from importlib import import_module
from inspect import isfunction
from pathlib import Path

import pytest

from speck.deploy import planner
from speck.model.incarnation import Inventory
from speck.model.job import Job, Upgrade
from speck.model.observation import Observation, RunState
from tests.unit.deploy.planner.plans import deployed, job, plan_jobs, running
from tests.unit.deploy.planner.readers import (
    ask_to_stop,
    client_id,
    end_jobs,
    forget,
    session,
    with_sessions,
)

PAGE = Path(__file__).parents[4] / "docs" / "planning.md"
RULE = re.compile(r"^#### `(\w+)`\n.*?^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
RULES = dict(RULE.findall(PAGE.read_text()))
MODULES = [
    import_module(f"{planner.__name__}.{module.name}")
    for module in pkgutil.iter_modules(planner.__path__)
]
DEFINED = {
    name: module.__name__
    for module in MODULES
    for name, each in vars(module).items()
    if isfunction(each) and each.__module__ == module.__name__
}
FOUND = [name for name in DEFINED if name.startswith("find_") or name == "settle"]


@pytest.mark.parametrize("rule", FOUND)
def test_what_the_planner_finds_is_named_on_the_page(rule: str) -> None:
    assert re.search(rf"\b{rule}\b", PAGE.read_text()), DEFINED[rule]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_the_name_of_its_function_and_the_plan_of_its_drawing(rule: str) -> None:
    assert rule in DEFINED
    drawing, _, steps = RULES[rule].partition("\n\n")
    assert draw(drawing) + "\n" == steps


def draw(drawing: str) -> str:
    """The plan from the wiring `before` to the one `after`. Of a job that took, or waits to take,
    the place of another one, the drawing shows how it is to run."""
    states = dict(re.findall(r"(\w+) has (failed)", drawing))
    before, after = (read_jobs(part) for part in drawing.split("after"))
    waiting = dict(re.findall(r"(\w+) waits to follow (\w+)", drawing))
    placed = dict(re.findall(r"(\w+) took the place of (\w+)", drawing))
    to_begin = waiting.keys() | set(re.findall(r"(\w+) has not begun", drawing))
    stateless = set(re.findall(r"(\w+) is stateless", drawing))
    after = tuple(
        replace(each, upgrade=Upgrade.STATELESS) if each.job_name in stateless else each
        for each in after
    )
    inventory = deployed(*(each for each in before if each.job_name not in to_begin))
    of = {each.job_name: each for each in before}
    for name, former in waiting.items():
        follower = session(of[name], follows=client_id(of[former]), job=of[name])
        inventory = with_sessions(inventory, follower)
    for name, former in placed.items():
        old = session(of[former], followed_by=client_id(of[name]), begun=True, job=of[former])
        new = session(of[name], former=old.client_id, begun=name not in to_begin, job=of[name])
        inventory = with_sessions(inventory, old, new)
    inventory = end_jobs(inventory, *re.findall(r"(\w+) has stopped", drawing))
    inventory = forget(inventory, *re.findall(r"what (\w+) took is forgotten", drawing))
    for name in re.findall(r"(\w+) was asked to stop", drawing):
        inventory = ask_to_stop(inventory, name)
    observed = observe(inventory, states, free=0 if "no slot is free" in drawing else 8)
    return str(plan_jobs(inventory, *after, observed=observed))


def observe(inventory: Inventory, states: dict[str, str], free: int) -> Observation:
    return running(inventory, free, **dict.fromkeys(states, RunState.FAILED))


def read_jobs(drawing: str) -> tuple[Job, ...]:
    """Jobs from lines like `in --> A --> T --> B@cloud --> out`."""
    found: dict[str, Job] = {}
    for line in drawing.splitlines():
        names = re.split(r"\s*-+>\s*", line.partition(";")[0].removeprefix("before").strip())
        for source, name, port in zip(names[::2], names[1::2], names[2::2], strict=False):
            job_name, _, site = name.partition("@")
            ends = f"edge-a/{source}", f"edge-a/{port}"
            found[job_name] = job(job_name, *ends, site=site or "edge-a")
    return tuple(found[name] for name in sorted(found))
