"""Links change hands under flow: every record comes out once, and no message is sent twice.

A publisher numbers 200 records a second; at the far end an outside reader counts, which drops
nothing by the connector's stamps (`Count.dropped` is what it would have dropped).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from bench.instruments.checker import Checker
from bench.instruments.feed import Feed
from speck.fog.outputs import OutputReader
from speck.model.values import JsonObject
from tests.e2e.harness import Speck, actions, change_job, composition, job
from tests.e2e.test_listings import listing
from tests.waiting import wait_for

RATE = 200.0
PAD = 1  # byte
SHORT = "edge-a/in > a@edge-a > edge-a/t > b@edge-b > edge-b/out"
LONG = "edge-a/in > a@edge-a > edge-a/t > c@cloud > cloud/t2 > b@edge-b > edge-b/out"
BEFORE = "edge-a/in > a@edge-a > edge-a/m1 > b@edge-b > cloud/m2 > tail@cloud > cloud/out"
AFTER = "edge-a/in > a@edge-a > cloud/m2 > c@edge-b > edge-a/m1 > tail@cloud > cloud/out"
THIRD = "edge-a/in > b@edge-b > cloud/m3 > tail@cloud > cloud/out"
NO_STATS = ["--site", "A", "--streams", "A1", "--window", "soon"]  # main throws

both_deliveries = pytest.mark.parametrize(
    "delivery", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.long)]
)


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
    """The messages published to a composition's input, and those received at its output."""

    speck: Speck
    composition: JsonObject
    revision: int
    feed: Feed
    out: Checker

    def go_on(self) -> None:
        """Wait until something that is published from now on has come out."""
        self.out.await_past(self.feed.sent)
        self.feed.check()

    def publish_on(self) -> None:
        """Wait until the brokers have taken another 100 records, wherever they go."""
        await_acked(self.feed, 100)

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
    revision = speck.apply(description)["revision"]
    start, end = description["inputs"][0], description["outputs"][0]
    run = f"rewiring-{description['name']}"
    with (
        Checker(speck.broker(end["site"]), end["topic"], end["client_id"]) as out,
        Feed(speck.broker(start["site"]), start["topic"], rate=RATE, run=run) as feed,
    ):
        stream = Stream(speck, description, revision, feed, out)
        stream.go_on()
        yield stream


@both_deliveries
def test_a_job_that_is_inserted_into_a_link_and_taken_out_again(
    speck: Speck, delivery: str
) -> None:
    """The link's producer goes on: its reader changes while it is fed."""
    short, long = chain("ins", delivery, SHORT), chain("ins", delivery, LONG)
    with streaming(speck, short) as stream:
        producer = speck.job("ins-a")["engine_job_id"]
        speck.apply(long)
        stream.publish_on()
        speck.apply(short)
        assert speck.job("ins-a")["engine_job_id"] == producer
        stream.assert_each_once()


@pytest.mark.long
@both_deliveries
def test_links_that_are_used_again_in_another_role(speck: Speck, delivery: str) -> None:
    """`b -> m2 -> tail` becomes `a -> m2 -> c`: producers and readers of both links change."""
    before, after = chain("role", delivery, BEFORE), chain("role", delivery, AFTER)
    with streaming(speck, before) as stream:
        speck.apply(after)
        stream.publish_on()
        speck.apply(before)
        stream.assert_each_once()


