"""The graph of a composition, which follows from its links alone.

An edge runs from each job that writes a link to each job that reads it, so one common topic
joins many to many. Without the registered sites a link's broker is known only as far as its
user named it; `Graph.of_description` then compares the names as written.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush

from speck.errors import InvalidError, Problem
from speck.model.composition import Composition, CompositionDescription, Port
from speck.model.job import JobDescription
from speck.model.link import Link
from speck.model.site import normalise_address
from speck.model.values import JsonObject

_MAX_CYCLES = 20
_MOST_LONELY = 3
_ENGINES_BROKER = "the broker of "


@dataclass(frozen=True, slots=True)
class Node:
    """A job as the graph sees it; `index` is its place in the composition."""

    job_name: str
    site: str
    source: Link
    sink: Link
    index: int


@dataclass(frozen=True, slots=True)
class End:
    """A declared input or output; `client_id` is that of a reader whose session is reserved."""

    kind: str  # "input" or "output"
    link: Link
    index: int
    client_id: str | None = None

    @property
    def id(self) -> str:
        """Differs from every job name, as those hold no colon."""
        reader = f"@{self.client_id}" if self.client_id else ""
        return f"{self.kind}:{self.link}{reader}"


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """Messages flow from job `start` to job `end` through `link`."""

    start: str
    end: str
    link: Link


@dataclass(frozen=True)
class Graph:
    """Jobs, and the declared ends at which messages enter and leave. `sites` are the names of
    brokers' sites, by the brokers as the links name them, as far as they are known."""

    nodes: tuple[Node, ...]
    ends: tuple[End, ...] = ()
    sites: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_composition(cls, composition: Composition) -> Graph:
        """The graph of resolved jobs; reserved readers are its outputs."""
        nodes = tuple(
            Node(job.job_name, job.site, job.source, job.sink, index)
            for index, job in enumerate(composition.jobs)
        )
        readers = composition.readers
        ends = tuple(End("output", r.link, index, r.client_id) for index, r in enumerate(readers))
        return cls(nodes, ends)

    @classmethod
    def of_description(cls, description: CompositionDescription) -> Graph:
        """The graph as far as it is known without the registered sites."""
        nodes = tuple(described_node(job, index) for index, job in enumerate(description.jobs))
        inputs = (described_end("input", p, i) for i, p in enumerate(description.inputs))
        outputs = (described_end("output", p, i) for i, p in enumerate(description.outputs))
        return cls(nodes, (*inputs, *outputs))

    @cached_property
    def writers(self) -> dict[Link, list[Node]]:
        """Jobs by the link that they write."""
        return _by_link(self.nodes, lambda node: node.sink)

    @cached_property
    def readers(self) -> dict[Link, list[Node]]:
        """Jobs by the link that they read."""
        return _by_link(self.nodes, lambda node: node.source)

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
        """Job names, each after all that feed it; ties by name.

        Raises InvalidError naming the cycle when there is one.
        """
        done = self._sorted_nodes()
        if len(done) < len(self.nodes):
            raise InvalidError(f"cannot order jobs in a cycle: {_arrows(self.cycles()[0])}")
        return tuple(node.job_name for node in done)

    def _sorted_nodes(self) -> list[Node]:
        """Jobs, each after all that feed it; without those in a cycle and behind one.

        Goes from link to link rather than along edges, of which there may be very many.
        """
        missing = {link: len(writers) for link, writers in self.writers.items()}
        fed = [node for node in self.nodes if node.source not in missing]
        ready = [(node.job_name, node.index, node) for node in fed]
        heapify(ready)
        done: list[Node] = []
        while ready:
            node = heappop(ready)[2]
            done.append(node)
            missing[node.sink] -= 1
            if not missing[node.sink]:
                for after in self.readers.get(node.sink, ()):
                    heappush(ready, (after.job_name, after.index, after))
        return done

    def cycles(self) -> list[tuple[str, ...]]:
        """A shortest cycle through each knot of jobs (20 at most), first job again at the end.

        A job that reads what it writes is a cycle of its own: `("A", "A")`.
        """
        return [tuple(node.job_name for node in cycle) for cycle in self._cycles()]

    def _cycles(self) -> list[tuple[Node, ...]]:
        sorted_ones = {node.index for node in self._sorted_nodes()}
        found: list[tuple[Node, ...]] = []
        told: set[int] = set()
        for node in self.nodes:
            if node.index in sorted_ones or node.index in told:
                continue
            if (cycle := self._way_back(node)) is not None:
                found.append(cycle)
                told |= self._knot(node)
                if len(found) >= _MAX_CYCLES:
                    break
        return found

    def _way_back(self, start: Node) -> tuple[Node, ...] | None:
        """The shortest way from `start` to itself, or None."""
        came_from: dict[int, Node] = {}
        seen: set[Link] = set()
        frontier = deque([start])
        while frontier:
            node = frontier.popleft()
            if node.sink == start.source:
                way = [node]
                while way[-1] is not start:
                    way.append(came_from[way[-1].index])
                return (*reversed(way), start)
            if node.sink not in seen:
                seen.add(node.sink)
                for after in self.readers.get(node.sink, ()):
                    came_from[after.index] = node
                    frontier.append(after)
        return None

    def _knot(self, start: Node) -> set[int]:
        """Jobs from which `start` can be reached and which can be reached from it."""
        ahead = _reachable(start.sink, lambda link: (n.sink for n in self.readers.get(link, ())))
        behind = _reachable(
            start.source, lambda link: (n.source for n in self.writers.get(link, ()))
        )
        return {n.index for n in self.nodes if n.source in ahead and n.sink in behind}

    def problems(self) -> list[Problem]:
        """What makes the composition impossible: doubled names and cycles."""
        return [*self._doubled_jobs(), *self._doubled_readers(), *self._circular()]

    def _doubled_jobs(self) -> Iterable[Problem]:
        first: dict[str, int] = {}
        for node in self.nodes:
            if node.job_name in first:
                message = f"jobs[{first[node.job_name]}] has the name {node.job_name!r} already"
                yield Problem(f"jobs[{node.index}].job_name", message)
            first.setdefault(node.job_name, node.index)

    def _doubled_readers(self) -> Iterable[Problem]:
        first: dict[tuple[str, str], int] = {}
        for end in self.ends:
            if end.client_id is None:
                continue
            key = (end.link.broker, end.client_id)
            if key in first:
                yield Problem(
                    f"outputs[{end.index}].client_id",
                    f"outputs[{first[key]}] has the client id {end.client_id!r} already on "
                    f"{end.link.broker}; a session belongs to one topic",
                )
            first.setdefault(key, end.index)

    def _circular(self) -> Iterable[Problem]:
        looped = {node.job_name: node for node in self.nodes if node.source == node.sink}
        for node in looped.values():
            message = f"{node.job_name} reads what it writes: {self._topic(node.sink)}"
            yield Problem(f"jobs[{node.index}].sink_topic", message)
        rest = Graph(tuple(node for node in self.nodes if node.job_name not in looped))
        for cycle in rest._cycles():
            message = f"closes the cycle {_arrows([node.job_name for node in cycle])}"
            yield Problem(f"jobs[{cycle[-2].index}].sink_topic", message)

    def warnings(self) -> list[str]:
        """Topics that nobody writes or nobody reads, unless declared as an input or output."""
        inputs = {end.link for end in self.ends if end.kind == "input"}
        outputs = {end.link for end in self.ends if end.kind == "output"}
        unfed = self._lonely(self.readers, {*self.writers, *inputs})
        unread = self._lonely(self.writers, {*self.readers, *outputs})
        return [
            *self._lonely_ones("writes", "read", unfed, "inputs if it is fed from outside"),
            *self._lonely_ones("reads", "written", unread, "outputs if it is read from outside"),
            *(f"no job reads the input {self._topic(x)}" for x in sorted(inputs - {*self.readers})),
            *(
                f"no job writes the output {self._topic(x)}"
                for x in sorted(outputs - {*self.writers})
            ),
        ]

    def _lonely_ones(
        self, missing: str, done: str, lonely: list[tuple[Link, list[Node]]], mend: str
    ) -> Iterable[str]:
        for link, jobs in lonely[: _MOST_LONELY if len(lonely) <= _MOST_LONELY else 0]:
            yield (
                f"no job {missing} {self._topic(link)} ({done} by {_names(jobs)});"
                f" list it under {mend}"
            )
        if len(lonely) > _MOST_LONELY:
            few = ", ".join(self._topic(link) for link, _ in lonely[:_MOST_LONELY])
            yield (
                f"no job {missing} {len(lonely)} topics that are {done}: {few} and"
                f" {len(lonely) - _MOST_LONELY} more; list each under {mend}"
            )

    def _topic(self, link: Link) -> str:
        return f"topic {link.topic!r} on {self.sites.get(link.broker, link.broker)}"

    @staticmethod
    def _lonely(
        links: dict[Link, list[Node]], partners: set[Link]
    ) -> list[tuple[Link, list[Node]]]:
        """Links without a partner. Where brokers are named in different ways (a site here,
        an address there) the same topic may well be the same link: no warning then."""
        return [
            (link, nodes)
            for link, nodes in sorted(links.items())
            if link not in partners
            and not any(
                other.topic == link.topic and _spelling(other.broker) != _spelling(link.broker)
                for other in partners
            )
        ]

    def to_json(self) -> JsonObject:
        """`{"nodes": [...], "edges": [{from, to, topic, broker}]}`, sorted.

        A job's node has kind "job"; those of kind "input" and "output" have no job_name.
        """
        jobs = [
            {"id": n.job_name, "kind": "job", "job_name": n.job_name, "site": n.site}
            for n in sorted(self.nodes, key=lambda node: node.job_name)
        ]
        return {"nodes": [*jobs, *map(_end_json, self._sorted_ends())], "edges": self._flows()}

    def _sorted_ends(self) -> list[End]:
        return sorted({end.id: end for end in self.ends}.values(), key=lambda end: end.id)

    def _flows(self) -> list[JsonObject]:
        flows = [(edge.start, edge.end, edge.link) for edge in self.edges]
        for end in self._sorted_ends():
            if end.kind == "input":
                readers = sorted(node.job_name for node in self.readers.get(end.link, ()))
                flows += [(end.id, reader, end.link) for reader in readers]
            else:
                writers = sorted(node.job_name for node in self.writers.get(end.link, ()))
                flows += [(writer, end.id, end.link) for writer in writers]
        return [
            {"from": start, "to": end, "topic": link.topic, "broker": link.broker}
            for start, end, link in flows
        ]

    def to_mermaid(self) -> str:
        """The graph as a Mermaid flow chart."""
        drawn = self.to_json()
        ids = {node["id"]: f"n{number}" for number, node in enumerate(drawn["nodes"])}
        lines = ["flowchart LR"]
        for node in drawn["nodes"]:
            opening, closing = ("[", "]") if node["kind"] == "job" else ("([", "])")
            label = "<br/>".join(map(_mermaid_text, _label(node)))
            lines.append(f'  {ids[node["id"]]}{opening}"{label}"{closing}')
        for edge in drawn["edges"]:
            text = _mermaid_text(edge["topic"])
            lines.append(f'  {ids[edge["from"]]} -->|"{text}"| {ids[edge["to"]]}')
        return "\n".join(lines) + "\n"

    def to_dot(self) -> str:
        """The graph in Graphviz's language."""
        drawn = self.to_json()
        lines = ["digraph composition {", "  rankdir=LR;", "  node [shape=box];"]
        for node in drawn["nodes"]:
            label = "\\n".join(map(_dot_text, _label(node)))
            shape = "" if node["kind"] == "job" else ", shape=oval"
            lines.append(f'  "{_dot_text(node["id"])}" [label="{label}"{shape}];')
        for edge in drawn["edges"]:
            ends = f'"{_dot_text(edge["from"])}" -> "{_dot_text(edge["to"])}"'
            lines.append(f'  {ends} [label="{_dot_text(edge["topic"])}"];')
        return "\n".join([*lines, "}"]) + "\n"


