"""The placement problem as a mixed integer linear program (docs/placement.md, "The model").

Binary `x[j,s]`: load j is at site s. Continuous `c[e,u]`: the share of flow e = a -> b that leaves
site u, `c[e,u] >= x[a,u] - x[b,u]`. That is the usual model with `y[e,u,v]` for each pair of sites
projected on what crosses out of a site: as tight, with one variable for each flow and site instead
of one for each pair of sites. What comes in at v is `c[e,v] + x[b,v] - x[a,v]`, and since latency
between two sites is the sum of their distances from the core, nothing needs the pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp
from scipy.sparse import csr_matrix

from speck.errors import PermanentError
from speck.placement.instance import Instance
from speck.placement.model import Flow, Kind, Place

TIE = 1e-6
"""What all moves together may weigh beside all bytes that flow: too little to cost any."""
SLACK = 1e3
"""What passing a limit by all of itself weighs beside all bytes that flow."""
_SCALE = 1e3
"""HiGHS ends a search at an absolute gap of 1e-6, and takes reduced costs below 1e-7 for nothing:
by so much costs are enlarged, else moves would weigh less than that."""


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
    """What the solver says: `sites` by load (None when it found nothing), and how sure it is.

    `bound`: no placement costs less than this (bytes a second, as the objective).
    """

    sites: dict[str, str] | None
    proven: bool
    impossible: bool
    bound: float | None


class Program:
    """Columns and rows for an instance. `elastic`: limits may be passed, at a price.

    Topics with one reader are contracted into it where that costs nothing (`_single_readers`).
    """

    def __init__(self, instance: Instance, *, elastic: bool = False, latency: bool = True):
        self.instance = instance
        self.elastic = elastic
        self.total = sum(flow.bytes_per_s for flow in instance.problem.flows) or 1.0
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.integral: list[int] = []
        self.rows: list[tuple[dict[int, float], float]] = []  # sum of terms <= figure
        self.equal: list[tuple[dict[int, float], float]] = []
        self.constant = 0.0
        self.stuck: str | None = None
        self.alias = _contracted(instance)
        self.at: dict[str, dict[str, Expression]] = {}
        for name in instance.order:
            if name not in self.alias:
                self.at[name] = self._whereabouts(name)
        for name, target in self.alias.items():
            self.at[name] = self.at[target]
        self._flows = [
            flow
            for flow in instance.problem.flows
            if self.alias.get(flow.start, flow.start) != self.alias.get(flow.end, flow.end)
        ]
        self._leaves = [
            {site: self._leaving(flow, site) for site in self.at[flow.start]}
            for flow in self._flows
        ]
        self._share = {id(f): x for f, x in zip(self._flows, self._leaves, strict=True)}
        self._objective()
        self._site_limits()
        if latency and instance.limits.max_latency_ms is not None:
            self._latency(instance.limits.max_latency_ms)

    def column(self, cost: float = 0.0, upper: float = np.inf, integral: bool = False) -> int:
        """A new column; its number."""
        self.cost.append(cost)
        self.upper.append(upper)
        self.integral.append(int(integral))
        return len(self.cost) - 1

    def limit(self, expression: Expression, most: float) -> None:
        """A row: the expression is at most this."""
        if expression.terms:
            self.rows.append((expression.terms, most - expression.constant))
        elif expression.constant > most + 1e-9:
            self.stuck = "what cannot move passes a limit"

    def soft(self, expression: Expression, most: float) -> None:
        """A limit in shares of itself; in an elastic program it may be passed."""
        if self.elastic:
            slack = self.column(SLACK)
            expression.terms[slack] = -1.0
        self.limit(expression, most)

    def _whereabouts(self, name: str) -> dict[str, Expression]:
        instance, load = self.instance, self.instance.loads[name]
        if name in instance.fixed:
            place = instance.places[instance.fixed[name]]
            if not self.elastic and not instance.keeps_up(name, place):
                self.stuck = f"{name} cannot keep up where it must be"
            return {place.name: Expression(constant=1.0)}
        found, chosen = {}, Expression()
        weight = TIE * _weight_of_move(instance, name) / (3 * max(1, len(instance.movable)))
        for place in instance.places.values():
            keeps = instance.keeps_up(name, place)
            fits = instance.work[name] * instance.scale <= instance.room(place)
            if not self.elastic and not (keeps and fits) and instance.work[name] > 0:
                continue
            column = self.column(weight if load.site != place.name else 0.0, 1.0, True)
            if not keeps:
                self.cost[column] += SLACK * self._shortfall(name, place)
            found[place.name] = Expression({column: 1.0})
            chosen.terms[column] = 1.0
        if not found:
            self.stuck = f"no site can take {name}"
        self.equal.append((chosen.terms, 1.0))
        return found

    def _shortfall(self, name: str, place: Place) -> float:
        speed = self.instance.speed(name, place)
        if speed <= 0:
            return 1e3
        return min(1e3, self.instance.work[name] * self.instance.scale / speed - 1)

    def _leaving(self, flow: Flow, site: str) -> Expression:
        """The share of a flow that leaves a site where its start may be."""
        start, end = self.at[flow.start], self.at[flow.end]
        gone = Expression().add(start[site])
        if site not in end:
            return gone
        gone.add(end[site], -1.0)
        if flow.start in self.instance.fixed:
            return gone  # 1 - x[b,u], never below 0
        if self.alias.get(flow.end, flow.end) in self.instance.fixed:
            return Expression()  # the end is at this site for certain
        column = self.column(upper=1.0)
        self.limit(gone.add(Expression({column: 1.0}), -1.0), 0.0)
        return Expression({column: 1.0})

    def _entering(self, flow: Flow, leaves: dict[str, Expression], site: str) -> Expression:
        found = Expression().add(self.at[flow.end][site])
        if site in self.at[flow.start]:
            found.add(leaves[site]).add(self.at[flow.start][site], -1.0)
        return found

    def _objective(self) -> None:
        weight = self.instance.limits.latency_weight
        whole = Expression()
        for flow, leaves in zip(self._flows, self._leaves, strict=True):
            for site, share in leaves.items():
                far = weight * self.instance.places[site].latency_ms
                whole.add(share, (flow.bytes_per_s + far) / self.total)
            if weight:
                for site in self.at[flow.end]:
                    far = weight * self.instance.places[site].latency_ms
                    whole.add(self._entering(flow, leaves, site), far / self.total)
        for column, cost in whole.terms.items():
            self.cost[column] += cost
        self.constant = whole.constant

    def _site_limits(self) -> None:
        instance = self.instance
        leaving: dict[str, Expression] = {name: Expression() for name in instance.places}
        work: dict[str, Expression] = {name: Expression() for name in instance.places}
        slots: dict[str, Expression] = {name: Expression() for name in instance.places}
        for flow, leaves in zip(self._flows, self._leaves, strict=True):
            for site, share in leaves.items():
                leaving[site].add(share, flow.bytes_per_s * instance.scale)
        for name in instance.loads:
            for site, there in self.at[name].items():
                work[site].add(there, instance.work[name] * instance.scale)
                slots[site].add(there, instance.slots(name))
        for place in instance.places.values():
            if place.capacity > 0:
                most = instance.room(place) / place.capacity
                self.soft(Expression().add(work[place.name], 1 / place.capacity), most)
            elif work[place.name].terms or work[place.name].constant:
                self.soft(Expression().add(work[place.name], 1e3), 0.0)
            if place.slots is not None:
                unit = max(1, place.slots)
                self.soft(Expression().add(slots[place.name], 1 / unit), place.slots / unit)
            if place.uplink is not None:
                rate = place.uplink or self.total
                self.soft(Expression().add(leaving[place.name], 1 / rate), place.uplink / rate)

    def _latency(self, allowed: float) -> None:
        """Arrival times in shares of what is allowed: each after those that feed the load."""
        instance = self.instance
        arrival = {name: self.column(upper=np.inf) for name in instance.order}
        for name in instance.order:
            serving = Expression()
            for site, there in self.at[name].items():
                delay = instance.service_ms(name, instance.places[site])
                if not np.isfinite(delay):  # told and paid for as a job that cannot keep up
                    delay = 0.0 if self.elastic else 2 * allowed
                serving.add(there, delay / allowed)
            self.limit(Expression().add(serving).add(Expression({arrival[name]: -1.0})), 0.0)
            if not instance.out[name]:
                self.soft(Expression({arrival[name]: 1.0}), 1.0)
            for flow in instance.into[name]:
                after = Expression().add(serving)
                after.add(Expression({arrival[flow.start]: 1.0, arrival[name]: -1.0}))
                self.limit(after.add(self._network(flow), 1 / allowed), 0.0)

    def _network(self, flow: Flow) -> Expression:
        """Milliseconds between the flow's ends; none for one that was contracted."""
        found, leaves = Expression(), self._share.get(id(flow))
        if leaves is not None:
            for site, share in leaves.items():
                found.add(share, self.instance.places[site].latency_ms)
            for site in self.at[flow.end]:
                entering = self._entering(flow, leaves, site)
                found.add(entering, self.instance.places[site].latency_ms)
        return found

    def solve(self, time_limit_s: float, gap: float = 1e-9) -> Solution:
        """Ask HiGHS. Raises PermanentError when it fails for another reason than limits."""
        if self.stuck is not None:
            return Solution(None, False, True, None)
        if not self.cost:
            return self._read(None, True, 0.0)
        rows = [(terms, -np.inf, most) for terms, most in self.rows]
        rows += [(terms, figure, figure) for terms, figure in self.equal]
        result: OptimizeResult = milp(
            _SCALE * np.array(self.cost),
            integrality=np.array(self.integral),
            bounds=Bounds(np.zeros(len(self.cost)), np.array(self.upper)),
            constraints=_constraint(rows, len(self.cost)) if rows else None,
            options={"time_limit": time_limit_s, "mip_rel_gap": gap},
        )
        if result.status not in (0, 1, 2):
            raise PermanentError(f"cannot solve the placement: HiGHS says {result.message}")
        if result.status == 2:
            return Solution(None, False, True, None)
        bound = getattr(result, "mip_dual_bound", None)
        return self._read(result.x, result.status == 0, bound)

    def _read(
        self, values: npt.NDArray[np.float64] | None, proven: bool, bound: float | None
    ) -> Solution:
        least = None
        if bound is not None and np.isfinite(bound):
            least = max(0.0, (bound / _SCALE + self.constant) * self.total)
        if values is None and self.cost:
            return Solution(None, False, False, least)

        def held(there: Expression) -> float:
            if values is None:
                return there.constant
            return there.constant + sum(float(values[column]) for column in there.terms)

        sites = {
            name: max(self.at[name], key=lambda site: held(self.at[name][site]))
            for name in self.instance.loads
        }
        return Solution(self._topics_left(sites), proven, False, least)

    def _topics_left(self, sites: dict[str, str]) -> dict[str, str]:
        """Contracted topics back where they are now, where that costs and sends as much."""
        for name in self.alias:
            now, into = self.instance.loads[name].site, self.instance.into[name]
            sent = sum(flow.bytes_per_s for flow in into)
            alike = abs(self.instance.out[name][0].bytes_per_s - sent) <= 1e-9 * sent
            if now is not None and alike and all(sites[flow.start] == now for flow in into):
                sites[name] = now
        return sites


