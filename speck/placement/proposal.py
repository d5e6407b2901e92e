"""From a question to the placement that is proposed: a policy's answer, laid out on brokers. Pure.

All that propose (`speck advise`, `place`, `offload`, `scale`, the autopilot) come through here, so
that they agree: moves that do not pay for themselves are left out, and the same evidence gets the
same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from speck.placement.answer import make_placement
from speck.placement.consistency import Earlier, describe_evidence, find_target, is_same_evidence
from speck.placement.evaluate import Prediction, evaluate
from speck.placement.instance import Instance
from speck.placement.model import Placement, Policy, Problem
from speck.placement.problem import Question
from speck.placement.rendering import Layout, lay_out
from speck.placement.wiring import At

_MOST_RETRIES = 3
"""A policy is called again until this many links or more are known not to fit."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A policy's `answer` to the question, and its `layout` on brokers. `evidence` is what it rests
    on; if it is that of an earlier placement, `repeats` is that placement's id."""

    question: Question
    answer: Placement
    layout: Layout
    evidence: Mapping[str, Any]
    repeats: str | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for: the answer of a policy. `all_moves`: with those of its moves that
    do not pay for themselves."""

    policy: Policy
    all_moves: bool = False


def propose(
    pose: Callable[[Collection[At]], Question],
    wish: Wish,
    foreign_links: Collection[At] = (),
    earlier: Iterable[Earlier] = (),
) -> Proposal:
    """Have a policy answer a question. `pose` poses it with these links fixed where they are;
    `earlier` are the placements that were made of the composition in the same way, newest first.

    A link that cannot go where the answer puts it costs more than predicted: the policy is then
    called again, with that link fixed where it is.
    """
    question = pose(())
    evidence = describe_evidence(question)
    repeated = None
    for placement in earlier:
        if placement.evidence["limits"] != evidence["limits"]:
            continue
        if is_same_evidence(placement.evidence, evidence):
            repeated = _repeat(question, wish, foreign_links, placement)
            if repeated is not None and (
                len(_list_violations(repeated)) <= len(placement.violations)
            ):
                return repeated
        break
    staying: list[At] = []
    notes: list[str] = []
    while True:
        answer = wish.policy.place(_adapt(question.problem, wish))
        layout = _lay_out(question, answer, wish, foreign_links)
        notes += layout.notes
        if not layout.kept_away or len(staying) >= _MOST_RETRIES:
            break
        staying += layout.kept_away
        question = pose(staying)
    layout = replace(layout, notes=tuple(dict.fromkeys(notes)))
    if not wish.all_moves and not _pays(question, layout):
        answer, layout = _stay(question, answer, layout)
    fresh = Proposal(question, answer, layout, evidence)
    if repeated is not None and _excess_of(repeated) <= _excess_of(fresh):
        return repeated  # what is exceeded by now is so in the new answer as well
    return fresh


def _list_violations(proposal: Proposal) -> tuple[str, ...]:
    return _predict(proposal.question, proposal.layout).violations


def _excess_of(proposal: Proposal) -> tuple[int, int]:
    """How many limits are exceeded, those of memory first."""
    violations = _list_violations(proposal)
    return sum(each.startswith("memory:") for each in violations), len(violations)


def _adapt(problem: Problem, wish: Wish) -> Problem:
    """The problem as a policy gets it; where all moves are wanted, they cost nothing."""
    if not wish.all_moves:
        return problem
    loads = tuple(replace(load, silence_s=0.0) for load in problem.loads)
    return replace(problem, loads=loads)


def _lay_out(question: Question, answer: Placement, wish: Wish, foreign: Collection[At]) -> Layout:
    adapted = replace(question, whole=_adapt(question.whole, wish))
    return lay_out(adapted, answer.sites, foreign)


def _predict(question: Question, layout: Layout) -> Prediction:
    return evaluate(question.whole, {**question.today(), **layout.loads()})


def price_of(question: Question, layout: Layout) -> float:
    """Bytes per second that a layout has to save: the price of its moves and restarts."""
    instance = Instance(question.whole)
    restarts = list_restarted(question, layout)
    moves = instance.price_of_moves({**question.today(), **layout.loads()})
    return moves + sum(map(instance.price_of_restart, restarts))


def list_restarted(question: Question, layout: Layout) -> list[str]:
    """The jobs that stay at their site, but are restarted since a link of theirs moves."""
    return [
        job.name
        for job in question.wiring.jobs
        if layout.jobs[job.name] == job.site
        and not job.stopped
        and any(layout.links[link] != link.site for link in (job.source, job.sink))
    ]


def _pays(question: Question, layout: Layout) -> bool:
    """Whether the layout as a whole saves more than it costs, or corrects a limit."""
    before, after = evaluate(question.whole, question.today()), _predict(question, layout)
    if len(after.violations) < len(before.violations):
        return True
    return before.objective - after.objective > price_of(question, layout)


def _stay(question: Question, answer: Placement, layout: Layout) -> tuple[Placement, Layout]:
    """The answer and the layout with all that runs left where it is."""
    instance = Instance(question.problem)
    sites = {name: instance.loads[name].site or site for name, site in answer.sites.items()}
    dropped = (name for name, site in sites.items() if site != answer.sites[name])
    stays = make_placement(answer.policy, instance, sites, notes=answer.notes)
    stays = replace(stays, dropped=tuple(dict.fromkeys((*answer.dropped, *dropped))))
    wiring = question.wiring
    jobs = {job.name: job.site for job in wiring.jobs}
    links = {link: link.site for link in wiring.links}
    return stays, replace(layout, jobs=jobs, links=links, kept_away=())


def _repeat(
    question: Question, wish: Wish, foreign_links: Collection[At], earlier: Earlier
) -> Proposal | None:
    """The earlier placement as the answer to the question; None if it does not answer it."""
    target = find_target(question, earlier)
    if target is None:
        return None
    free = _adapt(question.problem, replace(wish, all_moves=True))
    instance = Instance(free)
    if any(target.get(x, site) != site for x, site in instance.fixed_sites.items()):
        return None
    sites = {load.name: target.get(load.name, load.site or "") for load in free.loads}
    answer = make_placement(wish.policy.name, instance, sites, moves_for_memory=False)
    adapted = replace(question, whole=_adapt(question.whole, replace(wish, all_moves=True)))
    layout = lay_out(adapted, target, foreign_links)
    is_kept = dict(answer.sites) == sites and not layout.kept_away  # else there is no evidence
    if not is_kept:
        return None
    first = earlier.repeats or earlier.id
    note = f"the same evidence as for placement {first}, so the same answer"
    answer = replace(
        answer,
        notes=(note, *answer.notes),
        optimal=earlier.optimal,
        gap=earlier.gap,
        dropped=earlier.dropped,
    )
    return Proposal(question, answer, layout, earlier.evidence, first)
