"""Readers that exchange their sinks, are renamed or promoted while records flow: each output
changes its writer at one record of the input, and each job that stays counts each record once.

A wiring is written as in "a:m>o1 b:m>o2!": job a reads link m and writes output o1; job b is
stopped. Link m is fed by a job (`h`) or from outside.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binders.memory import World
from speck.errors import EngineRefusedError
from speck.model.change import ChangeReport
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.schema import composition_from_data
from tests.examples import costly
from tests.memory_fog import service_in_turns, site_body
from tests.service_helpers import broker, engine, job_body
from tests.turns import Turns

SITES = ("edge-a", "edge-b", "cloud")
OUTPUTS = ("o1", "o2", "o3")
FEEDS = ("job", "outside")
SEEDS = 6  # in one test
LONG = pytest.mark.long
REFUSED = EngineRefusedError("cannot start it: no")
CALLS = {"stop", "submit", "cancel", "save_progress", "reserve", "release", "forget", "view"}
PATIENT = costly()

CASES = {
    "renamed": ("a:m>o1 b:m>o2", "b:m>o1 c:m>o2", "c:m>o1 d:m>o2"),
    "exchanged and back": ("a:m>o1 b:m>o2", "a:m>o2 b:m>o1", "a:m>o1 b:m>o2"),
    "rotated and back": (
        "a:m>o1 b:m>o2 c:m>o3",
        "a:m>o2 b:m>o3 c:m>o1",
        "a:m>o1 b:m>o2 c:m>o3",
    ),
    "promoted": ("a:m>o1 b:m>o2", "b:m>o1", "b:m>o1 c:m>o2", "c:m>o1"),
    "left to a new one": ("a:m>o1", "a:m>o2 b:m>o1"),
    "taken from one that goes elsewhere": ("a:m>o1 b:m>o2", "a:m>o2 b:m>o3"),
}
TREES = {
    "exchanged behind a branch": (
        "a:m>p b:m>q c:p>o1 d:q>o2",
        "a:m>p b:m>q c:p>o2 d:q>o1",
        "a:m>q b:m>p c:p>o2 d:q>o1",
    ),
    "exchanged across levels": (
        "a:m>p b:m>o2 c:p>o1",
        "a:m>p b:m>o1 c:p>o2",
    ),
}
STOPPED = {
    "exchanged with one that is stopped": ("a:m>o1 b:m>o2", "a:m>o1 b:m>o2!", "a:m>o2 b:m>o1"),
    "moved while it is stopped": ("a:m>o1", "a:m>o1!", "a:m>o2!", "a:m>o2"),
    "exchanged and stopped": ("a:m>o1 b:m>o2", "a:m>o2 b:m>o1!", "a:m>o2 b:m>o1"),
    "both stopped": ("a:m>o1 b:m>o2", "a:m>o1! b:m>o2!", "a:m>o2 b:m>o1"),
}


def parse(wiring: str) -> dict[str, tuple[str, str]]:
    """The source and the sink of each job."""
    jobs = (job.rstrip("!").split(":") for job in wiring.split())
    return {name: (way.split(">")[0], way.split(">")[1]) for name, way in jobs}


def compose(wiring: str, feed: str, **more: str) -> JsonObject:
    """Jobs run at the sites in turn; `feed` says whether a job or an outside program writes m."""
    ways = parse(wiring) | ({"h": ("in", "m")} if feed == "job" else {})
    jobs = [
        job_body(
            name,
            SITES["abcdeh".index(name) % 3],
            source_site="edge-a",
            source_topic=source,
            sink_site="cloud" if sink in OUTPUTS else "edge-a",
            sink_topic=sink,
            state="stopped" if f"{name}:{source}>{sink}!" in wiring else "running",
            **more,
        )
        for name, (source, sink) in ways.items()
    ]
    outputs = [{"site": "cloud", "topic": topic, "client_id": topic} for topic in OUTPUTS]
    inputs = [{"site": "edge-a", "topic": _find_input(feed)}]
    return {"name": "c", "jobs": jobs, "outputs": outputs, "inputs": inputs}


def _find_input(feed: str) -> str:
    return "in" if feed == "job" else "m"


class Stream:
    """Sends records to the input, one at each call to an engine or a broker, while some jobs work
    and others lag behind."""

    def __init__(
        self, service: Service, turns: Turns, feed: str, dice: random.Random, **more: str
    ) -> None:
        self.service, self.turns, self.feed = service, turns, feed
        self.dice, self.more = dice, more
        self.sent = self.calls = self.cancel_at = 0

    def send(self, count: int) -> None:
        payloads = [b"%d" % (self.sent + n) for n in range(count)]
        topic = _find_input(self.feed)
        World.current().feed("tcp://edge-a.test:1883", topic, payloads, "sensor")
        self.sent += count

    def _note_call(self, kind: str, subject: str) -> None:
        self.turns.pass_on()
        if kind in CALLS:
            self.send(1)
        self.calls += kind != "view"
        if 0 < self.cancel_at <= self.calls:
            self.cancel_at = 0
            for each in self.service.changes.all_under_way():
                if each.execution is not None:
                    each.execution.cancel()
        for site in SITES:
            for job in engine(site).running():
                if self.dice.random() < 0.5:
                    job.work()
                if self.dice.random() < 0.5:
                    job.checkpoint()

    def apply(self, wiring: str) -> ChangeReport:
        """Apply it and return the change."""
        composition = composition_from_data(compose(wiring, self.feed, **self.more))
        body = self.service.compositions.apply(composition, ApplyRequest(wait_s=30, force=True))
        World.current().auto_pump = False
        for site in SITES:  # from now on
            engine(site).before = broker(site).before = self._note_call
        self.send(3)
        World.current().pump()
        assert body.change is not None
        return self.service.changes.get(body.change)

    def cancel(self, wiring: str) -> None:
        """Apply it, and cancel the change at some call unless it is over before."""
        self.cancel_at = self.calls + self.dice.randint(1, 30)
        assert self.apply(wiring).state in ("cancelled", "done")
        self.cancel_at = 0

    def read(self) -> dict[str, list[int]]:
        """The records at each output, sorted."""
        for site in SITES:
            engine(site).before = broker(site).before = None
        World.current().pump()
        return {topic: sorted(map(int, broker("cloud").take(topic))) for topic in OUTPUTS}

    def count_records(self) -> dict[str, int]:
        """How many records each job's state counts."""
        running = [job for site in SITES for job in engine(site).running()]
        return {job.submission.job_name: job.ledger.messages for job in running}


