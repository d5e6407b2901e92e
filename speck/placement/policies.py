"""All policies by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import cast

from speck.errors import InvalidError, Problem
from speck.placement.descending import Lightweight, Ranked
from speck.placement.greedy import Greedy
from speck.placement.milp import Milp
from speck.placement.model import Policy
from speck.placement.names import GROUP, list_policies
from speck.placement.simple import AllCloud, AllEdge, BottomUp, Stay

_ALL = (Milp(), Greedy(), Ranked(), Lightweight(), Stay(), AllCloud(), AllEdge(), BottomUp())
_OWN: Mapping[str, Policy] = {policy.name: policy for policy in _ALL}


def find_policy(name: str) -> Policy:
    """Return the policy called `name`: one of speck's own, or the entry point of that name. Raises
    InvalidError, which lists all names."""
    if name in _OWN:
        return _OWN[name]
    if name in list_policies():
        (entry_point, *_) = entry_points(group=GROUP, name=name)
        return cast(Policy, entry_point.load()())
    problem = Problem("policy", f"there is none, only {', '.join(list_policies())}")
    raise InvalidError(f"cannot place by policy {name}: {problem.message}", [problem])
