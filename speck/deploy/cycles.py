"""Cycles of links that go through jobs of several compositions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from speck.errors import Problem
from speck.model.composition import Composition, job_posted_alone, title
from speck.model.link import JobLinks, Link
from speck.spec.topology import Graph, Node


def list_links(composition: Composition) -> list[JobLinks]:
    """The links of a composition's jobs, in their order."""
    return [JobLinks(job.job_name, job.source, job.port) for job in composition.jobs]


def iterate_links(jobs: Iterable[JobLinks]) -> Iterator[Link]:
    """All links that these jobs read or write."""
    return (link for job in jobs for link in (job.source, *job.port))


def find_cycles_through(
    own: Sequence[JobLinks],
    others: Sequence[tuple[str, JobLinks]],
    sees: Callable[[str], bool] = lambda scope: True,
) -> list[Problem]:
    """The cycles that the jobs of a composition close with `others` (scope, job), which form none
    by themselves, as problems of `jobs[n]`. Others that the user does not see are not named."""
    if not others:
        return []
    names = [job.job_name for job in own]
    names += [
        f"{job.job_name} ({describe_owner(scope)})" if sees(scope) else "a job of somebody else"
        for scope, job in others
    ]
    nodes = tuple(
        Node(name, "", job.source, job.port, index)
        for index, (name, job) in enumerate(
            zip(names, (*own, *(job for _, job in others)), strict=True)
        )
    )
    return Graph(nodes).find_cycle_problems(first=len(own))


def describe_owner(scope: str) -> str:
    """Who owns the jobs of a scope, as users know it."""
    return "posted alone" if job_posted_alone(scope) is not None else title(scope)
