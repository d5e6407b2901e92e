"""The graph of a composition, which follows from its links alone.

An edge runs from each job that writes a link to each job that reads it, so that one topic may
join many jobs to many. Without the registered sites a broker is known only as its user has
written it; `Graph.of_description` compares brokers in that form.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Protocol

from speck.binding import normalise_address
from speck.errors import MOST_PROBLEMS, InvalidError, Problem
from speck.model.composition import Composition, CompositionDescription, Port
from speck.model.job import JobDescription
from speck.model.link import Link
from speck.model.topics import difference_between, look_of
from speck.model.values import show
from speck.spec.expansion import text_bytes

MAX_EDGES = 250_000
"""The most edges of a composition, its ends included: plans and drawings name each, and a topic has
as many as its writers times its readers."""
MAX_EDGE_BYTES = 64 * MAX_EDGES
"""The most bytes of the topics of all edges: a drawing writes its topic at each."""
_MAX_CYCLES = 20
_MAX_OPEN_LINKS = 3
_ENGINES_BROKER = "the broker of "


@dataclass(frozen=True, slots=True)
class Node:
    """A job in the graph; `index` is its position in the composition."""

    job_name: str
    site: str
    source: Link
    port: tuple[Link, ...]
    index: int


@dataclass(frozen=True, slots=True)
class End:
    """A declared input or output; `client_id` names a reader whose session speck reserves."""

    kind: str  # "input" or "output"
    link: Link
    index: int
    client_id: str | None = None

    @property
    def id(self) -> str:
        """Unique in the graph: job names hold no colon."""
        reader = f"@{self.client_id}" if self.client_id else ""
        return f"{self.kind}:{self.link}{reader}"


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """Messages flow from job `start` to job `end` through `link`."""

    start: str
    end: str
    link: Link


class LinksElsewhere(Protocol):
    """The links that jobs outside a composition join."""

    def is_read(self, link: Link) -> bool: ...

    def is_written(self, link: Link) -> bool: ...


class _NoLinks:
    def is_read(self, link: Link) -> bool:
        return False

    is_written = is_read


NO_LINKS: LinksElsewhere = _NoLinks()


@dataclass(frozen=True)
class Graph:
    """Jobs, and the declared ends at which messages enter and leave."""

    nodes: tuple[Node, ...]
    ends: tuple[End, ...] = ()

    @classmethod
    def of_composition(cls, composition: Composition) -> Graph:
        """Make the graph of resolved jobs; reserved readers are its outputs."""
        nodes = tuple(
            Node(job.job_name, job.site, job.source, job.port, index)
            for index, job in enumerate(composition.jobs)
        )
        readers = composition.readers
        ends = tuple(End("output", r.link, index, r.client_id) for index, r in enumerate(readers))
        return cls(nodes, ends)

    @classmethod
    def of_description(cls, description: CompositionDescription) -> Graph:
        """Make the graph of a description without the registered sites."""
        nodes = tuple(node_of(job, index) for index, job in enumerate(description.jobs))
        inputs = (end_of("input", p, i) for i, p in enumerate(description.inputs))
        outputs = (end_of("output", p, i) for i, p in enumerate(description.outputs))
        return cls(nodes, (*inputs, *outputs))

    @cached_property
    def writers(self) -> dict[Link, list[Node]]:
        """Jobs by the link that they write."""
        return _by_link((link, node) for node in self.nodes for link in node.port)

    @cached_property
    def readers(self) -> dict[Link, list[Node]]:
        """Jobs by the link that they read."""
        return _by_link((node.source, node) for node in self.nodes)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge between two jobs, sorted."""
        return tuple(
            sorted(
                Edge(writer.job_name, reader.job_name, link)
                for link, writers in self.writers.items()
                for writer in writers
                for reader in self.readers.get(link, ())
            )
        )

    def order(self) -> tuple[str, ...]:
        """Job names in topological order, ties by name.

        Raises InvalidError naming the cycle if there is one.
        """
        nodes = self._sort_nodes()
        if len(nodes) < len(self.nodes):
            raise InvalidError(f"cannot order jobs in a cycle: {_arrows(self.cycles()[0])}")
        return tuple(node.job_name for node in nodes)

    def _sort_nodes(self) -> list[Node]:
        """Jobs in topological order, without those that are in a cycle or downstream of one.

        Goes from link to link rather than along edges, of which there may be very many.
        """
        missing = {link: len(writers) for link, writers in self.writers.items()}
        heads = [node for node in self.nodes if node.source not in missing]
        ready = [(node.job_name, node.index, node) for node in heads]
        heapify(ready)
        order: list[Node] = []
        while ready:
            node = heappop(ready)[2]
            order.append(node)
            for link in node.port:
                missing[link] -= 1
                for after in self.readers.get(link, ()) if not missing[link] else ():
                    heappush(ready, (after.job_name, after.index, after))
        return order

    def cycles(self) -> list[tuple[str, ...]]:
        """A shortest cycle of each strongly connected component (20 at most); its first job is
        repeated at the end.

        A job that reads the link that it writes is a cycle of its own: `("A", "A")`.
        """
        return [tuple(node.job_name for node in cycle) for cycle in self._cycles()]

    def _cycles(self) -> list[tuple[Node, ...]]:
        acyclic = {node.index for node in self._sort_nodes()}
        cycles: list[tuple[Node, ...]] = []
        covered: set[int] = set()
        for node in self.nodes:
            if node.index in acyclic or node.index in covered:
                continue
            if (cycle := self._shortest_cycle(node)) is not None:
                cycles.append(cycle)
                covered |= self._component(node)
                if len(cycles) >= _MAX_CYCLES:
                    break
        return cycles

    def _shortest_cycle(self, start: Node) -> tuple[Node, ...] | None:
        """The shortest path from `start` back to itself, or None."""
        predecessors: dict[int, Node] = {}
        visited: set[Link] = set()
        frontier = deque([start])
        while frontier:
            node = frontier.popleft()
            if start.source in node.port:
                path = [node]
                while path[-1] is not start:
                    path.append(predecessors[path[-1].index])
                return (*reversed(path), start)
            new = [link for link in node.port if link not in visited]
            visited.update(new)
            for link in new:
                for after in self.readers.get(link, ()):
                    predecessors[after.index] = node
                    frontier.append(after)
        return None

    def _component(self, start: Node) -> set[int]:
        """The strongly connected component of `start`."""
        ahead = _reachable(
            start.port, lambda link: (sink for n in self.readers.get(link, ()) for sink in n.port)
        )
        behind = _reachable(
            [start.source], lambda link: (n.source for n in self.writers.get(link, ()))
        )
        return {n.index for n in self.nodes if n.source in ahead and not behind.isdisjoint(n.port)}

    def problems(self) -> list[Problem]:
        """The faults for which the composition is refused: duplicate names, cycles, and more than
        `MAX_EDGES` edges, or than `MAX_EDGE_BYTES` of their topics."""
        return [
            *self._duplicate_jobs(),
            *self._duplicate_readers(),
            *self._cycle_problems(),
            *self._edge_problems(),
        ]

    def _edge_problems(self) -> Iterable[Problem]:
        writers = Counter(link for node in self.nodes for link in node.port)
        writers.update(end.link for end in self.ends if end.kind == "input")
        readers = Counter(node.source for node in self.nodes)
        readers.update(end.link for end in self.ends if end.kind == "output")
        counts = {link: count * readers[link] for link, count in writers.items()}
        if sum(counts.values()) > MAX_EDGES:
            most = max(counts, key=lambda link: counts[link])
            yield Problem(
                "jobs",
                f"topics join {sum(counts.values())} pairs of a writer and a reader, at most"
                f" {MAX_EDGES} are taken; {self._topic(most)} has {writers[most]} writers"
                f" and {readers[most]} readers",
            )
            return
        sizes = {link: count * text_bytes(link.topic) for link, count in counts.items()}
        if sum(sizes.values()) > MAX_EDGE_BYTES:
            most = max(sizes, key=lambda link: sizes[link])
            yield Problem(
                "jobs",
                f"the topics of all pairs of a writer and a reader have {sum(sizes.values())}"
                f" bytes, at most {MAX_EDGE_BYTES} are taken; a topic of {text_bytes(most.topic)}"
                f" bytes has {writers[most]} writers and {readers[most]} readers: shorten it",
            )

    def _duplicate_jobs(self) -> Iterable[Problem]:
        first: dict[str, int] = {}
        for node in self.nodes:
            if node.job_name in first:
                message = f"jobs[{first[node.job_name]}] has the name {node.job_name!r} already"
                yield Problem(f"jobs[{node.index}].job_name", message)
            first.setdefault(node.job_name, node.index)

    def _duplicate_readers(self) -> Iterable[Problem]:
        first: dict[tuple[str, str], int] = {}
        for end in self.ends:
            if end.client_id is None:
                continue
            key = (end.link.site, end.client_id)
            if key in first:
                yield Problem(
                    f"outputs[{end.index}].client_id",
                    f"outputs[{first[key]}] has the client id {end.client_id!r} already on "
                    f"{end.link.site}; a session belongs to one topic",
                )
            first.setdefault(key, end.index)

    def _cycle_problems(self) -> Iterable[Problem]:
        looped = {node.job_name: node for node in self.nodes if node.source in node.port}
        for node in looped.values():
            message = f"{node.job_name} reads what it writes: {self._topic(node.source)}"
            yield Problem(f"jobs[{node.index}].sink_topic", message)
        rest = Graph(tuple(node for node in self.nodes if node.job_name not in looped))
        for cycle in rest._cycles():
            yield _describe_cycle(cycle, cycle[-2])

    def find_cycle_problems(self, first: int) -> list[Problem]:
        """The cycles that hold one of the `first` jobs at least, as problems of these."""
        cycles = [cycle for cycle in self._cycles() if cycle[0].index < first]
        return [
            _describe_cycle(cycle, next(n for n in reversed(cycle[:-1]) if n.index < first))
            for cycle in cycles
        ]

    def warnings(self, elsewhere: LinksElsewhere = NO_LINKS) -> list[str]:
        """Warn about topics that no job writes or no job reads, here or `elsewhere`, unless they
        are declared as an input or output."""
        inputs = {end.link for end in self.ends if end.kind == "input"}
        outputs = {end.link for end in self.ends if end.kind == "output"}
        written = {link for link in (*self.readers, *outputs) if elsewhere.is_written(link)}
        read = {link for link in (*self.writers, *inputs) if elsewhere.is_read(link)}
        written |= self.writers.keys()
        read |= self.readers.keys()
        unwritten = self._open_links(self.readers, {*written, *inputs})
        unread = self._open_links(self.writers, {*read, *outputs})
        return [
            *self._open_link_warnings(
                "writes", "read", unwritten, "inputs if it is fed from outside"
            ),
            *self._open_link_warnings(
                "reads", "written", unread, "outputs if it is read from outside"
            ),
            *self._end_warnings("no job reads the input", inputs - read),
            *self._end_warnings("no job writes the output", outputs - written),
            *self._look_alike_warnings(
                {link for link, _ in unwritten} | (outputs - written),
                {link for link, _ in unread} | (inputs - read),
            ),
        ]

    def _end_warnings(self, fault: str, links: Set[Link]) -> Iterable[str]:
        for link in sorted(links)[:MOST_PROBLEMS]:
            yield f"{fault} {self._topic(link)}"
        if len(links) > MOST_PROBLEMS:
            yield f"{fault}: {len(links) - MOST_PROBLEMS} more"

    def _look_alike_warnings(self, unwritten: Set[Link], unread: Set[Link]) -> Iterable[str]:
        """What is read but not written, and looks like what is written but not read."""
        by_look = {look_of(link.topic): link for link in sorted(unread)}
        for link in sorted(unwritten)[:MOST_PROBLEMS]:
            other = by_look.get(look_of(link.topic))
            if other is not None and other.topic != link.topic:
                yield (
                    f"{self._topic(link)}, which is read, and {self._topic(other)}, which is"
                    f" written, look alike, but {difference_between(link.topic, other.topic)}:"
                    " to brokers they are two topics"
                )

    def _open_link_warnings(
        self, missing: str, present: str, links: list[tuple[Link, list[Node]]], hint: str
    ) -> Iterable[str]:
        for link, jobs in links[: _MAX_OPEN_LINKS if len(links) <= _MAX_OPEN_LINKS else 0]:
            yield (
                f"no job {missing} {self._topic(link)} ({present} by {_names(jobs)});"
                f" list it under {hint}"
            )
        if len(links) > _MAX_OPEN_LINKS:
            few = ", ".join(self._topic(link) for link, _ in links[:_MAX_OPEN_LINKS])
            yield (
                f"no job {missing} {len(links)} topics that are {present}: {few} and"
                f" {len(links) - _MAX_OPEN_LINKS} more; list each under {hint}"
            )

    def _topic(self, link: Link) -> str:
        return f"topic {show(link.topic)} on {link.site}"

    @staticmethod
    def _open_links(
        links: dict[Link, list[Node]], partners: set[Link]
    ) -> list[tuple[Link, list[Node]]]:
        """Links without a partner. If another link has the same topic and its broker is written in
        another form (by site or by address), both may be the same link: no warning then."""
        spellings: defaultdict[str, set[str]] = defaultdict(set)
        for partner in partners:
            spellings[partner.topic].add(_spelling(partner.site))
        return [
            (link, nodes)
            for link, nodes in sorted(links.items())
            if link not in partners and spellings[link.topic] <= {_spelling(link.site)}
        ]


