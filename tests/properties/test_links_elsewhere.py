"""Compositions and jobs posted alone, applied, moved, adopted, rolled back and removed at random:
what was accepted never forms a cycle, and what was refused would have."""

from __future__ import annotations

import random
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from speck.errors import ConflictError, InvalidError, NotFoundError
from speck.model.composition import CompositionDescription, composition_of_one
from speck.model.job import JobDescription
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import LIMIT_S, composition, job_body

SITES = ("edge-a", "edge-b")
SCOPES = ("one", "two", "three", "~P", "~Q")
ALL = ApplyRequest(wait_s=LIMIT_S, force=True, adopt=True, drop_queues=True)
SEEDS, STEPS = 12, 25

Edges = dict[str, list[tuple[tuple[str, str], tuple[str, str]]]]


def describe(dice: random.Random, scope: str) -> CompositionDescription:
    """A description at random; one of a composition may adopt a job posted alone."""
    names = [scope[1:]] if scope.startswith("~") else [f"{scope}-{i}" for i in range(3)]
    if len(names) > 1:
        names = [*dice.sample(names, dice.randint(1, 3)), *dice.sample("PQ", dice.random() < 0.2)]
    jobs = [
        job_body(
            name,
            dice.choice(SITES),
            source_site=dice.choice(SITES),
            sink_site=dice.choice(SITES),
            source_topic=f"t{dice.randint(0, 4)}",
            sink_topic=f"t{dice.randint(0, 4)}",
            state=dice.choice(("running", "stopped")),
            upgrade="stateless",
        )
        for name in names
    ]
    return composition(*jobs, name="any" if scope.startswith("~") else scope)


def edges_of(jobs: tuple[JobDescription, ...]) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    return [
        ((str(job.source_site), job.source_topic), (str(job.sink_site), job.sink_topic))
        for job in jobs
    ]


def is_cyclic(edges: Edges) -> bool:
    follows: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for source, sink in (edge for some in edges.values() for edge in some):
        follows.setdefault(source, set()).add(sink)
    try:
        TopologicalSorter(follows).prepare()
    except CycleError:
        return True
    return False


def apply(service: Service, scope: str, description: CompositionDescription) -> None:
    if not scope.startswith("~"):
        service.compositions.apply(description, ALL)
        return
    (job,) = description.jobs
    try:
        service.jobs.put(job.job_name, job, LIMIT_S, drop_queues=True)
    except NotFoundError:
        service.jobs.post(job, LIMIT_S)


def step(service: Service, dice: random.Random, accepted: Edges) -> None:
    """One request at random; it is judged by the edges that are accepted."""
    scope = dice.choice(SCOPES)
    if dice.random() < 0.25:
        if scope in accepted:
            if scope.startswith("~"):
                service.jobs.delete(scope[1:], LIMIT_S, drop_queues=True)
            else:
                service.compositions.delete(scope, LIMIT_S, drop_queues=True)
            del accepted[scope]
        return
    description = describe(dice, scope)
    wanted = {**accepted, scope: edges_of(description.jobs)}
    if not scope.startswith("~"):
        for job in description.jobs:
            wanted.pop(composition_of_one(job.job_name), None)
    try:
        apply(service, scope, description)
    except InvalidError as error:
        assert all("cycle" in p.message or "reads what" in p.message for p in error.problems)
        assert is_cyclic(wanted)
        return
    except ConflictError as error:  # a composition has taken the job in
        assert "owns" in str(error)
        return
    accepted.clear()
    accepted.update(wanted)
    assert not is_cyclic(accepted)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_accepted_compositions_form_no_cycle(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    accepted: Edges = {}
    with memory_service(tmp_path, [site_body(name) for name in SITES], slots=64) as service:
        for _ in range(STEPS):
            step(service, dice, accepted)
    assert accepted
