"""All policies by name, with the idea of each, without the solvers behind them (see `policies`)."""

DEFAULT_POLICY = "milp"
"""The policy of every command and of the autopilot, unless another one is asked for."""
IDEAS = {
    "milp": "exact: the fewest bytes between sites that the limits allow",
    "greedy": "one move after another, in the order of the ranking, while bytes are saved",
    "ranked": "each job to the edge that the ranking suggests, while the limits hold",
    "lightweight": "jobs that send no more records than they take, to the edge of their input",
    "stay": "every job where it is",
    "all-cloud": "every job in the cloud",
    "all-edge": "every job at an edge",
    "bottom-up": "from the sources on: at the edge of the inputs, else in the cloud",
    "top-down": "from the sinks back: the cloud until it is full, then edges",
    "rolbts": "shares of slots in use as even as possible",
    "rolbts-links": "shares of slots and of bandwidth as even as possible",
    "rolbts-exact": "as rolbts, over all jobs at once",
    "fsace": "each job where most memory and processor are free",
    "caps": "thresholds on processor, state and network of each site",
}
POLICY_NAMES = tuple(IDEAS)
