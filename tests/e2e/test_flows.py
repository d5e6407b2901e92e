"""Changes under flow: messages queued between jobs are never lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from speck.binding import Target, open_engine
from speck.model.values import JsonObject
from tests.e2e.harness import (
    Speck,
    actions,
    await_all,
    await_each_once,
    change_job,
    composition,
    flowing,
    job,
)
from tests.waiting import wait_for

SLOW = {"entry_class": "io.speck.jobs.Burn", "args": ["--cpu-us", "4000"]}


def test_removing_jobs_in_the_middle_drains_what_is_queued_between_them(speck: Speck) -> None:
    first = job("d-1", "edge-a", "d/in", "d/mid")
    idle = job("d-idle", "edge-a", "d/nothing", "d/mid")
    slow = job("d-slow", "edge-b", "d/mid", "d/end", source_site="edge-a", **SLOW)
    last = job("d-last", "edge-b", "d/end", "d/out")
    whole = composition(
        "drain",
        first,
        idle,
        slow,
        last,
        inputs=[("edge-a", "d/in"), ("edge-a", "d/nothing")],
        outputs=[("edge-b", "d/out", "e2e-drain")],
    )
    speck.apply(whole)
    source = speck.publisher("edge-a", "d/in")
    out = speck.reader("edge-b", "d/out", "e2e-drain")
    source.count(range(1, 501))
    await_taken(speck, 500, "d-1", "d/in")

    answer = speck.apply({**whole, "jobs": [last]}, force="true")

    assert actions(answer)["d-last"] == "unchanged"
    assert "drain" in [it["kind"] for it in answer["plan"]["operations"]]
    assert speck.running() == ["edge-b: d-last"]
    await_each_once(500, out)


@pytest.mark.long
def test_removing_a_whole_composition_drains_into_its_reader(speck: Speck) -> None:
    """Only what nobody reads is dropped, with consent, and counted to the last message."""
    speck.apply(
        composition(
            "behind",
            job("e-last", "cloud", "e/end", "e/out"),
            inputs=[("cloud", "e/end")],
            outputs=[("cloud", "e/out", "e2e-behind")],
        )
    )
    speck.apply(
        composition(
            "before",
            job("e-1", "edge-a", "e/in", "e/mid"),
            job("e-slow", "edge-a", "e/mid", "e/end", sink_site="cloud", **SLOW),
            inputs=[("edge-a", "e/in")],
            outputs=[("cloud", "e/end", "e2e-unread")],
        )
    )
    before = speck.job("e-last")["engine_job_id"]
    source = speck.publisher("edge-a", "e/in")
    out = speck.reader("cloud", "e/out", "e2e-behind")
    source.count(range(1, 501))
    await_taken(speck, 500, "e-1", "e/in")
    # before anything is sent to the reader outside, nothing waits for it
    look = ("DELETE", "/compositions/before?dry_run=true", 200)
    wait_for(lambda: bool(speck.call(*look)["plan"]["queues"]), "a queue for e2e-unread")

    refusal = speck.call("DELETE", "/compositions/before", 409)
    assert [queue["reader"] for queue in refusal["queues"]] == ["e2e-unread"]
    speck.delete("before", drains=True)

    await_each_once(500, out)
    dropped = speck.call("GET", "/changes")["changes"][0]["dropped"]
    assert [(each["reader"], each["messages"]) for each in dropped] == [("e2e-unread", 500)]
    assert speck.job("e-last")["engine_job_id"] == before
    assert speck.running() == ["cloud: e-last"]


@pytest.mark.long
def test_what_a_removed_composition_still_has_to_say_reaches_its_output(speck: Speck) -> None:
    farewell = composition(
        "farewell",
        job("f-1", "edge-a", "f/in", "f/mid"),
        job("f-slow", "edge-b", "f/mid", "f/out", source_site="edge-a", **SLOW),
        inputs=[("edge-a", "f/in")],
        outputs=[("edge-b", "f/out", "e2e-farewell")],
    )
    speck.apply(farewell)
    speck.publisher("edge-a", "f/in").count(range(1, 501))
    out = speck.reader("edge-b", "f/out", "e2e-farewell")
    await_taken(speck, 500, "f-1", "f/in")

    # the reader outside keeps its queue until the composition itself is removed
    speck.apply({**farewell, "jobs": []}, force="true")
    await_each_once(500, out)
    speck.delete("farewell")

    # the release threw our reader out, and its client came back under the same id: not speck's
    speck.sessions.discard((speck.broker("edge-b"), "e2e-farewell"))


@pytest.mark.long
def test_a_chain_turned_round_under_flow(speck: Speck) -> None:
    """From in -> x -> y -> out to in -> y -> x -> out; the publisher numbers nothing, so what both
    jobs read of `in` for a moment repeats."""
    ends = {
        "inputs": [("edge-a", "t/in")],
        "outputs": [("edge-b", "t/out", "e2e-turn")],
    }
    there = composition(
        "turn",
        job("t-x", "edge-a", "t/in", "t/mid"),
        job("t-y", "edge-b", "t/mid", "t/out", source_site="edge-a"),
        **ends,
    )
    back = composition(
        "turn",
        job("t-y", "edge-b", "t/in", "t/mid", source_site="edge-a", sink_site="edge-a"),
        job("t-x", "edge-a", "t/mid", "t/out", sink_site="edge-b"),
        **ends,
    )
    speck.apply(there)
    out = speck.reader("edge-b", "t/out", "e2e-turn")
    with flowing(speck.publisher("edge-a", "t/in")) as flow:
        assert actions(speck.apply(back)) == {"t-x": "update", "t-y": "update"}
        flow.go_on()
        assert actions(speck.apply(there)) == {"t-x": "update", "t-y": "update"}
        flow.go_on()
        count = flow.end()
    await_all(count, out)


@pytest.mark.long
def test_a_link_that_moves_about_under_flow(speck: Speck) -> None:
    """To another topic of the same broker, to another broker, and back: each message once."""

    def over(site: str, topic: str) -> JsonObject:
        return composition(
            "about",
            job("v-1", "edge-a", "v/in", topic, sink_site=site),
            job("v-2", "edge-b", topic, "v/out", source_site=site, sink_site="edge-a"),
            inputs=[("edge-a", "v/in")],
            outputs=[("edge-a", "v/out", "e2e-about")],
        )

    places = [("edge-a", "v/1"), ("edge-a", "v/2"), ("cloud", "v/2"), ("edge-a", "v/1")]
    speck.apply(over(*places[0]))
    out = speck.reader("edge-a", "v/out", "e2e-about")
    with flowing(speck.publisher("edge-a", "v/in")) as flow:
        for place in places[1:]:
            assert actions(speck.apply(over(*place))) == {"v-1": "update", "v-2": "update"}
            flow.go_on()
        count = flow.end()
    await_each_once(count, out)


def test_a_rewired_job_with_nothing_to_say_does_not_hold_up_its_reader(speck: Speck) -> None:
    def over(topic: str, reader: str) -> JsonObject:
        return composition(
            "quiet",
            job("n-1", "edge-a", "n/in", topic),
            job(reader, "edge-a", topic, "n/out"),
            inputs=[("edge-a", "n/in")],
            outputs=[("edge-a", "n/out", "e2e-quiet")],
        )

    speck.apply(over("n/1", "n-2"))
    out = speck.reader("edge-a", "n/out", "e2e-quiet")
    speck.publisher("edge-a", "n/in").count(range(1, 101))
    await_each_once(100, out)
    await_source_told_as_connected(speck, "n-1")
    speck.apply(over("n/2", "n-3"))
    # n-3 has never heard the 100 numbers that n-1 gave out on n/1, and must not wait for them
    speck.apply({**over("n/2", "n-3"), "jobs": []}, force="true")
    assert speck.running() == []


def await_source_told_as_connected(speck: Speck, job_name: str) -> None:
    """By the name that starts which took long, and drains, go by; a committer that has nothing to
    send tells 0 meanwhile."""
    where = speck.job(job_name)
    site = next(site for site in speck.fog.sites() if site.name == where["site"])
    engine = open_engine("flink", Target(site.engine_address))
    figures = wait_for(lambda: engine.metrics(where["engine_job_id"]), "figures")
    assert figures["Source__mqtt-source.connected"] == 1, figures
    assert engine.is_connected(where["engine_job_id"]) is True


@pytest.mark.long
def test_what_a_producer_sent_before_its_source_changed_is_drained_too(speck: Speck) -> None:
    last = job("g-last", "cloud", "g/end", "g/out")

    def fed_by(topic: str) -> JsonObject:
        return composition(
            "source",
            job("g-1", "edge-a", topic, "g/mid"),
            job("g-slow", "edge-a", "g/mid", "g/end", sink_site="cloud", **SLOW),
            last,
            inputs=[("edge-a", "g/in"), ("edge-a", "g/other")],
            outputs=[("cloud", "g/out", "e2e-source")],
        )

    speck.apply(fed_by("g/in"))
    out = speck.reader("cloud", "g/out", "e2e-source")
    speck.publisher("edge-a", "g/in").count(range(1, 1501))
    await_taken(speck, 1500, "g-1", "g/in")
    speck.apply(fed_by("g/other"))
    speck.apply({**fed_by("g/other"), "jobs": [last]}, force="true")
    await_each_once(1500, out)


@pytest.mark.long
def test_two_compositions_at_once_do_not_disturb_each_other(speck: Speck) -> None:
    def chain(name: str, site: str) -> JsonObject:
        return composition(
            name,
            job(f"{name}-1", site, f"{name}/in", f"{name}/mid", sink_site="cloud"),
            job(f"{name}-2", "cloud", f"{name}/mid", f"{name}/out"),
            inputs=[(site, f"{name}/in")],
            outputs=[("cloud", f"{name}/out", f"e2e-{name}")],
        )

    both = [chain("one", "edge-a"), chain("two", "edge-b")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(speck.apply, both))
        outs = [speck.reader("cloud", f"{it['name']}/out", f"e2e-{it['name']}") for it in both]
        with (
            flowing(speck.publisher("edge-a", "one/in")) as one,
            flowing(speck.publisher("edge-b", "two/in")) as two,
        ):
            list(
                pool.map(
                    speck.apply,
                    [change_job(it, f"{it['name']}-2", args=["--note", "2"]) for it in both],
                )
            )
            before = speck.job("two-1")["engine_job_id"], speck.job("two-2")["engine_job_id"]
            speck.apply(change_job(both[0], "one-1", site="edge-c", source_site="edge-a"))
            one.go_on()
            two.go_on()
            counts = one.end(), two.end()
    assert (speck.job("two-1")["engine_job_id"], speck.job("two-2")["engine_job_id"]) == before
    for count, out in zip(counts, outs, strict=True):
        await_each_once(count, out)


def test_a_topic_that_another_composition_reads(speck: Speck) -> None:
    """The producer goes on before there is a reader, and loses nothing once there is one."""
    maker = composition(
        "maker",
        job("k-1", "edge-a", "k/in", "k/shared"),
        inputs=[("edge-a", "k/in")],
    )
    user = composition(
        "user",
        job("k-2", "edge-b", "k/shared", "k/out", source_site="edge-a"),
        inputs=[("edge-a", "k/shared")],
        outputs=[("edge-b", "k/out", "e2e-user")],
    )
    speck.apply(maker)
    source = speck.publisher("edge-a", "k/in")
    source.send({"n": 0})  # nobody reads the topic yet: no reason to stand still
    await_taken(speck, 1, "k-1", "k/in")

    speck.apply(user)
    out = speck.reader("edge-b", "k/out", "e2e-user")
    source.count(range(1, 101))
    await_each_once(100, out)

    speck.apply(change_job(maker, "k-1", args=["--note", "2"]))
    source.count(range(101, 151))
    await_each_once(150, out)


def test_a_reader_that_leaves_does_not_hold_up_the_producer(speck: Speck) -> None:
    maker = composition("maker", job("l-1", "edge-a", "l/in", "l/shared"))
    user = composition("user", job("l-2", "edge-b", "l/shared", "l/out", source_site="edge-a"))
    speck.apply(user)
    speck.apply(maker)
    producer = speck.job("l-1")["engine_job_id"]
    speck.delete("user")
    speck.publisher("edge-a", "l/in").count(range(1, 11))
    await_taken(speck, 10, "l-1", "l/in")
    assert speck.job("l-1")["engine_job_id"] == producer


def await_taken(speck: Speck, count: int, job_name: str, topic: str) -> None:
    wait_for(
        lambda: speck.count_taken(job_name, "edge-a", topic) >= count,
        f"{job_name} to take {count} messages",
    )
