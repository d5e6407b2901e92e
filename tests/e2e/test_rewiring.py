"""Links change hands under flow: every record comes out once, and no message is sent twice.

A publisher numbers 200 records a second; at the far end an outside reader counts, which drops
nothing by the connector's stamps (`Count.dropped` is what it would have dropped).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from speck.fog.checker import Checker
from speck.fog.feed import Feed
from speck.fog.outputs import OutputReader
from speck.model import JsonObject
from tests.e2e.harness import Speck, actions, changed, composition, job, numbers_of, wait_for
from tests.e2e.test_listings import listing

RATE = 200.0
NO_STATS = ["--site", "A", "--streams", "A1", "--window", "soon"]  # main throws

both_deliveries = pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])


def chain(name: str, delivery: str, line: str) -> JsonObject:
    """A composition of one line: `site/topic > job@site > site/topic > ... > site/topic`.

    Names of jobs and topics begin with the composition's.
    """
    words = line.split(" > ")
    places = [(site, f"{name}/{topic}") for site, topic in (it.split("/") for it in words[::2])]
    jobs = []
    for at, word in enumerate(words[1::2]):
        (source_site, source), (sink_site, sink) = places[at], places[at + 1]
        job_name, site = word.split("@")
        more = {"source_site": source_site, "sink_site": sink_site, "delivery": delivery}
        jobs.append(job(f"{name}-{job_name}", site, source, sink, **more))
    return composition(name, *jobs, inputs=places[:1], outputs=[(*places[-1], f"e2e-{name}")])


@dataclass
class Stream:
    """What is published to a composition's input, and what has come at its output."""

    speck: Speck
    composition: JsonObject
    feed: Feed
    out: Checker

    def go_on(self) -> None:
        """Wait until something that is published from now on has come out."""
        self.out.await_past(self.feed.sent)
        self.feed.check()

    def assert_each_once(self) -> None:
        """End the flow and all jobs; every number must have come once, and no stamp twice."""
        published = self.feed.end()
        self.out.await_all(published)
        self.speck.apply({**self.composition, "jobs": []}, force="true")
        output = self.composition["outputs"][0]
        # nobody else writes any more: what comes twice has come before this one
        self.speck.publisher(output["site"], output["topic"]).count([published + 1])
        self.out.await_past(published)
        count = self.out.count(published + 1)
        assert (count.lost, count.repeated, count.dropped, count.stray) == (0, 0, 0, 0), count


@contextmanager
def streaming(speck: Speck, description: JsonObject) -> Iterator[Stream]:
    """Apply the composition and send numbers through it, the first of which have come out."""
    speck.apply(description)
    start, end = description["inputs"][0], description["outputs"][0]
    run = f"rewiring-{description['name']}"
    with (
        Checker(speck.broker(end["site"]), end["topic"], end["client_id"]) as out,
        Feed(speck.broker(start["site"]), start["topic"], rate=RATE, run=run) as feed,
    ):
        stream = Stream(speck, description, feed, out)
        stream.go_on()
        yield stream


@both_deliveries
def test_a_job_that_is_inserted_into_a_link_and_taken_out_again(
    speck: Speck, delivery: str
) -> None:
    """The link's producer goes on: its reader changes while it is fed."""
    short = chain("ins", delivery, "edge-a/in > a@edge-a > edge-a/t > b@edge-b > edge-b/out")
    long = chain(
        "ins",
        delivery,
        "edge-a/in > a@edge-a > edge-a/t > c@cloud > cloud/t2 > b@edge-b > edge-b/out",
    )
    with streaming(speck, short) as stream:
        producer = speck.job("ins-a")["engine_job_id"]
        assert actions(speck.apply(long))["ins-a"] == "unchanged"
        stream.go_on()
        assert actions(speck.apply(short))["ins-a"] == "unchanged"
        stream.go_on()
        assert speck.job("ins-a")["engine_job_id"] == producer
        stream.assert_each_once()


@both_deliveries
def test_links_that_are_used_again_in_another_role(speck: Speck, delivery: str) -> None:
    """`b -> m2 -> tail` becomes `a -> m2 -> c`: producers and readers of both links change."""
    before = chain(
        "role",
        delivery,
        "edge-a/in > a@edge-a > edge-a/m1 > b@edge-b > cloud/m2 > tail@cloud > cloud/out",
    )
    after = chain(
        "role",
        delivery,
        "edge-a/in > a@edge-a > cloud/m2 > c@edge-b > edge-a/m1 > tail@cloud > cloud/out",
    )
    with streaming(speck, before) as stream:
        speck.apply(after)
        stream.go_on()
        speck.apply(before)
        stream.go_on()
        stream.assert_each_once()


