"""Chains of jobs that hypothesis draws: their places, and so the links between them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from speck.model.values import JsonObject
from tests.service_helpers import job_body

SITES = ("edge-a", "edge-b", "cloud")
ENDS: JsonObject = {
    "outputs": [{"site": "cloud", "topic": "out", "client_id": "checker"}],
    "inputs": [{"site": "edge-a", "topic": "in"}],
}


def draw_chain(draw: st.DrawFn, names: Sequence[str], topics: str) -> list[JsonObject]:
    """Jobs of which each reads what the one before writes, anywhere: from `in` at edge-a to `out`
    at cloud, over topics with these names at any site."""
    places = [(site, topic) for site in SITES for topic in topics]
    between = draw(st.permutations(places))[: len(names) - 1]
    ends = [("edge-a", "in"), *between, ("cloud", "out")]
    return [
        job_body(
            name,
            draw(st.sampled_from(SITES)),
            source_site=source[0],
            source_topic=source[1],
            sink_site=sink[0],
            sink_topic=sink[1],
            args=draw(st.sampled_from([[], ["--x"]])),
        )
        for name, source, sink in zip(names, ends[:-1], ends[1:], strict=True)
    ]
