"""bench.fig6."""

from __future__ import annotations

from bench.page.section import Section

SECTION = Section(
    name="fig6",
    title="Deploying, changing and deleting chains (figure 6)",
    question="How long does it take to deploy, change and delete a chain of 1 to 100 jobs?",
    set_up="PassThrough jobs at random over six Flink instances in three clusters, 18.6 ms apart "
    "there and back; the control plane is in the first. The floor is the bare REST calls with "
    "the same concurrency over the same connections; one by one is how a script without a "
    "planner does it.",
    target="fig6",
    figures=lambda result: "",
)