@both_deliveries
def test_two_jobs_of_a_chain_that_swap_their_places(speck: Speck, delivery: str) -> None:
    there = chain("swap", delivery, "edge-a/in > x@edge-a > edge-a/mid > y@edge-b > edge-b/out")
    back = chain("swap", delivery, "edge-a/in > y@edge-b > edge-a/mid > x@edge-a > edge-b/out")
    with streaming(speck, there) as stream:
        assert actions(speck.apply(back)) == {"swap-x": "update", "swap-y": "update"}
        stream.go_on()
        assert actions(speck.apply(there)) == {"swap-x": "update", "swap-y": "update"}
        stream.go_on()
        stream.assert_each_once()


def test_from_listing_1_1_to_1_2_and_back(speck: Speck) -> None:
    """Both listings have the path from T-1 through A: each of its records comes once, at one of
    the two places of the output. The path from T-2 through B is gone meanwhile and what waits for
    B is abandoned, as the plan says: of its records none comes twice."""
    there, elsewhere = exactly_once(listing(speck, "1.1")), exactly_once(listing(speck, "1.2"))
    speck.apply(there)
    outs = [speck.reader(site, "T-out", f"e2e-{site}") for site in ("cloud", "edge-a")]
    with (
        Feed(speck.broker("edge-a"), "T-1", rate=RATE, run="rewiring-t1") as through_a,
        Feed(speck.broker("edge-b"), "T-2", rate=RATE, run="rewiring-t2", pad=1) as through_b,
    ):
        await_past(through_a, outs, "T-1")
        await_past(through_b, outs, "T-2")
        assert actions(speck.apply(elsewhere))["B"] == "remove"
        await_past(through_a, outs, "T-1")
        assert actions(speck.apply(there))["B"] == "add"
        await_past(through_a, outs, "T-1")
        await_past(through_b, outs, "T-2")
        wanted = set(range(1, through_a.end() + 1))
        through_b.end()
    wait_for("all of T-1", lambda: wanted <= set(came(outs, "T-1")))
    speck.apply({**there, "jobs": []}, force="true")
    for site, out in zip(("cloud", "edge-a"), outs, strict=True):
        # nobody else writes any more: what comes twice has come before this one
        speck.publisher(site, "T-out").count([0])
        wait_for(f"the last message at {site}", lambda out=out: 0 in numbers_of(out))

    assert sorted(n for n in came(outs, "T-1") if n) == sorted(wanted)
    assert repeated(came(outs, "T-2")) == []


def exactly_once(description: JsonObject) -> JsonObject:
    jobs = [{**it, "delivery": "exactly_once"} for it in description["jobs"]]
    return {**description, "jobs": jobs}


def came(outs: Sequence[OutputReader], path: str) -> list[int]:
    """Which numbers of a feed have come; the second one's records are told by their `pad`."""
    records = [record for out in outs for record in out.records()]
    return [int(it["n"]) for it in records if ("pad" in it) == (path == "T-2")]


def repeated(numbers: Sequence[int]) -> list[int]:
    return sorted(number for number, times in Counter(numbers).items() if times > 1)


def await_past(feed: Feed, outs: Sequence[OutputReader], path: str) -> None:
    """Wait until something that is published from now on has come out."""
    sent = feed.sent
    wait_for(f"a number of {path} above {sent}", lambda: max(came(outs, path), default=0) > sent)


def test_a_rollback_after_a_change_that_failed_half_way(speck: Speck) -> None:
    """The job that was to be inserted does not start, when its reader has left the link."""
    short = chain("roll", "exactly_once", "edge-a/in > a@edge-a > edge-a/t > b@edge-b > edge-b/out")
    long = chain(
        "roll",
        "exactly_once",
        "edge-a/in > a@edge-a > edge-a/t > c@cloud > cloud/t2 > b@edge-b > edge-b/out",
    )
    broken = changed(long, "roll-c", entry_class="io.speck.jobs.LocalStats", args=NO_STATS)
    with streaming(speck, short) as stream:
        answer = speck.apply(broken, state='failed')
        change = speck.call("GET", f"/changes/{answer['change']}")
        print(answer["plan"]["text"])
        print([(it["kind"], it["job_name"], it["state"]) for it in change["operations"]])

        back = speck.call(
            "POST", "/compositions/roll/rollback", json={"revision": 1}, params={"wait": 120}
        )
        assert back["state"] == "done", back
        print(back["plan"]["text"])
        stream.go_on()
        stream.assert_each_once()
