"""Changes under flow: what is queued between jobs is never lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from speck.model import JsonObject
from tests.e2e.harness import (
    Speck,
    actions,
    await_all,
    await_each_once,
    changed,
    composition,
    flowing,
    job,
    wait_for,
)

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

    answer = speck.apply({**whole, "jobs": [last]})

    assert actions(answer)["d-last"] == "unchanged"
    assert "drain" in [it["kind"] for it in answer["plan"]["operations"]]
    assert speck.running() == ["edge-b: d-last"]
    await_each_once(500, out)


def test_removing_a_whole_composition_drains_into_its_reader(speck: Speck) -> None:
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
        )
    )
    before = speck.job("e-last")["engine_job_id"]
    source = speck.publisher("edge-a", "e/in")
    out = speck.reader("cloud", "e/out", "e2e-behind")
    source.count(range(1, 501))
    await_taken(speck, 500, "e-1", "e/in")

    speck.delete("before")

    await_each_once(500, out)
    assert speck.job("e-last")["engine_job_id"] == before
    assert speck.running() == ["cloud: e-last"]


def test_a_chain_turned_round_under_flow(speck: Speck) -> None:
    """From in -> x -> y -> out to in -> y -> x -> out; what both read for a moment repeats."""
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
                    [changed(it, f"{it['name']}-2", args=["--note", "2"]) for it in both],
                )
            )
            before = speck.job("two-1")["engine_job_id"], speck.job("two-2")["engine_job_id"]
            speck.apply(changed(both[0], "one-1", site="edge-c", source_site="edge-a"))
            one.go_on()
            two.go_on()
            counts = one.end(), two.end()
    assert (speck.job("two-1")["engine_job_id"], speck.job("two-2")["engine_job_id"]) == before
    for count, out in zip(counts, outs, strict=True):
        await_each_once(count, out)


def test_a_topic_that_another_composition_reads(speck: Speck) -> None:
    """Its reader comes and goes; the producer is neither restarted nor held up."""
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
    producer = speck.job("k-1")["engine_job_id"]
    source.send({"n": 0})  # nobody reads the topic yet: no reason to stand still
    await_taken(speck, 1, "k-1", "k/in")

    speck.apply(user)
    out = speck.reader("edge-b", "k/out", "e2e-user")
    source.count(range(1, 101))
    await_each_once(100, out)

    speck.apply(changed(maker, "k-1", args=["--note", "2"]))
    source.count(range(101, 151))
    await_each_once(150, out)
    producer = speck.job("k-1")["engine_job_id"]

    speck.stack.close()
    speck.delete("user")
    again = speck.publisher("edge-a", "k/in")
    again.send({"n": 0})
    await_taken(speck, 152, "k-1", "k/in")
    assert speck.job("k-1")["engine_job_id"] == producer
    assert speck.job("k-1")["state"] == "running"


def await_taken(speck: Speck, count: int, job_name: str, topic: str) -> None:
    wait_for(
        f"{job_name} to take {count} messages",
        lambda: speck.taken(job_name, "edge-a", topic) >= count,
    )
