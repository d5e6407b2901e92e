"""From a situation to its wiring, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence

from speck.deploy.planner.cuts import find_cuts
from speck.deploy.planner.debts import find_debts
from speck.deploy.planner.decisions import Decision, decide
from speck.deploy.planner.handovers import find_followers
from speck.deploy.planner.leaving import find_leaving
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.state_losses import explain_state_losses
from speck.deploy.planner.wiring import Cuts, FirstStage, Followers, Wiring


def wire(situation: Situation) -> Wiring:
    """How everything that is wanted is joined to what is there."""
    followers = find_followers(situation)
    cuts, decisions = find_cuts(situation, followers, decide(situation))
    return complete(situation, decisions, followers, cuts)


def complete(
    situation: Situation,
    decisions: Sequence[Decision],
    followers: Followers,
    cuts: Cuts,
    first: FirstStage | None = None,
) -> Wiring:
    """The wiring with what follows from these: who leaves which link, and what is owed there."""
    decisions = explain_state_losses(decisions)
    leaving = find_leaving(situation, decisions, cuts)
    debts = find_debts(situation, decisions, followers, cuts, leaving, first)
    return Wiring(situation, decisions, followers, cuts, leaving, debts, first)
