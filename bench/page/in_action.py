"""bench.in_action."""

from __future__ import annotations

from bench.page.section import Section

SECTION = Section(
    name="in_action",
    title="Placement in action",
    question="Does measuring, analysing, placing and moving while data flows help, and is anything "
    "lost?",
    set_up="The traffic application starts all in the cloud behind uplinks of 2 Mb/s; speck "
    "measures, analyses, places, and applies while it runs.",
    target="in-action",
    figures=lambda result: "",
)
