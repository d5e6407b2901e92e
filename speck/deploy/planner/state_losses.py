"""Says which jobs start without the state that they, or the job that they stand for, have now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from speck.deploy.planner.decisions import Decision
from speck.model.job_change import Action


def explain_state_losses(decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """The decisions with that among their reasons: of jobs that are not upgraded with their state,
    and of new jobs that look like a removed one under another name."""
    removed = [d for d in decisions if d.action is Action.REMOVE and d.old and d.old.has_state]
    explained = []
    for decision in decisions:
        old, reason = decision.old, decision.reason
        if not decision.starts or decision.again:
            pass
        elif old is not None and old.has_state and not (decision.keeps_state or old.finished):
            reason += "; starts WITHOUT its state (upgrade: stateless)"
        elif old is None and (former := _find_former(decision, removed)) is not None:
            removed.remove(former)
            reason += (
                f"; starts WITHOUT the state of {former.job_name}: a job that is renamed is a new"
                " job"
            )
        explained.append(replace(decision, reason=reason))
    return tuple(explained)


def _find_former(new: Decision, removed: list[Decision]) -> Decision | None:
    """The removed job that runs the same class between the same links, if any."""
    for former in removed:
        if former.old is not None and new.new is not None:
            job, other = new.new, former.old.job
            same = (job.ends, job.entry_class)
            if same == (other.ends, other.entry_class):
                return former
    return None
