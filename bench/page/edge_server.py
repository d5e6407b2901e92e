"""bench.edge_server."""

from __future__ import annotations

from bench.page.section import Section

SECTION = Section(
    name="edge_server",
    title="Edge or server",
    question="What does a filter at the edge gain over the same filter at the server?",
    set_up="A filter at either end of an uplink of 100 Mb/s down to 100 kb/s; the rate that"
    " arrives at the far end, edge against server. Where the uplink is the limit, 1/selectivity is "
    "what theory says; elsewhere 1.",
    target="edge-server",
    figures=lambda result: "",
)
