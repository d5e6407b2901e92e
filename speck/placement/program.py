"""The placement problem as a mixed integer linear program (docs/placement.md, "The model").

Binary `x[j,s]`: load j is at site s. Continuous `c[e,u]`: the share of flow e = a -> b that leaves
site u, `c[e,u] >= x[a,u] - x[b,u]`. This is the usual model with `y[e,u,v]` for each pair of sites,
projected on the flow that leaves a site: as tight, with one variable per flow and site instead of
one per pair of sites. The share that enters v is `c[e,v] + x[b,v] - x[a,v]`. Since the latency
between two sites is the sum of their distances from the core, nothing needs the pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from speck.errors import PermanentError
from speck.placement.instance import Instance
from speck.placement.model import Flow, Kind, Place

TIE = 1e-6
"""Weight of all moves together relative to all bytes that flow: too small to cost any bytes."""
SLACK = 1e3
"""Weight of exceeding a limit by 100 %, relative to all bytes that flow."""
_SCALE = 1e3
"""Factor on all costs. HiGHS stops at an absolute gap of 1e-6 and treats reduced costs below 1e-7
as zero; without the factor moves would weigh less than that."""


@dataclass(slots=True)
class Expression:
    """A sum of weighted columns, and a constant."""

    terms: dict[int, float] = field(default_factory=dict)
    constant: float = 0.0

    def add(self, other: Expression, factor: float = 1.0) -> Expression:
        """Add `factor` times another one to this one."""
        if factor:
            for column, weight in other.terms.items():
                self.terms[column] = self.terms.get(column, 0.0) + factor * weight
            self.constant += factor * other.constant
        return self


@dataclass(frozen=True, slots=True)
class Solution:
    """The solver's result: `sites` by load (None if it found none), and what it proved.

    `bound`: a lower bound on the cost of any placement (bytes per second, as the objective).
    """

    sites: dict[str, str] | None
    proven: bool
    impossible: bool
    bound: float | None


class Program:
    """Columns and rows for an instance. `elastic`: limits may be exceeded, at a price, but memory
    only with `elastic_memory`: an engine without memory dies with all its jobs, while other
    limits make things slow.

    A topic with one reader is contracted into it if that costs nothing (`_find_single_readers`).
    """

    def __init__(
        self,
        instance: Instance,
        *,
        elastic: bool = False,
        elastic_memory: bool = False,
        latency: bool = True,
    ):
        self.instance = instance
        self.elastic = elastic
        self.elastic_memory = elastic_memory
        self.total = sum(flow.bytes_per_s for flow in instance.problem.flows) or 1.0
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.integral: list[int] = []
        self.rows: list[tuple[dict[int, float], float]] = []  # sum of terms <= figure
        self.equal: list[tuple[dict[int, float], float]] = []
        self.constant = 0.0
        self.stuck: str | None = None
        self.alias = _find_contracted_topics(instance)
        self.at: dict[str, dict[str, Expression]] = {}
        for name in instance.order:
            if name not in self.alias:
                self.at[name] = self._add_positions(name)
        for name, target in self.alias.items():
            self.at[name] = self.at[target]
        self._flows = [
            flow
            for flow in instance.problem.flows
            if self.alias.get(flow.start, flow.start) != self.alias.get(flow.end, flow.end)
        ]
        self._leaves = [
            {site: self._express_leaving(flow, site) for site in self.at[flow.start]}
            for flow in self._flows
        ]
        self._share = {id(f): x for f, x in zip(self._flows, self._leaves, strict=True)}
        self._set_objective()
        self._limit_sites()
        self._limit_memory()
        if latency and instance.limits.max_latency_ms is not None:
            self._limit_latency(instance.limits.max_latency_ms)

    def add_column(self, cost: float = 0.0, upper: float = np.inf, integral: bool = False) -> int:
        """Add a column; return its number."""
        self.cost.append(cost)
        self.upper.append(upper)
        self.integral.append(int(integral))
        return len(self.cost) - 1

    def add_limit(self, expression: Expression, most: float) -> None:
        """Add a row: the expression is at most `most`."""
        if expression.terms:
            self.rows.append((expression.terms, most - expression.constant))
        elif expression.constant > most + 1e-9:
            self.stuck = "loads that cannot move exceed a limit"

    def add_soft_limit(self, expression: Expression, most: float) -> None:
        """Add a limit that is scaled to shares of itself; an elastic program may exceed it."""
        if self.elastic:
            slack = self.add_column(SLACK)
            expression.terms[slack] = -1.0
        self.add_limit(expression, most)

    def _add_positions(self, name: str) -> dict[str, Expression]:
        instance, load = self.instance, self.instance.loads[name]
        if name in instance.fixed_sites:
            place = instance.places[instance.fixed_sites[name]]
            if not self.elastic and not instance.keeps_up(name, place):
                self.stuck = f"{name} cannot keep up where it must be"
            return {place.name: Expression(constant=1.0)}
        positions, total = {}, Expression()
        weight = TIE * _weigh_move(instance, name) / (3 * max(1, len(instance.movable)))
        move = instance.price_of_move(name) / self.total if load.site in instance.places else 0.0
        for place in instance.sites_for(name):
            keeps = instance.keeps_up(name, place)
            fits = instance.work[name] * instance.scale <= instance.room_at(place)
            if not self.elastic and not (keeps and fits) and instance.work[name] > 0:
                continue
            price = 0.0 if load.site == place.name else weight + move
            column = self.add_column(price, 1.0, True)
            if not keeps:
                self.cost[column] += SLACK * self._compute_shortfall(name, place)
            positions[place.name] = Expression({column: 1.0})
            total.terms[column] = 1.0
        if not positions:
            self.stuck = f"no site can take {name}"
        self.equal.append((total.terms, 1.0))
        return positions

    def _compute_shortfall(self, name: str, place: Place) -> float:
        speed = self.instance.speed_of(name, place)
        if speed <= 0:
            return 1e3
        return min(1e3, self.instance.work[name] * self.instance.scale / speed - 1)

    def _express_leaving(self, flow: Flow, site: str) -> Expression:
        """The share of a flow that leaves a site where its start can be."""
        start, end = self.at[flow.start], self.at[flow.end]
        leaving = Expression().add(start[site])
        if site not in end:
            return leaving
        leaving.add(end[site], -1.0)
        if flow.start in self.instance.fixed_sites:
            return leaving  # 1 - x[b,u], never below 0
        if self.alias.get(flow.end, flow.end) in self.instance.fixed_sites:
            return Expression()  # the end is certainly at this site
        column = self.add_column(upper=1.0)
        self.add_limit(leaving.add(Expression({column: 1.0}), -1.0), 0.0)
        return Expression({column: 1.0})

    def _express_entering(self, flow: Flow, leaves: dict[str, Expression], site: str) -> Expression:
        entering = Expression().add(self.at[flow.end][site])
        if site in self.at[flow.start]:
            entering.add(leaves[site]).add(self.at[flow.start][site], -1.0)
        return entering

    def _set_objective(self) -> None:
        weight = self.instance.limits.latency_weight
        objective = Expression()
        for flow, leaves in zip(self._flows, self._leaves, strict=True):
            for site, share in leaves.items():
                latency_cost = weight * self.instance.places[site].latency_ms
                objective.add(share, (flow.bytes_per_s + latency_cost) / self.total)
            if weight:
                for site in self.at[flow.end]:
                    latency_cost = weight * self.instance.places[site].latency_ms
                    objective.add(
                        self._express_entering(flow, leaves, site), latency_cost / self.total
                    )
        for column, cost in objective.terms.items():
            self.cost[column] += cost
        self.constant = objective.constant

    def _limit_sites(self) -> None:
        instance = self.instance
        leaving: dict[str, Expression] = {name: Expression() for name in instance.places}
        work: dict[str, Expression] = {name: Expression() for name in instance.places}
        slots: dict[str, Expression] = {name: Expression() for name in instance.places}
        for flow, leaves in zip(self._flows, self._leaves, strict=True):
            for site, share in leaves.items():
                leaving[site].add(share, flow.bytes_per_s * instance.scale)
        for name in instance.loads:
            for site, position in self.at[name].items():
                work[site].add(position, instance.work[name] * instance.scale)
                slots[site].add(position, instance.slots_of(name))
        for place in instance.places.values():
            if place.capacity > 0:
                most = instance.room_at(place) / place.capacity
                self.add_soft_limit(Expression().add(work[place.name], 1 / place.capacity), most)
            elif work[place.name].terms or work[place.name].constant:
                self.add_soft_limit(Expression().add(work[place.name], 1e3), 0.0)
            if place.slots is not None:
                unit = max(1, place.slots)
                self.add_soft_limit(
                    Expression().add(slots[place.name], 1 / unit), place.slots / unit
                )
            if place.uplink is not None:
                rate = place.uplink or self.total
                self.add_soft_limit(
                    Expression().add(leaving[place.name], 1 / rate), place.uplink / rate
                )
        for site, today in instance.closed_uplinks.items():
            rate = (today or self.total) * instance.scale
            self.add_limit(Expression().add(leaving[site], 1 / rate), today * instance.scale / rate)

    def _limit_memory(self) -> None:
        for place in self.instance.places.values():
            if place.memory_bytes is None:
                continue
            unit = max(1.0, place.memory_bytes)
            used = Expression()
            for name in self.instance.loads:
                if place.name in self.at[name]:
                    share = self.instance.memory_of(name) / unit
                    used.add(self.at[name][place.name], share)
            most = max(0.0, place.memory_bytes) / unit
            if self.elastic_memory:
                self.add_soft_limit(used, most)
            else:
                self.add_limit(used, most)

    def _limit_latency(self, max_latency_ms: float) -> None:
        """Limit arrival times, as shares of the maximum: each load is after those that feed it."""
        instance = self.instance
        arrival = {name: self.add_column(upper=np.inf) for name in instance.order}
        for name in instance.order:
            serving = Expression()
            for site, position in self.at[name].items():
                delay = instance.service_ms_of(name, instance.places[site])
                if not np.isfinite(delay):  # its price is that of a job that cannot keep up
                    delay = 0.0 if self.elastic else 2 * max_latency_ms
                serving.add(position, delay / max_latency_ms)
            self.add_limit(Expression().add(serving).add(Expression({arrival[name]: -1.0})), 0.0)
            if not instance.out[name]:
                self.add_soft_limit(Expression({arrival[name]: 1.0}), 1.0)
            for flow in instance.into[name]:
                arrival_after_input = Expression().add(serving)
                arrival_after_input.add(Expression({arrival[flow.start]: 1.0, arrival[name]: -1.0}))
                self.add_limit(
                    arrival_after_input.add(self._express_network_ms(flow), 1 / max_latency_ms), 0.0
                )

    def _express_network_ms(self, flow: Flow) -> Expression:
        """The latency (ms) between the flow's ends; 0 for a contracted flow."""
        delay, leaves = Expression(), self._share.get(id(flow))
        if leaves is not None:
            for site, share in leaves.items():
                delay.add(share, self.instance.places[site].latency_ms)
            for site in self.at[flow.end]:
                entering = self._express_entering(flow, leaves, site)
                delay.add(entering, self.instance.places[site].latency_ms)
        return delay

    def solve(self, time_limit_s: float, gap: float = 1e-9) -> Solution:
        """Run HiGHS. Raises PermanentError if it fails for any reason but infeasibility."""
        from scipy.optimize import Bounds, OptimizeResult, milp  # slow to import

        if self.stuck is not None:
            return Solution(None, False, True, None)
        if not self.cost:
            return self._read_solution(None, True, 0.0)
        rows = [(terms, -np.inf, most) for terms, most in self.rows]
        rows += [(terms, figure, figure) for terms, figure in self.equal]
        result: OptimizeResult = milp(
            _SCALE * np.array(self.cost),
            integrality=np.array(self.integral),
            bounds=Bounds(np.zeros(len(self.cost)), np.array(self.upper)),
            constraints=_to_constraint(rows, len(self.cost)) if rows else None,
            options={"time_limit": time_limit_s, "mip_rel_gap": gap},
        )
        if result.status not in (0, 1, 2):
            raise PermanentError(f"cannot solve the placement: HiGHS reports {result.message}")
        if result.status == 2:
            return Solution(None, False, True, None)
        bound = getattr(result, "mip_dual_bound", None)
        return self._read_solution(result.x, result.status == 0, bound)

    def _read_solution(
        self, values: npt.NDArray[np.float64] | None, proven: bool, bound: float | None
    ) -> Solution:
        lower_bound = None
        if bound is not None and np.isfinite(bound):
            lower_bound = max(0.0, (bound / _SCALE + self.constant) * self.total)
        if values is None and self.cost:
            return Solution(None, False, False, lower_bound)

        def value_of(position: Expression) -> float:
            if values is None:
                return position.constant
            return position.constant + sum(float(values[column]) for column in position.terms)

        sites = {
            name: max(self.at[name], key=lambda site: value_of(self.at[name][site]))
            for name in self.instance.loads
        }
        return Solution(self._return_topics(sites), proven, False, lower_bound)

    def _return_topics(self, sites: dict[str, str]) -> dict[str, str]:
        """Return contracted topics to their current sites where cost and traffic stay the same."""
        for name in self.alias:
            site_today, inputs = self.instance.loads[name].site, self.instance.into[name]
            sent_bytes = sum(flow.bytes_per_s for flow in inputs)
            is_equal = abs(self.instance.out[name][0].bytes_per_s - sent_bytes) <= 1e-9 * sent_bytes
            if (
                site_today is not None
                and is_equal
                and all(sites[flow.start] == site_today for flow in inputs)
            ):
                sites[name] = site_today
        return sites


