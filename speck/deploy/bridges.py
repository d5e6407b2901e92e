"""What bridges between brokers do to links: a topic that they carry is one topic at both ends.

A bridge publishes its name at both of its brokers, not what it carries. So every topic counts,
unless the label `bridged_topics` of one of the sites says which.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from speck.binding import topic_matches
from speck.errors import Problem
from speck.model.link import JobLinks, Link
from speck.model.site import Site
from speck.model.values import cut
from speck.spec.topology import Graph, Node

LABEL = "bridged_topics"
"""A site's label: the topics that its bridges carry, as its broker writes patterns of topics, with
commas between."""
_FEW = 5


@dataclass(frozen=True, slots=True)
class Bridges:
    """Sites whose brokers are joined by bridges, directly or through one another."""

    groups: tuple[frozenset[str], ...]
    names: Mapping[str, frozenset[str]]
    filters: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, str]
    """Of the brokers, by site: each has its own patterns."""

    @classmethod
    def of(cls, names: Mapping[str, frozenset[str]], sites: Mapping[str, Site]) -> Bridges:
        """`names` are those of the bridges that the brokers of the sites report."""
        by_name: defaultdict[str, set[str]] = defaultdict(set)
        for site, bridges in names.items():
            for name in bridges:
                by_name[name].add(site)
        groups: list[frozenset[str]] = reduce(_join, map(frozenset, by_name.values()), [])
        labels = {name: site.labels[LABEL] for name, site in sites.items() if LABEL in site.labels}
        filters = {name: tuple(map(str.strip, text.split(","))) for name, text in labels.items()}
        kinds = {name: site.broker.kind for name, site in sites.items()}
        return cls(tuple(group for group in groups if len(group) > 1), names, filters, kinds)

    def find_joined(self, link: Link) -> frozenset[str]:
        """The sites at whose brokers a link may be the same; only its own without a bridge."""
        group = next((group for group in self.groups if link.site in group), frozenset())
        labelled = [site for site in group if site in self.filters]
        carried = not labelled or any(
            topic_matches(self.kinds[site], link.topic, each)
            for site in labelled
            for each in self.filters[site]
        )
        return group if group and carried else frozenset({link.site})

    def merge(self, link: Link) -> Link:
        """The same link for all that a bridge may make one."""
        return Link(min(self.find_joined(link)), link.topic)

    def describe(self, sites: Iterable[str]) -> str:
        """Which brokers are bridged, and by which bridges: maybe those to a third one."""
        shown = sorted(sites)
        counts: defaultdict[str, int] = defaultdict(int)
        for site in next((group for group in self.groups if shown[0] in group), shown):
            for name in self.names.get(site, ()):
                counts[name] += 1
        bridges = ", ".join(cut(name) for name, count in sorted(counts.items()) if count > 1)
        return f"the brokers of {', '.join(shown[:_FEW])} are bridged ({bridges})"


def find_repeated_topics(links: Iterable[Link]) -> set[str]:
    """The sites of topics that are used at more than one: only their bridges matter."""
    by_topic: defaultdict[str, set[str]] = defaultdict(set)
    for link in links:
        by_topic[link.topic].add(link.site)
    return {site for sites in by_topic.values() if len(sites) > 1 for site in sites}


def find_loops(
    own: Sequence[JobLinks], others: Sequence[JobLinks], bridges: Bridges
) -> list[Problem]:
    """Jobs to which bridges may bring back what they have sent, as problems of `jobs[n]`. They form
    no cycle without bridges."""
    nodes = tuple(
        Node(job.job_name, "", bridges.merge(job.source), tuple(map(bridges.merge, job.port)), n)
        for n, job in enumerate((*own, *others))
    )
    problems = []
    for problem in Graph(nodes).find_cycle_problems(first=len(own)):
        port = own[_index_of(problem)].port
        bridged = ((sink, bridges.find_joined(sink)) for sink in port)
        sink, joined = next((each for each in bridged if len(each[1]) > 1), (None, frozenset()))
        if sink is not None:
            why = (
                f"{bridges.describe(joined)}, and what a bridge carries is one topic at both ends:"
                f" {problem.message}. Give {cut(sink.topic)} another name at one of them, or say"
                f" what the bridges carry: label {LABEL}=TOPICS of one of the sites"
            )
            problems.append(Problem(problem.path, why))
    return problems


def warn_of_repeats(links: Iterable[Link], bridges: Bridges) -> Iterator[str]:
    """Warnings about topics that are used at several bridged brokers."""
    sites: defaultdict[Link, set[str]] = defaultdict(set)
    for link in links:
        sites[bridges.merge(link)].add(link.site)
    for merged, used in sorted(sites.items()):
        if len(used) > 1:
            yield (
                f"{bridges.describe(used)}: if a bridge carries {cut(merged.topic)}, its records"
                " are at each of them, so that they may be taken more than once: what comes over a"
                " bridge may have lost the numbers by which repeats are known"
            )


def _join(groups: list[frozenset[str]], new: frozenset[str]) -> list[frozenset[str]]:
    joined = [group for group in groups if group & new]
    return [group for group in groups if not group & new] + [frozenset.union(new, *joined)]


def _index_of(problem: Problem) -> int:
    return int(problem.path.removeprefix("jobs[").partition("]")[0])