@pytest.mark.long
def test_two_jobs_of_a_chain_that_swap_their_places(speck: Speck) -> None:
    mode = "exactly_once"
    there = chain("swap", mode, "edge-a/in > x@edge-a > edge-a/mid > y@edge-b > edge-b/out")
    back = chain("swap", mode, "edge-a/in > y@edge-b > edge-a/mid > x@edge-a > edge-b/out")
    with streaming(speck, there) as stream:
        assert actions(speck.apply(back)) == {"swap-x": "update", "swap-y": "update"}
        stream.publish_on()
        assert actions(speck.apply(there)) == {"swap-x": "update", "swap-y": "update"}
        stream.assert_each_once()


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(SHORT, LONG, id="inserted"),
        pytest.param(BEFORE, AFTER, id="another-role"),
    ],
)
@pytest.mark.long  # below it is the first stage of another change
def test_a_rollback_after_a_change_that_failed_half_way(
    speck: Speck, before: str, after: str
) -> None:
    """The new job `c` does not start; the others are already where `after` has them."""
    desired = chain("roll", "exactly_once", after)
    broken = change_job(desired, "roll-c", entry_class="io.speck.jobs.LocalStats", args=NO_STATS)
    with streaming(speck, chain("roll", "exactly_once", before)) as stream:
        answer = speck.apply(broken, state="failed")
        operations = speck.call("GET", f"/changes/{answer['change']}")["operations"]
        states = {(it["kind"], it["job_name"]): it["state"] for it in operations}
        assert states["stop", "roll-b"] == "done"
        assert states["start", "roll-c"] == "failed"
        stream.publish_on()

        path, to = "/compositions/roll/rollback", {"revision": stream.revision}
        back = speck.call("POST", path, json=to, params={"wait": 120})

        assert back["state"] == "done", back
        stream.assert_each_once()


def test_a_third_wiring_after_a_change_that_failed_half_way(speck: Speck) -> None:
    """What ran before comes back first."""
    mode = "exactly_once"
    broken = chain("third", mode, AFTER)
    broken = change_job(broken, "third-c", entry_class="io.speck.jobs.LocalStats", args=NO_STATS)
    with streaming(speck, chain("third", mode, BEFORE)) as stream:
        speck.apply(broken, state="failed")
        stream.publish_on()
        answer = speck.apply(chain("third", mode, THIRD), force="true")
        assert answer["plan"]["reverts_to"] == stream.revision
        stream.assert_each_once()


@pytest.mark.long
def test_from_listing_1_1_to_1_2_and_back(speck: Speck) -> None:
    """Both listings have the path from T-1 through A: each of its records comes once, at one of
    the two places of the output. The path from T-2 through B is gone meanwhile and what waits for
    B is abandoned, as the plan says: of its records none comes twice."""
    there, elsewhere = exactly_once(listing(speck, "1.1")), exactly_once(listing(speck, "1.2"))
    speck.apply(there)
    outs = {site: speck.reader(site, "T-D-total", f"e2e-{site}") for site in ("cloud", "edge-a")}
    with (
        Feed(speck.broker("edge-a"), "T-1", rate=RATE, run="rewiring-t1") as t1,
        Feed(speck.broker("edge-b"), "T-2", rate=RATE, run="rewiring-t2", pad=PAD) as t2,
    ):
        await_past(t1.sent, lambda: list_received(outs, "T-1"))
        await_past(t2.sent, lambda: list_received(outs, "T-2"))
        assert actions(speck.apply(elsewhere))["B"] == "remove"
        await_acked(t1, 100)
        assert actions(speck.apply(there))["B"] == "add"
        await_past(t2.sent, lambda: list_received(outs, "T-2"))
        expected = range(1, t1.end() + 1)
        t2.end()
    wait_for(lambda: set(expected) <= set(list_received(outs, "T-1")), "all of T-1")
    speck.apply({**there, "jobs": []}, force="true")
    for site in outs:
        speck.publisher(site, "T-D-total").send({"n": 0, "site": site})
    wait_for(
        lambda: list_received(outs, "T-1").count(0) == len(outs), "the last message of each place"
    )

    assert sorted(list_received(outs, "T-1")) == [0, 0, *expected]
    assert [n for n, times in Counter(list_received(outs, "T-2")).items() if times > 1] == []


def await_acked(feed: Feed, more: int) -> None:
    """Wait until a broker has taken so many more."""
    expected = feed.acked + more
    wait_for(lambda: feed.acked >= expected, f"{more} more records")


def exactly_once(description: JsonObject) -> JsonObject:
    jobs = [{**it, "delivery": "exactly_once"} for it in description["jobs"]]
    return {**description, "jobs": jobs}


def list_received(outs: Mapping[str, OutputReader], path: str) -> list[int]:
    """The numbers of one path that have come at all places, repeats too; T-2's have a `pad`."""
    records = [record for out in outs.values() for record in out.records()]
    return [int(it["n"]) for it in records if ("pad" in it) == (path == "T-2")]


def await_past(number: int, look: Callable[[], Sequence[int]]) -> None:
    wait_for(lambda: max(look(), default=0) > number, f"a number above {number}")