def check(description: CompositionDescription) -> tuple[list[Problem], list[str]]:
    """Problems and warnings that show without a server: those of the graph."""
    graph = Graph.of_description(description)
    return graph.problems(), graph.warnings()


def described_node(job: JobDescription, index: int) -> Node:
    """`job` as far as it is known without the registered sites."""
    place = job.site or normalise_address(job.spe_address or "")
    own = job.site or f"{_ENGINES_BROKER}{place}"
    source = Link(_broker(job.source_broker, job.source_site) or own, job.source_topic)
    sink = Link(_broker(job.sink_broker, job.sink_site) or own, job.sink_topic)
    return Node(job.job_name, place, source, sink, index)


def described_end(kind: str, port: Port, index: int) -> End:
    """`port` as far as it is known without the registered sites."""
    link = Link(_broker(port.broker, port.site) or "", port.topic)
    return End(kind, link, index, port.client_id)


def _broker(address: str | None, site: str | None) -> str | None:
    return normalise_address(address) if address else site


def _spelling(broker: str) -> str:
    """How a broker is named: by its own address, its engine's address, or its site."""
    if broker.startswith(_ENGINES_BROKER):
        return "engine"
    return "address" if "://" in broker else "site"


def _by_link(nodes: Sequence[Node], link: Callable[[Node], Link]) -> dict[Link, list[Node]]:
    found: dict[Link, list[Node]] = defaultdict(list)
    for node in nodes:
        found[link(node)].append(node)
    return dict(found)


def _reachable(start: Link, following: Callable[[Link], Iterable[Link]]) -> set[Link]:
    found = {start}
    pending = [start]
    while pending:
        for link in following(pending.pop()):
            if link not in found:
                found.add(link)
                pending.append(link)
    return found


def _arrows(cycle: Sequence[str]) -> str:
    shown = cycle if len(cycle) <= 12 else (*cycle[:6], "...", *cycle[-5:])
    return " -> ".join(shown)


def _names(nodes: Sequence[Node]) -> str:
    names = sorted(node.job_name for node in nodes)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _end_json(end: End) -> JsonObject:
    drawn: JsonObject = {"id": end.id, "kind": end.kind, "job_name": None}
    drawn |= {"topic": end.link.topic, "broker": end.link.broker}
    return drawn | ({"client_id": end.client_id} if end.client_id else {})


def _label(node: JsonObject) -> tuple[str, str]:
    if node["kind"] == "job":
        return node["job_name"], node["site"]
    return node.get("client_id") or node["kind"], node["broker"]


def _mermaid_text(text: str) -> str:
    """Letters, digits and a few signs as they are, everything else as a character code."""
    return "".join(c if c.isalnum() or c in " _./:-" else f"#{ord(c)};" for c in text)


def _dot_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
