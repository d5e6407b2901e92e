"""All policies by name."""

from __future__ import annotations

from collections.abc import Mapping

from speck.errors import NotFoundError
from speck.placement.balance import Rolbts, RolbtsExact
from speck.placement.caps import Caps
from speck.placement.greedy import Greedy
from speck.placement.milp import Milp
from speck.placement.model import Policy
from speck.placement.simple import AllCloud, AllEdge, BottomUp, TopDown

POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Milp(),
        Greedy(),
        AllCloud(),
        AllEdge(),
        BottomUp(),
        TopDown(),
        Rolbts(),
        RolbtsExact(),
        Caps(),
    )
}


def policy(name: str) -> Policy:
    """The policy of that name; raises NotFoundError, which names all."""
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise NotFoundError(f"cannot place by policy {name}: there is none, only {known}")
    return POLICIES[name]
