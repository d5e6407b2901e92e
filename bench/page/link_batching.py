"""bench.link_batching."""

from __future__ import annotations

from bench.page.section import Section

SECTION = Section(
    name="link_batching",
    title="Batching on links",
    question="What do batching and compression on a link give?",
    set_up="Detections of the traffic application and records of 1 kB, one record a message"
    " against 10 to 1000 a message, with and without zstd.",
    target="link-batching",
    figures=lambda result: "",
)