def _constraint(rows: Iterable[tuple[dict[int, float], float, float]], width: int) -> object:
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


def _weight_of_move(instance: Instance, name: str) -> float:
    """1 without state, 2 when that is not known, 3 with state; nothing for what runs nowhere."""
    load = instance.loads[name]
    if load.site not in instance.places:
        return 0.0
    if load.kind is not Kind.JOB or load.stateful is False:
        return 1.0
    return 2.0 if load.stateful is None else 3.0


def _contracted(instance: Instance) -> dict[str, str]:
    """Topics that may as well lie where their one reader is, with that reader."""
    return dict(_single_readers(instance))


def _single_readers(instance: Instance) -> Iterator[tuple[str, str]]:
    """Not where the reader takes less than is sent (it lags, or was measured at another time), nor
    where several writers' latency has a price: a topic that lies with the writers may be cheaper.
    """
    for name in instance.movable:
        out, into = instance.out[name], instance.into[name]
        if instance.loads[name].kind is not Kind.TOPIC or len(out) != 1 or not into:
            continue
        if instance.loads[out[0].end].kind is Kind.TOPIC:
            continue  # no broker forwards to another: nothing to follow
        sent = sum(flow.bytes_per_s for flow in into)
        priced = instance.limits.latency_weight > 0 and len(into) > 1
        if out[0].bytes_per_s >= sent * (1 - 1e-9) and not priced:
            yield name, out[0].end
