"""Readers of one link exchange their sinks, are renamed or promoted under flow: each output gets
every record once, also where an outside program writes the link.

Written as in `tests/properties/test_exchanges.py`: "a:m>o1 b:m>o2".
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from bench.instruments.checker import Checker
from bench.instruments.feed import Feed
from speck.model.values import JsonObject
from tests.e2e.harness import Speck, composition, job

RATE = 200.0
SITES = {"a": "edge-a", "b": "edge-b", "c": "cloud", "d": "edge-a", "h": "edge-a"}
OUTPUTS = ("o1", "o2")
CASES = {
    "renamed": ("a:m>o1 b:m>o2", "b:m>o1 c:m>o2", "c:m>o1 d:m>o2"),
    "exchanged and back": ("a:m>o1 b:m>o2", "a:m>o2 b:m>o1", "a:m>o1 b:m>o2"),
    "promoted": ("a:m>o1 b:m>o2", "b:m>o1", "b:m>o1 c:m>o2", "c:m>o1"),
}


def compose(wiring: str, feed: str, delivery: str) -> JsonObject:
    jobs = []
    for text in ["h:in>m"] * (feed == "job") + wiring.split():
        name, _, way = text.partition(":")
        source, sink = way.split(">")
        more = {
            "source_site": "edge-a",
            "sink_site": "cloud" if sink in OUTPUTS else "edge-a",
            "delivery": delivery,
        }
        place = (f"exchange/{topic}" for topic in (source, sink))
        jobs.append(job(f"exchange-{name}", SITES[name], *place, **more))
    outputs = [("cloud", f"exchange/{topic}", f"e2e-exchange-{topic}") for topic in OUTPUTS]
    inputs = [("edge-a", f"exchange/{'in' if feed == 'job' else 'm'}")]
    return composition("exchange", *jobs, inputs=inputs, outputs=outputs)


@pytest.mark.long
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("feed", ["job", "outside"])
@pytest.mark.parametrize("case", CASES)
def test_each_output_gets_every_record_once(
    speck: Speck, case: str, feed: str, delivery: str
) -> None:
    steps = CASES[case]
    written = [topic for topic in OUTPUTS if all(f">{topic}" in step for step in steps)]
    first = compose(steps[0], feed, delivery)
    speck.apply(first)
    (start,) = first["inputs"]
    with ExitStack() as stack:
        outs = {
            topic: stack.enter_context(
                Checker(speck.broker("cloud"), f"exchange/{topic}", f"e2e-exchange-{topic}")
            )
            for topic in written
        }
        sending = stack.enter_context(
            Feed(speck.broker("edge-a"), start["topic"], rate=RATE, run=f"exchange-{case}")
        )
        for step in steps:
            speck.apply(compose(step, feed, delivery))
            for out in outs.values():
                out.await_past(sending.sent)
        published = sending.end()
        for out in outs.values():
            out.await_all(published)
        speck.apply({**first, "jobs": []}, force="true")
        for topic, out in outs.items():
            speck.publisher("cloud", f"exchange/{topic}").count([published + 1])
            out.await_past(published)
        counts = {topic: out.count(published + 1) for topic, out in outs.items()}
    for topic, count in counts.items():
        figures = (count.lost, count.repeated, count.dropped, count.stray)
        print(case, feed, delivery, topic, count)
        assert figures == (0, 0, 0, 0), (topic, count)
