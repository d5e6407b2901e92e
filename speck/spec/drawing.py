"""The graph of a composition for people and programs: as JSON, for Mermaid and for Graphviz."""

from __future__ import annotations

from speck.model.values import JsonObject
from speck.spec.topology import End, Graph


def to_json(graph: Graph) -> JsonObject:
    """`{"nodes": [...], "edges": [{from, to, topic, broker}]}`, sorted.

    A job's node has kind "job"; those of kind "input" and "output" have no job_name.
    """
    jobs = [
        {"id": n.job_name, "kind": "job", "job_name": n.job_name, "site": n.site}
        for n in sorted(graph.nodes, key=lambda node: node.job_name)
    ]
    return {"nodes": [*jobs, *map(_end_json, _sort_ends(graph))], "edges": _flows(graph)}


def _sort_ends(graph: Graph) -> list[End]:
    return sorted({end.id: end for end in graph.ends}.values(), key=lambda end: end.id)


def _flows(graph: Graph) -> list[JsonObject]:
    flows = [(edge.start, edge.end, edge.link) for edge in graph.edges]
    for end in _sort_ends(graph):
        if end.kind == "input":
            readers = sorted(node.job_name for node in graph.readers.get(end.link, ()))
            flows += [(end.id, reader, end.link) for reader in readers]
        else:
            writers = sorted(node.job_name for node in graph.writers.get(end.link, ()))
            flows += [(writer, end.id, end.link) for writer in writers]
    return [
        {"from": start, "to": end, "topic": link.topic, "broker": link.site}
        for start, end, link in flows
    ]


def to_mermaid(graph: Graph) -> str:
    """The graph as a Mermaid flow chart."""
    drawn = to_json(graph)
    ids = {node["id"]: f"n{number}" for number, node in enumerate(drawn["nodes"])}
    lines = ["flowchart LR"]
    for node in drawn["nodes"]:
        opening, closing = ("[", "]") if node["kind"] == "job" else ("([", "])")
        label = "<br/>".join(map(_mermaid_text, _label(node)))
        lines.append(f'  {ids[node["id"]]}{opening}"{label}"{closing}')
    texts = {topic: _mermaid_text(topic) for topic in {e["topic"] for e in drawn["edges"]}}
    for edge in drawn["edges"]:
        text = texts[edge["topic"]]
        lines.append(f'  {ids[edge["from"]]} -->|"{text}"| {ids[edge["to"]]}')
    return "\n".join(lines) + "\n"


def to_dot(graph: Graph) -> str:
    """The graph in Graphviz's language."""
    drawn = to_json(graph)
    lines = ["digraph composition {", "  rankdir=LR;", "  node [shape=box];"]
    for node in drawn["nodes"]:
        label = "\\n".join(map(_dot_text, _label(node)))
        shape = "" if node["kind"] == "job" else ", shape=oval"
        lines.append(f'  "{_dot_text(node["id"])}" [label="{label}"{shape}];')
    for edge in drawn["edges"]:
        ends = f'"{_dot_text(edge["from"])}" -> "{_dot_text(edge["to"])}"'
        lines.append(f'  {ends} [label="{_dot_text(edge["topic"])}"];')
    return "\n".join([*lines, "}"]) + "\n"


def _end_json(end: End) -> JsonObject:
    node: JsonObject = {"id": end.id, "kind": end.kind, "job_name": None}
    node |= {"topic": end.link.topic, "broker": end.link.site}
    return node | ({"client_id": end.client_id} if end.client_id else {})


def _label(node: JsonObject) -> tuple[str, str]:
    if node["kind"] == "job":
        return node["job_name"], node["site"]
    return node.get("client_id") or node["kind"], node["broker"]


def _mermaid_text(text: str) -> str:
    """Letters, digits and a few signs as they are, everything else as a character code."""
    return "".join(c if c.isalnum() or c in " _./:-" else f"#{ord(c)};" for c in text)


def _dot_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
