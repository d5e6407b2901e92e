"""bench.scale."""

from __future__ import annotations

from bench.page.section import Section

SECTION = Section(
    name="scale",
    title="A thousand sites",
    question="Where does the control plane break?",
    set_up="Register, plan, apply, observe and read with up to 1000 sites and 10 000 jobs.",
    target="scale",
    figures=lambda result: "",
)
