"""DS2's rule over topics: how many subtasks each operator needs, from true rates.

V. Kalavri et al., "Three steps is all you need: fast, accurate, automatic scaling decisions for
distributed streaming dataflows", OSDI 2018, equations 7 and 8: an operator needs
`ceil(target input rate / true processing rate of one instance)` instances, and sends on
`target input rate x true output rate / true processing rate`. A topic carries the sum of what its
writers send, and every reader takes all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from speck.errors import PermanentError

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator that `reads` and `writes` topics. True rates: records per second of useful time.

    The rates are those of all `parallelism` instances together; None if the evidence gives none.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    true_processing_rate: float | None
    true_output_rate: float | None
    parallelism: int = 1


@dataclass(frozen=True, slots=True)
class Need:
    """The rates an operator must sustain (records per second), and the instances it needs for them.

    None: unknown, since the operator or one upstream of it lacks evidence.
    """

    in_rate: float | None
    out_rate: float | None
    parallelism: int | None


def compute_needs(operators: Sequence[Operator], sources: Mapping[str, float]) -> dict[str, Need]:
    """The needs by operator; `sources`: records per second that reach each topic from outside.

    Raises PermanentError for a cycle of operators, a duplicate name, or a rate of zero.
    """
    by_name: dict[str, Need] = {}
    topics: dict[str, float | None] = dict(sources)
    for operator in _sort_operators(operators):
        rates = [topics.get(topic, 0.0) for topic in operator.reads]
        need = _compute_need(
            operator, None if None in rates else math.fsum(x or 0.0 for x in rates)
        )
        by_name[operator.name] = need
        for topic in operator.writes:
            before = topics.get(topic, 0.0)
            unknown = before is None or need.out_rate is None
            topics[topic] = None if unknown else (before or 0.0) + (need.out_rate or 0.0)
    return {operator.name: by_name[operator.name] for operator in operators}


def _compute_need(operator: Operator, in_rate: float | None) -> Need:
    processing, output = operator.true_processing_rate, operator.true_output_rate
    if processing is not None and not processing > 0:
        raise PermanentError(
            f"cannot scale {operator.name}: its true processing rate must be above 0, not "
            f"{processing:g}; use None where there is no evidence"
        )
    if in_rate is None or processing is None:
        return Need(in_rate, None, None)
    each = processing / operator.parallelism
    instances = max(1, math.ceil(in_rate / each * (1 - _ROUNDING)))
    return Need(in_rate, None if output is None else in_rate * output / processing, instances)


def _sort_operators(operators: Sequence[Operator]) -> list[Operator]:
    by_name = {operator.name: operator for operator in operators}
    if len(by_name) < len(operators):
        raise PermanentError("cannot scale operators: a name is used twice")
    writers: dict[str, list[str]] = {}
    for operator in operators:
        for topic in operator.writes:
            writers.setdefault(topic, []).append(operator.name)
    sorter = TopologicalSorter(
        {
            operator.name: [name for topic in operator.reads for name in writers.get(topic, [])]
            for operator in operators
        }
    )
    try:
        return [by_name[name] for name in sorter.static_order()]
    except CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise PermanentError(f"cannot scale a cycle of operators: {cycle}") from error