@contextmanager
def streaming(feed: str, seed: int, **more: str) -> Iterator[Stream]:
    with (
        tempfile.TemporaryDirectory() as folder,
        service_in_turns(Path(folder), map(site_body, SITES), seed=seed) as (service, turns),
    ):
        yield Stream(service, turns, feed, random.Random(seed), **more)


def run(steps: Sequence[str], feed: str, seed: int = 0, **more: str) -> None:
    """Apply one wiring after the other and look at the outputs and at the states."""
    with streaming(feed, seed, **more) as stream:
        for step in steps:
            change = stream.apply(step)
            assert change.state == "done", change
        check(stream, steps)


def run_with_cancels(steps: Sequence[str], feed: str, seed: int, then: str) -> None:
    """The same, but each change after the first is cancelled. Then it is applied again, or the one
    before it is, or only the last one."""
    with streaming(feed, seed) as stream:
        assert stream.apply(steps[0]).state == "done"
        for before, step in pairwise(steps):
            stream.cancel(step)
            for wiring in {"again": [step], "back": [before, step], "on": []}[then]:
                change = stream.apply(wiring)
                assert change.state == "done", change
        assert stream.apply(steps[-1]).state == "done"
        check(stream, steps)


def check(stream: Stream, steps: Sequence[str]) -> None:
    wirings = [parse(step) for step in steps]
    for topic, records in stream.read().items():
        written = [any(sink == topic for _, sink in wiring.values()) for wiring in wirings]
        check_output(topic, records, written, stream.sent)
    counts = stream.count_records()
    for name, (source, _) in wirings[0].items():
        if all(name in wiring and wiring[name][0] == source for wiring in wirings):
            assert counts[name] == stream.sent, (name, counts)
    assert stream.service.composition_views.plan("c").operations == ()


