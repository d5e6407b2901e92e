"""The names of all policies, without the solvers behind them (see `policies`)."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

DEFAULT_POLICY = "milp"
"""The policy of every command and of the autopilot, unless another one is asked for."""
GROUP = "speck.policies"
"""The group of entry points of all other policies: each takes nothing and returns a policy."""
IDEAS = {
    "milp": "exact: the fewest bytes between sites that the limits allow",
    "greedy": "one move after another, in the order of the ranking, while bytes are saved",
    "ranked": "each job to the edge that the ranking suggests, while the limits hold",
    "lightweight": "jobs that send no more records than they take, to the edge of their input",
    "stay": "every job where it is",
    "all-cloud": "every job in the cloud",
    "all-edge": "every job at an edge",
    "bottom-up": "from the sources on: at the edge of the inputs, else in the cloud",
}
"""What each policy of speck does."""


@cache  # finding entry points reads the metadata of every installed package
def list_policies() -> tuple[str, ...]:
    """The names of speck's own policies, and of those that are installed beside it."""
    return (*IDEAS, *sorted(entry_points(group=GROUP).names - IDEAS.keys()))
