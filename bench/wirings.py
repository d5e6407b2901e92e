"""Random wirings of one composition: a chain of 1 to 6 jobs over three sites, with a branch.

    in (edge-a) -> A -> x (edge-b) -> B -> y (cloud) -> C -> out (cloud)
                             \\-> branch -> out2 (cloud)

Between two wirings the names, their order, the sites, the topics and the brokers change. There are
only eight names and six topics for the links between jobs (two on each broker, under the same two
names), so that nearly every wiring uses again what an earlier one has used, at another place.

Every number that is published to `in` is expected once at `out` and once at `out2`, whatever was
changed while it was under way, for these reasons:

- A wiring is a line without a circle, and each topic is one link of it. Each chain job is passed
  once, in any order, and none changes a record (PassThrough; a Counting job would count only what
  comes while it is in the chain, which the checker takes for lost state).
- A change has an exact cut: what has been taken from `in` when the first job stops goes the old
  way to its end, what comes after goes the new way. That holds too where the first job has another
  name afterwards, or stands further down: it is the same cut, handed from one reader to the next.
- The branch is always there and reads what the first job writes. That is the same place of the
  stream under every wiring, so it is handed over at the same cut: a job that stays on its link and
  stands further up or down from now on stops between what is the old branch's and the new one's.
  Were it to read `in` at times,
  it would meet again what it had read behind the first job.
- A chain of one job writes to `out`, so the branch reads `out` then. In the next wiring the last
  job of a longer chain may write there, and the branch must have left `out` before it begins: the
  same holds for every topic that is used again.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from speck.model.values import JsonObject

SITES = ("edge-a", "edge-b", "cloud")
NAMES = tuple(f"job{number}" for number in range(1, 9))
BRANCHES = ("side1", "side2")
MOST_JOBS = 6

Place = tuple[str, str]
"""A site, and a topic on its broker, without the run's name."""

LINKS: tuple[Place, ...] = tuple((site, topic) for site in SITES for topic in ("x", "y"))
IN: Place = ("edge-a", "in")
OUT: Place = ("cloud", "out")
OUT2: Place = ("cloud", "out2")
ABSENT = "-absent"
"""The end of the client ids of readers that come only when all is over."""


def topic_of(run: str, place: Place, dotted: Collection[str] = ()) -> str:
    """The topic of a place under its run's name; Kafka, at the `dotted` sites, takes no slashes."""
    return f"{run}{'.' if place[0] in dotted else '/'}{place[1]}"


@dataclass(frozen=True, slots=True)
class Wiring:
    """The chain's jobs in order, the links between them, the branch, and each job's site.

    `sites` names a site for every job, also for those that are not in the chain.
    """

    order: tuple[str, ...]
    links: tuple[Place, ...]
    branch: str
    sites: Mapping[str, str]

    def ends(self) -> dict[str, tuple[Place, Place]]:
        """The links that each job reads and writes."""
        places = (IN, *self.links, OUT)
        chain = zip(self.order, pairwise(places), strict=True)
        return {**dict(chain), self.branch: (places[1], OUT2)}

    def composition(
        self, run: str, delivery: str, *, absent: bool = False, dotted: Collection[str] = ()
    ) -> JsonObject:
        """As it is applied; `run` names the composition, and begins every name and topic. With
        `absent` each output has a second reader. `dotted`: see `topic_of`."""
        readers = ("", ABSENT) if absent else ("",)

        def job(name: str, source: Place, sink: Place) -> JsonObject:
            return {
                "job_name": f"{run}-{name}",
                "site": self.sites[name],
                "source_site": source[0],
                "source_topic": topic_of(run, source, dotted),
                "sink_site": sink[0],
                "sink_topic": topic_of(run, sink, dotted),
                "entry_class": "io.speck.jobs.PassThrough",
                "job_path": "speck-jobs.jar",
                "delivery": delivery,
            }

        return {
            "name": run,
            "jobs": [job(name, *ends) for name, ends in self.ends().items()],
            "inputs": [{"site": IN[0], "topic": topic_of(run, IN, dotted)}],
            "outputs": [
                {
                    "site": place[0],
                    "topic": topic_of(run, place, dotted),
                    "client_id": f"{run}-{place[1]}{reader}",
                }
                for place in (OUT, OUT2)
                for reader in readers
            ],
        }

    def __str__(self) -> str:
        words = ["in"]
        for name, (_, (site, topic)) in self.ends().items():
            if name != self.branch:
                words += [f"{name}@{self.sites[name]}", f"{site}/{topic}"]
        return f"{' > '.join(words)}; {self.branch}@{self.sites[self.branch]}"


def first_wiring(dice: random.Random) -> Wiring:
    """Any wiring."""
    names = dice.sample(NAMES, dice.randint(1, MOST_JOBS))
    links = dice.sample(LINKS, len(names) - 1)
    sites = {name: dice.choice(SITES) for name in (*NAMES, *BRANCHES)}
    return Wiring(tuple(names), tuple(links), dice.choice(BRANCHES), sites)


def next_wiring(dice: random.Random, now: Wiring) -> Wiring:
    """A wiring that differs from `now` in something that runs: in all of it, or in one respect."""
    kinds = [_all, _all, _order, _sites, _links, _one_job, _branch]
    while True:
        drawn = dice.choice(kinds)(dice, now)
        if drawn.composition("", "") != now.composition("", ""):
            return drawn


def _all(dice: random.Random, _: Wiring) -> Wiring:
    return first_wiring(dice)


def _order(dice: random.Random, now: Wiring) -> Wiring:
    return replace(now, order=tuple(dice.sample(now.order, len(now.order))))


def _sites(dice: random.Random, now: Wiring) -> Wiring:
    return replace(now, sites={name: dice.choice(SITES) for name in now.sites})


def _links(dice: random.Random, now: Wiring) -> Wiring:
    return replace(now, links=tuple(dice.sample(LINKS, len(now.links))))


def _one_job(dice: random.Random, now: Wiring) -> Wiring:
    """One more job, one less, or another in the place of one."""
    order, links = list(now.order), list(now.links)
    drawn = dice.choice([name for name in NAMES if name not in order])
    at = dice.randrange(len(order))
    how = dice.choice(("more", "less", "another"))
    if how == "another":
        order[at] = drawn
    elif how == "more" and len(order) < MOST_JOBS:
        order.insert(at, drawn)
        links.insert(at, dice.choice([link for link in LINKS if link not in links]))
    elif how == "less" and len(order) > 1:
        del order[at]
        del links[min(at, len(links) - 1)]
    return replace(now, order=tuple(order), links=tuple(links))


def _branch(dice: random.Random, now: Wiring) -> Wiring:
    branch = dice.choice(BRANCHES)
    return replace(now, branch=branch, sites={**now.sites, branch: dice.choice(SITES)})