def check_output(topic: str, records: list[int], is_written: list[bool], sent: int) -> None:
    """No record comes twice; they are missing only where no job wrote the output."""
    twice = [n for n, count in Counter(records).items() if count > 1]
    assert not twice, (topic, "twice", twice)
    gaps = [(a, b) for a, b in pairwise(records) if b != a + 1]
    times = sum(1 for before, now in pairwise([False, *is_written]) if now and not before)
    assert len(gaps) < max(times, 1), (topic, "missing", gaps)
    assert not is_written[0] or records[0] == 0, (topic, "begins", records[0])
    assert not is_written[-1] or records[-1] == sent - 1, (topic, "ends", records[-1], sent)


@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=LONG), "exactly_once"])
@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize("case", CASES | TREES | STOPPED)
def test_each_output_changes_its_writer_at_one_record(case: str, feed: str, delivery: str) -> None:
    run((CASES | TREES | STOPPED)[case], feed, delivery=delivery)


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[str, ...]:
    """One to three of the jobs a to d on one link, each with another output, anew in each step."""

    def wiring() -> str:
        names = draw(st.lists(st.sampled_from("abcd"), unique=True, min_size=1, max_size=3))
        sinks = draw(st.permutations(OUTPUTS))
        return " ".join(f"{name}:m>{sink}" for name, sink in zip(names, sinks, strict=False))

    return tuple(wiring() for _ in range(draw(st.integers(2, 4))))


@st.composite
def trees(draw: st.DrawFn) -> tuple[str, ...]:
    """Two jobs on one link that lead to two others, and three that read any of these links: what
    they write is exchanged in each step, and sometimes what they read."""

    def wiring(sources: list[str]) -> str:
        inner = zip("ab", "mm", draw(st.permutations("pq")), strict=True)
        outer = zip("cde", sources, draw(st.permutations(OUTPUTS)), strict=True)
        return " ".join(f"{name}:{source}>{sink}" for name, source, sink in (*inner, *outer))

    any_sources = st.lists(st.sampled_from("mpq"), min_size=3, max_size=3)
    first, stay = draw(any_sources), draw(st.booleans())
    return tuple(wiring(first if stay else draw(any_sources)) for _ in range(3))


@PATIENT
@given(st.one_of(exchanges(), trees()), st.sampled_from(FEEDS), st.integers(0, 1000))
def test_each_output_changes_its_writer_at_one_record_whatever_is_exchanged(
    steps: tuple[str, ...], feed: str, seed: int
) -> None:
    run(steps, feed, seed)


@pytest.mark.parametrize("then", ["again", "back", "on"])
@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n * SEEDS, marks=LONG) for n in (1, 2, 3, 4, 5))]
)
def test_each_output_changes_its_writer_at_one_record_though_changes_are_cancelled(
    first: int, feed: str, then: str
) -> None:
    for seed in range(first, first + SEEDS):
        dice = random.Random(seed)
        inner, sources = ("a:m>p b:m>q ", dice.choices("mpq", k=3)) if seed % 2 else ("", "mmm")
        steps = [inner + make_exchange(dice, sources) for _ in range(3)]
        run_with_cancels(steps, feed, seed, then)


@pytest.mark.parametrize("then", ["again", "back"])
@pytest.mark.parametrize("feed", FEEDS)
def test_each_output_changes_its_writer_at_one_record_though_a_start_is_refused(
    feed: str, then: str
) -> None:
    for seed in range(SEEDS):
        dice = random.Random(seed)
        steps = [make_exchange(dice, "mmm") for _ in range(3)]
        with streaming(feed, seed) as stream:
            stream.apply(steps[0])
            for before, step in pairwise(steps):
                site = engine(dice.choice(SITES))
                site.refuse("submit", dice.randint(1, 2), REFUSED)
                stream.apply(step)
                site.forgive()
                for wiring in [step] if then == "again" else [before, step]:
                    assert stream.apply(wiring).state == "done"
            check(stream, steps)


def make_exchange(dice: random.Random, sources: Sequence[str]) -> str:
    """Three jobs that read these links, with their outputs in any order."""
    sinks = dice.sample(OUTPUTS, 3)
    jobs = zip("cde", sources, sinks, strict=True)
    return " ".join(f"{name}:{source}>{sink}" for name, source, sink in jobs)
