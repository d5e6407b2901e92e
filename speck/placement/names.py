"""The names of all policies, without the solvers behind them (see `policies`)."""

POLICY_NAMES = (
    "milp",
    "greedy",
    "ranked",
    "lightweight",
    "stay",
    "all-cloud",
    "all-edge",
    "bottom-up",
    "top-down",
    "rolbts",
    "rolbts-links",
    "rolbts-exact",
    "fsace",
    "caps",
)