def check(description: CompositionDescription) -> tuple[list[Problem], list[str]]:
    """Problems and warnings that show without a server: those of the graph."""
    graph = Graph.of_description(description)
    return graph.problems(), graph.warnings()


def node_of(job: JobDescription, index: int) -> Node:
    """`job` as far as it is known without the registered sites."""
    place = job.site or normalise_address(job.spe_address or "")
    own = job.site or f"{_ENGINES_BROKER}{place}"
    source = Link(_broker(job.source_broker, job.source_site) or own, job.source_topic)
    sink = Link(_broker(job.sink_broker, job.sink_site) or own, job.sink_topic)
    return Node(job.job_name, place, source, (sink,), index)


def end_of(kind: str, port: Port, index: int) -> End:
    """`port` as far as it is known without the registered sites."""
    link = Link(_broker(port.broker, port.site) or "", port.topic)
    return End(kind, link, index, port.client_id)


def _broker(address: str | None, site: str | None) -> str | None:
    return normalise_address(address) if address else site


def _spelling(broker: str) -> str:
    """The form in which a broker is named: by its own address, its engine's address or its site."""
    if broker.startswith(_ENGINES_BROKER):
        return "engine"
    return "address" if "://" in broker else "site"


def _by_link(nodes: Iterable[tuple[Link, Node]]) -> dict[Link, list[Node]]:
    groups: dict[Link, list[Node]] = defaultdict(list)
    for link, node in nodes:
        groups[link].append(node)
    return dict(groups)


def _reachable(starts: Iterable[Link], successors: Callable[[Link], Iterable[Link]]) -> set[Link]:
    links = set(starts)
    pending = list(links)
    while pending:
        for link in successors(pending.pop()):
            if link not in links:
                links.add(link)
                pending.append(link)
    return links


def _describe_cycle(cycle: Sequence[Node], closing: Node) -> Problem:
    """The problem of the job that closes a cycle."""
    message = f"closes the cycle {_arrows([node.job_name for node in cycle])}"
    return Problem(f"jobs[{closing.index}].sink_topic", message)


def _arrows(cycle: Sequence[str]) -> str:
    shown = cycle if len(cycle) <= 12 else (*cycle[:6], "...", *cycle[-5:])
    return " -> ".join(shown)


def _names(nodes: Sequence[Node]) -> str:
    names = sorted(node.job_name for node in nodes)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
