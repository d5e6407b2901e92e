"""bench.fig8."""

from __future__ import annotations

from bench.page.section import Section

SECTION = Section(
    name="fig8",
    title="Near or far (figure 8)",
    question="What does it cost to run a job far from its data?",
    set_up="Local statistics of the traffic application at the site of their data, and at the"
    " cloud across the WAN, at one message per 2 ms, per 1 ms, and at the highest rate that the "
    "machine carries.",
    target="fig8",
    figures=lambda result: "",
)
