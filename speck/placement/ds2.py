"""How many subtasks each operator needs, from true rates: DS2's rule over topics.

V. Kalavri et al., "Three steps is all you need: fast, accurate, automatic scaling decisions for
distributed streaming dataflows", OSDI 2018, equations 7 and 8: an operator needs
`ceil(target input rate / true processing rate of one instance)` instances, and sends on
`target input rate x true output rate / true processing rate`. What a topic carries is the sum of
what its writers send; every reader of a topic takes all of it.
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
    """`reads` and `writes` topics. True rates in records a second of useful time.

    They are of all `parallelism` instances together; None when the evidence carries no rate.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    true_processing_rate: float | None
    true_output_rate: float | None
    parallelism: int = 1


@dataclass(frozen=True, slots=True)
class Need:
    """What an operator must take in and send (records a second), and with how many instances.

    None: not known, since it or what feeds it was not measured well enough.
    """

    in_rate: float | None
    out_rate: float | None
    parallelism: int | None


def needs(operators: Sequence[Operator], sources: Mapping[str, float]) -> dict[str, Need]:
    """By operator; `sources`: records a second that are sent to topics from outside.

    Raises PermanentError for a circle of operators, a name given twice, or a rate of zero.
    """
    found: dict[str, Need] = {}
    topics: dict[str, float | None] = dict(sources)
    for operator in _in_order(operators):
        rates = [topics.get(topic, 0.0) for topic in operator.reads]
        need = _need(operator, None if None in rates else math.fsum(x or 0.0 for x in rates))
        found[operator.name] = need
        for topic in operator.writes:
            before = topics.get(topic, 0.0)
            unknown = before is None or need.out_rate is None
            topics[topic] = None if unknown else (before or 0.0) + (need.out_rate or 0.0)
    return {operator.name: found[operator.name] for operator in operators}


def _need(operator: Operator, in_rate: float | None) -> Need:
    processing, output = operator.true_processing_rate, operator.true_output_rate
    if processing is not None and not processing > 0:
        raise PermanentError(
            f"cannot scale {operator.name}: a true processing rate of {processing:g} is no rate; "
            f"give none where there is no evidence"
        )
    if in_rate is None or processing is None:
        return Need(in_rate, None, None)
    each = processing / operator.parallelism
    instances = max(1, math.ceil(in_rate / each * (1 - _ROUNDING)))
    return Need(in_rate, None if output is None else in_rate * output / processing, instances)


def _in_order(operators: Sequence[Operator]) -> list[Operator]:
    by_name = {operator.name: operator for operator in operators}
    if len(by_name) < len(operators):
        raise PermanentError("cannot scale operators: a name is given twice")
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
        circle = " -> ".join(reversed(error.args[1]))
        raise PermanentError(f"cannot scale a circle of operators: {circle}") from error
