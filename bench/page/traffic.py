"""bench.traffic."""

from __future__ import annotations

from bench.page.section import Section

SECTION = Section(
    name="traffic",
    title="Fog or cloud (figures 7, 9 and 10)",
    question="What does the fog give over running everything in the cloud?",
    set_up="The 17 jobs of the traffic application, as fog and as cloud, fed with the same "
    "detections; edges have a share of a core and a shaped uplink each.",
    target="traffic",
    figures=lambda result: "",
)
