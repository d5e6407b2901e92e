"""Draws sequences of wirings, and the troubles on the way from one to the next (see
`tests.rewirings`). A seed draws the same sequence each time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from tests.rewirings import (
    SITES,
    Cancelled,
    Died,
    Killed,
    KilledAfterStops,
    Refused,
    Step,
)

KINDS = ("", "cancel", "refuse", "kill")
PLACES = [f"{site}/{topic}" for site in SITES for topic in "xy"]


def draw_wiring(dice: random.Random) -> str:
    """A chain of one to four jobs to the first output, and a branch from any of its links to the
    second. Names, sites and links are few, so that they are used again in other places."""
    names = dice.sample("ABCDE", dice.randint(1, 4))
    ends = ["in", *dice.sample(PLACES, len(names) - 1), "o1"]
    jobs = [
        f"{name}@{dice.choice(SITES)}:{source}>{sink}"
        for name, source, sink in zip(names, ends[:-1], ends[1:], strict=True)
    ]
    jobs.append(f"{dice.choice('ST')}@{dice.choice(SITES)}:{dice.choice(ends)}>o2")
    return " ".join(jobs)


def draw_steps(seed: int, draw: Callable[[random.Random], str] = draw_wiring) -> list[Step]:
    """Two changes of a wiring, which are drawn by `draw`. In three of four sequences each is made
    with trouble first; then it is rolled back, in half of these; and made again."""
    dice, kind, is_rolled_back = random.Random(seed), KINDS[seed % 4], bool(seed // 4 % 2)
    wirings = [draw(dice) for _ in range(3)]
    steps = [Step(wirings[0])]
    for before, wiring in pairwise(wirings):
        if kind:
            steps.append(Step(wiring, _draw_trouble(dice, wiring, kind)))
            steps += [Step(before)] if is_rolled_back else []
        steps.append(Step(wiring))
    return steps


def draw_stops(seed: int) -> list[Step]:
    """Two changes of a wiring, with the broker killed after some of the jobs that stop have; in
    each second sequence they are rolled back first, and then made again."""
    dice = random.Random(seed * 7919 + 3)
    wirings = [draw_wiring(dice) for _ in range(3)]
    steps = [Step(wirings[0])]
    for before, wiring in pairwise(wirings):
        site = dice.choice([*SITES[:1] * 3, *SITES[1:]])
        steps.append(Step(wiring, KilledAfterStops(site, dice.randint(1, 3))))
        steps += [Step(before)] if seed % 2 else []
        steps.append(Step(wiring))
    return steps


def draw_lone_deaths(seed: int) -> list[Step]:
    """`draw_deaths` without other troubles."""
    return draw_deaths(seed, is_alone=True)


def draw_deaths(seed: int, *, is_alone: bool = False) -> list[Step]:
    """Two changes of a wiring, in each of which the service dies, in most sequences beside another
    trouble; in each second sequence they are rolled back first, and then made again."""
    dice = random.Random(seed * 6101 + 5)
    wirings = [draw_wiring(dice) for _ in range(3)]
    steps = [Step(wirings[0])]
    for before, wiring in pairwise(wirings):
        kind = "" if is_alone else KINDS[seed // 2 % 4]
        beside = _draw_trouble(dice, wiring, kind) if kind else None
        fails = not is_alone and seed % 5 == 4
        died = Died(dice.randint(1, 60), dice.random() < 0.7, beside, fails)
        steps.append(Step(wiring, died))
        steps += [Step(before)] if seed % 2 else []
        steps.append(Step(wiring))
    return steps


def draw_third(seed: int) -> list[Step]:
    """A change with trouble, after which a third wiring is wanted. In each second sequence that one
    has trouble, too, and is then made again, in favour of the first or the second one given up, or
    followed by a fourth. In some there is no branch, and some of the wirings are the ones before at
    other sites."""
    dice = random.Random(seed * 104729 + 7)
    draw = draw_wiring if dice.randrange(4) else _draw_chain
    one, two, three, four = (draw(dice) for _ in range(4))
    if not dice.randrange(6):
        three = _relocate(dice, dice.choice([one, two]))
    elif not dice.randrange(5):  # a change that only adds a job, or one that keeps the job
        two = f"{dice.choice([one, two])} {(added := _draw_extra(dice))}"
        three = f"{three} {added}"
    kinds = KINDS[1:]
    steps = [Step(one), Step(two, _draw_trouble(dice, two, kinds[seed % 3]))]
    if seed // 3 % 2:
        steps.append(Step(three, _draw_trouble(dice, three, kinds[seed // 6 % 3])))
        return [*steps, Step(dice.choice([one, two, three, four]))]
    if not dice.randrange(6):  # a job that was to run is stopped, and runs again later
        stopped = dice.choice(two.split())
        return [*steps, Step(two.replace(stopped, f"-{stopped}")), Step(two)]
    return [*steps, Step(three)]


def draw_third_with_deaths(seed: int) -> list[Step]:
    """The same sequences; the service dies beside most of the troubles."""
    dice, steps = random.Random(seed * 31 + 1), list[Step]()
    for step in draw_third(seed):
        trouble = step.trouble
        if isinstance(trouble, Cancelled | Refused | Killed) and dice.random() < 0.7:
            trouble = Died(dice.randint(1, 60), dice.random() < 0.7, trouble)
        steps.append(replace(step, trouble=trouble))
    return steps


def _draw_chain(dice: random.Random) -> str:
    return draw_wiring(dice).rpartition(" ")[0]


def _draw_extra(dice: random.Random) -> str:
    """A job whose output nobody reads."""
    source = dice.choice(["in", "o1", *PLACES])
    return f"X@{dice.choice(SITES)}:{source}>cloud/z"


def _relocate(dice: random.Random, wiring: str) -> str:
    """The same jobs and links; the jobs are at sites that are drawn anew."""
    words = (word.partition(":") for word in wiring.split())
    return " ".join(f"{job[0]}@{dice.choice(SITES)}:{links}" for job, _, links in words)


def _draw_trouble(dice: random.Random, wiring: str, kind: str) -> Cancelled | Refused | Killed:
    if kind == "cancel":
        return Cancelled(dice.randint(1, 40))
    if kind == "refuse":
        names = [word.partition("@")[0] for word in wiring.split()]
        return Refused(dice.choice(names), dice.randint(1, 2))
    saved_at = dice.randint(1, 30)
    return Killed(dice.choice(SITES), saved_at, saved_at + dice.randint(1, 12))
