"""Figures 4 to 6 of the RoLBTS paper, as data.

Figure 4 is a reconstruction: the available text has what the figure shows (score over the length of
a record, for two schedulers and three settings of each), but neither the equations behind it nor
its values. The scores are times of a record: its length by the rate of what reads it, `v_mem` of a
memory and `v_cpu` of a processor that is a hundred times as fast. RoLBTS spreads it over the slots
of a server (`cores x overclock`); FSACE weighs memory and processor with `rho`.

Figures 5 and 6 show the number of assignments that RoLBTS enumerates, N^M. Beside it stands what
`assign_exactly` looks at.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.common import timed
from policies.rolbts import Server, count_assignments
from policies.rolbts_exact import assign_exactly
from speck.model.values import JsonObject

CORES = 14
V_MEM, V_CPU = 1.0, 100.0
"""Kilobits per unit of time; only their ratio matters."""
LENGTHS = (1, 2, 4, 8, 16)
"""Lengths of a record in kilobits."""
OVERCLOCKS = (1, 2, 4)
RHOS = (0.0, 0.5, 1.0)
ORDER = ("FSACE 0", "RoLBTS 4", "RoLBTS 2", "RoLBTS 1", "FSACE 0.5", "FSACE 1")
"""The published order of scores, at any length."""
MOST = 10


def score_rolbts(length: float, overclock: int) -> float:
    """The score of a record with RoLBTS."""
    return length / (CORES * overclock * V_MEM)


def score_fsace(length: float, rho: float) -> float:
    """The score of a record with FSACE."""
    return rho * length / V_MEM + (1 - rho) * length / V_CPU


def list_scores() -> JsonObject:
    """Figure 4: `{"lengths", "scores": {line: [score of each length]}}`."""
    lines = {f"RoLBTS {n}": [score_rolbts(each, n) for each in LENGTHS] for n in OVERCLOCKS}
    lines |= {f"FSACE {rho:g}": [score_fsace(each, rho) for each in LENGTHS] for rho in RHOS}
    return {"lengths": list(LENGTHS), "scores": lines}


def find_deviations(figure: JsonObject) -> list[str]:
    """What the figure does not show of what the paper says of it."""
    lines, deviations = figure["scores"], []
    for index, length in enumerate(figure["lengths"]):
        order = tuple(sorted(lines, key=lambda line: float(lines[line][index])))
        if order != ORDER:
            deviations.append(f"the order at {length} kbit is {order}")
    for line, scores in lines.items():
        slopes = [score / length for score, length in zip(scores, figure["lengths"], strict=True)]
        if not _are_equal(slopes):
            deviations.append(f"{line} is not proportional to the length")
    of_first = [lines[f"RoLBTS {n}"][0] * n for n in OVERCLOCKS]
    if not _are_equal(of_first):
        deviations.append("RoLBTS is not inversely proportional to the overclock")
    return deviations


def _are_equal(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= 1e-9 * max(values)


def count_solutions() -> list[JsonObject]:
    """Figures 5 and 6: by servers and branches (1 to 10), the assignments enumerated by RoLBTS, and
    the states of the exact answer and its seconds, the least of five."""
    rows: list[JsonObject] = []
    for servers in range(1, MOST + 1):
        given = [Server(f"s{n}", CORES, 4) for n in range(servers)]
        for branches in range(1, MOST + 1):
            states = assign_exactly(given, (branches,)).tried
            seconds = min(
                timed(lambda given=given, branches=branches: assign_exactly(given, (branches,)))  # type: ignore[misc]
                for _ in range(5)
            )
            rows.append(
                {
                    "servers": servers,
                    "branches": branches,
                    "assignments": count_assignments(servers, branches),
                    "exact_states": states,
                    "exact_s": round(seconds, 6),
                }
            )
    return rows
