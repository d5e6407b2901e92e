"""All policies by name."""

from __future__ import annotations

from collections.abc import Mapping

from speck.errors import InvalidError, Problem
from speck.placement.balance import Fsace, Rolbts, RolbtsExact
from speck.placement.caps import Caps
from speck.placement.descending import Lightweight, Ranked
from speck.placement.greedy import Greedy
from speck.placement.milp import Milp
from speck.placement.model import Policy
from speck.placement.simple import AllCloud, AllEdge, BottomUp, Stay, TopDown

POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Milp(),
        Greedy(),
        Ranked(),
        Lightweight(),
        Stay(),
        AllCloud(),
        AllEdge(),
        BottomUp(),
        TopDown(),
        Rolbts(),
        Rolbts("rolbts-links", objective="both"),
        RolbtsExact(),
        Fsace(),
        Caps(),
    )
}


def find_policy(name: str) -> Policy:
    """Return the policy called `name`. Raises InvalidError, which lists all names."""
    if name not in POLICIES:
        names = ", ".join(POLICIES)
        problem = Problem("policy", f"there is none, only {names}")
        raise InvalidError(f"cannot place by policy {name}: {problem.message}", [problem])
    return POLICIES[name]