def find_least_excess(instance: Instance, time_limit_s: float) -> Solution:
    """The placement that exceeds limits least: the sum of excesses, each as a share of its limit.

    Memory is exceeded only if every placement exceeds it.
    """
    solution = Program(instance, elastic=True).solve(time_limit_s, gap=1e-4)
    if not solution.impossible:
        return solution
    program = Program(instance, elastic=True, elastic_memory=True)
    return program.solve(time_limit_s, gap=1e-4)


def _to_constraint(rows: Iterable[tuple[dict[int, float], float, float]], width: int) -> object:
    from scipy.optimize import LinearConstraint  # slow to import
    from scipy.sparse import csr_matrix

    values: list[float] = []
    columns: list[int] = []
    starts = [0]
    low: list[float] = []
    high: list[float] = []
    for terms, least, most in rows:
        columns.extend(terms)
        values.extend(terms.values())
        starts.append(len(columns))
        low.append(least)
        high.append(most)
    matrix = csr_matrix((values, columns, starts), shape=(len(low), width))
    return LinearConstraint(matrix, np.array(low), np.array(high))


def _weigh_move(instance: Instance, name: str) -> float:
    """The weight of a move: 1 without state, 2 if unknown, 3 with state; 0 for a new load."""
    load = instance.loads[name]
    if load.site not in instance.places:
        return 0.0
    if load.kind is not Kind.JOB or load.stateful is False:
        return 1.0
    return 2.0 if load.stateful is None else 3.0


def _find_contracted_topics(instance: Instance) -> dict[str, str]:
    """Topics that can be placed with their single reader at no cost, with that reader."""
    return dict(_find_single_readers(instance))


def _find_single_readers(instance: Instance) -> Iterator[tuple[str, str]]:
    """Yield such topics with their reader.

    Excluded are topics whose reader takes less than is sent (it lags, or was measured at another
    time), and those where the latency of several writers has a price: there the topic may be
    cheaper at the writers' site.
    """
    for name in instance.movable:
        out, into = instance.out[name], instance.into[name]
        if instance.loads[name].kind is not Kind.TOPIC or len(out) != 1 or not into:
            continue
        if instance.loads[out[0].end].kind is Kind.TOPIC:
            continue  # brokers do not forward to each other, so there is no reader to follow
        sent = sum(flow.bytes_per_s for flow in into)
        priced = instance.limits.latency_weight > 0 and len(into) > 1
        if out[0].bytes_per_s >= sent * (1 - 1e-9) and not priced:
            yield name, out[0].end
