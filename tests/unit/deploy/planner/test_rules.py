"""The rules of docs/planning.md, by their drawn examples: each has the name of its function."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from speck.deploy.planner import (
    backlog,
    catching_up,
    cuts,
    debts,
    handovers,
    queues,
    releases,
    sessions,
    sinks,
    slots,
    start_order,
    state_losses,
    stops,
    ways_back,
)
from speck.model.incarnation import Inventory
from speck.model.job import Job, Upgrade
from speck.model.observation import Observation, RunState
from tests.unit.deploy.planner.test_planner import deployed, job, plan_jobs, running

PAGE = Path(__file__).parents[4] / "docs" / "planning.md"
RULE = re.compile(r"^#### `(\w+)`\n.*?^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
RULES = dict(RULE.findall(PAGE.read_text()))
MODULES = (
    *(backlog, catching_up, cuts, debts, handovers, queues, releases, sessions, sinks, slots),
    *(start_order, state_losses, stops, ways_back),
)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_the_name_of_its_function_and_the_plan_of_its_drawing(rule: str) -> None:
    assert [module.__name__ for module in MODULES if hasattr(module, rule)]
    drawing, _, steps = RULES[rule].partition("\n\n")
    assert draw(drawing) + "\n" == steps


def draw(drawing: str) -> str:
    """The plan from the wiring `before` to the one `after`."""
    states = dict(re.findall(r"(\w+) has (failed)", drawing))
    before, after = (read_jobs(part) for part in drawing.split("after"))
    stateless = set(re.findall(r"(\w+) is stateless", drawing))
    after = tuple(
        replace(each, upgrade=Upgrade.STATELESS) if each.job_name in stateless else each
        for each in after
    )
    inventory = deployed(*before) if before else Inventory()
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
