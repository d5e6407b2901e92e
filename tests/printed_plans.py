"""Prints the plans of random changes, some of which go on after one that ended early.

`python -m tests.printed_plans` is run by a test under different hash seeds: names and links are
hashed, so that the order of a set of them differs from process to process.
"""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from speck.deploy import deployer
from speck.deploy.planner import plan as make_plan
from speck.model.composition import Composition
from speck.model.job import Job
from speck.model.link import Link
from speck.model.observation import RunState
from speck.model.plan import Plan
from tests.drawn_rewirings import draw_steps
from tests.rewirings import rewire
from tests.unit.deploy.planner.plans import deployed, job, plan_composition, running

LINKS = [Link(("cloud", "edge-b")[n % 2], f"T-{n}") for n in range(9)]


def draw_jobs(dice: random.Random) -> tuple[Job, ...]:
    """Up to nine jobs without a circle, with ports of one to three links."""
    jobs = []
    for name in sorted(dice.sample("ABCDEFGHI", dice.randint(4, 9))):
        source = dice.randint(0, 5)
        port = dice.sample(LINKS[source + 1 :], dice.randint(1, min(3, 8 - source)))
        made = job(name, str(LINKS[source]), str(port[0]), dice.choice(("edge-a", "cloud")))
        jobs.append(made.with_port(tuple(port)))
    return tuple(jobs)


def print_drawn_plans(seed: int) -> None:
    """The plans from one set of jobs, some of which do not run, to another one."""
    dice = random.Random(seed)
    before = draw_jobs(dice)
    inventory = deployed(*before)
    failed = {j.job_name: RunState.FAILED for j in before if dice.random() < 0.2}
    observation = running(inventory, **failed)
    for after in (draw_jobs(dice), ()):
        print(plan_composition(Composition("c", after), inventory, observation))


def print_rewirings(seed: int, folder: Path) -> None:
    """The plans of changes that are cancelled, refused or whose broker is killed, and of what
    follows them."""

    def print_plan(*inputs: Any) -> Plan:
        print(result := make_plan(*inputs))
        return result

    with patch.object(deployer, "plan", print_plan):
        rewire(folder, draw_steps(seed), seed)


def main() -> None:
    for seed in range(30):
        print_drawn_plans(seed)
    with TemporaryDirectory() as folder:
        for seed in range(2):
            print_rewirings(seed, Path(folder) / str(seed))


if __name__ == "__main__":
    main()
