"""Records flow through jobs that send each one to one of the one to four links of their port, as
the links and their readers change: every record comes out once. Also where a change is cancelled,
a start is refused or a broker is killed, and the change is made again or rolled back.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from speck.model.job import Job
from speck.model.link import Link
from speck.spec import resolve
from tests.drawn_rewirings import draw_steps
from tests.rewirings import SITES, rewire

TOPICS = "uvwxyz"
CHUNK = 25
DRAWN = [701, 1130, 1647, 2011]
"""Sequences that once lost or repeated records, of those that run at length only."""


def make_job(**values: Any) -> Job:
    """The job whose port has a link for each of the topics of its description. Users describe one
    link, whose topic may hold a comma."""
    job = Job(**values)
    return job.with_port(tuple(Link(job.sink.site, topic) for topic in job.sink.topic.split(",")))


def draw_wiring(dice: random.Random) -> str:
    """Up to two jobs, the last of which has a port of one to four links with a reader each, from
    which all records come to the first output; and a branch to the second one."""
    names, site = dice.sample("ABCDEFG", 7), dice.choice(SITES)
    ends = ["in", *dice.sample(["cloud/m", "edge-b/n"], dice.randint(0, 1))]
    port = dice.sample(TOPICS, dice.randint(1, 4))
    jobs = [(names.pop(), *way) for way in pairwise(ends)]
    jobs.append((names.pop(), ends[-1], f"{site}/{','.join(port)}"))
    jobs += [(names.pop(), f"{site}/{topic}", "o1") for topic in port]
    jobs.append((dice.choice("ST"), dice.choice([*ends, "o1"]), "o2"))
    return " ".join(f"{name}@{dice.choice(SITES)}:{source}>{sink}" for name, source, sink in jobs)


def find_faults(folder: Path, seeds: Sequence[int]) -> dict[int, object]:
    """What is lost or comes twice, by the seed of the sequence."""
    with patch.object(resolve, "Job", make_job):
        sequences = {seed: draw_steps(seed, draw_wiring) for seed in seeds}
        faults = {seed: rewire(folder / str(seed), it, seed) for seed, it in sequences.items()}
    return {seed: each for seed, each in faults.items() if each}


@pytest.mark.parametrize("first", [0, pytest.param(CHUNK, marks=pytest.mark.long)])
def test_every_record_comes_out_once_whatever_ports_are_rewired(tmp_path: Path, first: int) -> None:
    assert find_faults(tmp_path, range(first, first + CHUNK)) == {}


@pytest.mark.parametrize("seed", DRAWN)
def test_every_record_comes_out_once_where_one_was_lost_or_repeated(
    tmp_path: Path, seed: int
) -> None:
    assert find_faults(tmp_path, [seed]) == {}


@pytest.mark.long
@pytest.mark.parametrize("first", range(50, 2050, 4 * CHUNK))
def test_every_record_comes_out_once_whatever_ports_are_rewired_long(
    tmp_path: Path, first: int
) -> None:
    assert find_faults(tmp_path, range(first, first + 4 * CHUNK)) == {}
