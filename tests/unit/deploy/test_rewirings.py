"""Changes of whole compositions with branches, with starts that fail, cancels and rollbacks: what
each output gets, over the memory binders. Each is a case that lost or repeated records once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from binders.memory import World
from speck.errors import EngineRefusedError, QueuesError
from speck.model.change import ChangeReport
from speck.model.values import JsonObject
from speck.service import Service
from tests.service_helpers import DONE, broker, composition, engine, job_body

REFUSED = EngineRefusedError("cannot start it: no")
EDGE = {"source_site": "edge-a", "sink_site": "edge-a"}


def job(name: str, source: str, sink: str, site: str = "edge-a") -> JsonObject:
    """Its links are at edge-a, wherever it runs."""
    return {**job_body(name, source_topic=source, sink_topic=sink), "site": site, **EDGE}


class Rewired:
    """A composition over two sites whose input is fed at every call to an engine."""

    KINDS = ("stop", "submit", "save_progress", "cancel")

    def __init__(self, service: Service, *outputs: str) -> None:
        self.service = service
        self.outputs = outputs
        self.sent = 0
        self.cancel_at = 0
        self._submits = 0

    def apply(
        self, *jobs: JsonObject, flow: bool = True, drop_queues: bool = False
    ) -> ChangeReport:
        outputs = [
            {"site": "edge-a", "topic": topic, "client_id": f"out-{topic}"}
            for topic in self.outputs
        ]
        for name in ("edge-a", "cloud"):
            engine(name).before = self._called if flow else None
        request = replace(DONE, force=True, drop_queues=drop_queues)
        body = self.service.compositions.apply(composition(*jobs, outputs=outputs), request)
        for name in ("edge-a", "cloud"):
            engine(name).before = None
        self.send(2)
        return self.service.changes.get(body.change)

    def _called(self, kind: str, subject: str) -> None:
        if kind == "submit":
            self._submits += 1
            if self._submits == self.cancel_at:
                for each in self.service.changes.all_under_way():
                    assert each.execution is not None
                    each.execution.cancel()
        if kind in self.KINDS and self.sent:  # what is sent before there is a reader is for nobody
            self.send(1)

    def send(self, count: int) -> None:
        payloads = [b"%d" % (self.sent + n) for n in range(count)]
        self.sent += count
        World.current().feed("tcp://edge-a.test:1883", "in", payloads, "sensor")
        World.current().pump()

    def wrong(self) -> dict[str, tuple[list[int], list[int]]]:
        """The lost and repeated messages, by output."""
        World.current().pump()
        faults = {}
        for topic in self.outputs:
            payloads = Counter(int(payload) for payload in broker("edge-a").take(f"out-{topic}"))
            lost = [n for n in range(self.sent) if n not in payloads]
            twice = sorted(n for n, count in payloads.items() if count > 1)
            if lost or twice:
                faults[topic] = (lost, twice)
        return faults


P, R, S = job("P", "in", "x"), job("R", "x", "y"), job("S", "x", "z")
FAR = "cloud"


@pytest.mark.parametrize(
    "new",
    [
        (P, job("M", "x", "w"), job("R", "w", "y"), job("S", "w", "z")),
        (P, job("M", "x", "w"), job("R", "w", "y"), job("T", "w", "z")),
        (
            P,
            job("M", "x", "w"),
            job("N", "x", "v"),
            job("S", "w", "z"),
            job("R", "v", "y"),
        ),
        (P, job("R", "x", "y"), job("S", "y", "z")),
    ],
    ids=["inserted", "inserted and replaced", "crossed", "one reads what the other writes"],
)
def test_readers_of_a_branch_leave_a_link_at_the_same_record(
    service: Service, new: tuple[JsonObject, ...]
) -> None:
    rewired = Rewired(service, "y", "z")
    for jobs in ((P, R, S), new, (P, R, S)):
        assert rewired.apply(*jobs).state == "done"
    assert rewired.wrong() == {}
    assert service.composition_views.plan("c").operations == ()


def test_readers_that_are_replaced_one_by_one_leave_the_producer_alone(service: Service) -> None:
    rewired = Rewired(service, "y", "z")
    rewired.apply(P, R, S)
    change = rewired.apply(P, job("R2", "x", "y"), job("S2", "x", "z"))
    assert "P" not in {each.job_name for each in change.operations}
    assert rewired.wrong() == {}


def test_a_reader_that_was_drained_and_left_does_not_read_its_old_link_again(
    service: Service,
) -> None:
    """The change is cancelled after S has left x, where another producer writes by now."""
    rewired = Rewired(service, "x", "z")
    rewired.apply(job("D", "in", "x"), job("S", "x", "z"), flow=False)
    new = (job("C", "in", "w"), job("D", "w", "x"), job("S", "w", "z"))
    rewired.cancel_at = 3
    assert rewired.apply(*new).state == "cancelled"
    rewired.send(3)
    rewired.cancel_at = 0
    again = rewired.apply(*new)
    assert again.state == "done"
    assert rewired.wrong() == {}


def test_a_job_does_not_come_back_to_a_link_that_a_new_producer_feeds(service: Service) -> None:
    rewired = Rewired(service, "v", "z")
    rewired.apply(job("E", "in", "y"), job("D", "y", "v"), job("S", "y", "z", FAR), flow=False)
    new = (job("B", "in", "x"), job("A", "x", "y"), job("D", "y", "v"), job("S", "x", "z", FAR))
    engine(FAR).refuse("submit", 1, REFUSED)
    assert rewired.apply(*new).state == "failed"
    rewired.send(4)
    assert rewired.apply(*new).state == "done"
    assert rewired.wrong() == {}


def test_a_rollback_after_a_failed_start_closes_no_circle(service: Service) -> None:
    """D (s to t) has stopped and is started again, while E (t to s) still runs."""
    rewired = Rewired(service, "o")
    old = (job("P", "in", "s"), job("D", "s", "t"), job("R", "t", "o", FAR))
    rewired.apply(*old, flow=False)
    engine(FAR).refuse("submit", 2, REFUSED)
    new = (job("P", "in", "t"), job("E", "t", "s"), job("R", "s", "o", FAR))
    assert rewired.apply(*new).state == "failed"
    engine(FAR).forgive()
    assert rewired.apply(*old).state == "done"
    assert rewired.sent < 100
    twice = rewired.wrong().get("o", ([], []))[1]
    assert twice == []


def test_what_waits_for_a_stopped_job_that_is_rewired_is_read_once_that_closes_no_circle(
    service: Service,
) -> None:
    """The last reader of w, which A wrote when it ran, is gone; where A is to write next leads
    back to y, where messages wait for it, until C is removed."""
    rewired = Rewired(service, "out")
    _stop_before_out(rewired)
    change = rewired.apply(job("A", "in", "x"), job("B", "x", "out"))
    assert change.state == "done"
    assert broker("edge-a").unread == {}
    assert rewired.wrong() == {}
    assert service.composition_views.plan("c").operations == ()


def test_what_waits_for_a_stopped_job_is_dropped_with_consent_where_reading_it_closes_a_circle(
    service: Service,
) -> None:
    rewired = Rewired(service, "out")
    _stop_before_out(rewired)
    circle = job("A", "in", "x"), job("C", "x", "y"), job("B", "y", "out")
    with pytest.raises(
        QueuesError, match=r"drops the queue of A at edge-a/y \(at most \d+ messages"
    ):
        rewired.apply(*circle)
    change = rewired.apply(*circle, drop_queues=True)
    assert change.state == "done"
    assert broker("edge-a").unread == {}
    lost, twice = rewired.wrong()["out"]
    queues = broker("edge-a").abandoned.values()
    assert set(lost) <= {int(message.payload) for queue in queues for message in queue}
    assert twice == []
    assert any("; drops its queue" in each.reason for each in change.operations)
    assert service.composition_views.plan("c").operations == ()


def _stop_before_out(rewired: Rewired) -> None:
    """Let A run from `in` to w, and then be kept stopped at the end of a chain."""
    rewired.apply(job("A", "in", "w"), job("B", "w", "out"))
    stopped = {**job("A", "y", "out"), "state": "stopped"}
    rewired.apply(job("B", "in", "x"), job("C", "x", "y"), stopped)


MOVED = (
    job("P", "in", "w"),
    job("M", "w", "x"),
    job("R", "x", "v"),
    job("N", "v", "y", FAR),
    job("S", "v", "z"),
)
"""Two jobs come between, and S reads behind R. Only N is at the far site."""


def test_nothing_waits_for_one_reader_only_while_a_new_job_behind_it_cannot_start(
    service: Service,
) -> None:
    """S is back at x then, and would miss what had come there for R's session alone."""
    rewired = Rewired(service, "y", "z")
    rewired.apply(P, R, S, flow=False)
    engine(FAR).refuse("submit", 1, REFUSED)
    assert rewired.apply(*MOVED, flow=False).state == "failed"
    engine(FAR).forgive()
    assert rewired.apply(P, R, S).state == "done"
    assert rewired.wrong() == {}


def test_a_reader_that_was_to_move_behind_one_that_cannot_start_misses_nothing(
    service: Service,
) -> None:
    """M, which would send to R's session alone, starts after R."""
    rewired = Rewired(service, "y", "z")
    rewired.apply(P, R, S, flow=False)
    engine(FAR).refuse("submit", 1, REFUSED)
    p, m, r, n, s = MOVED
    change = rewired.apply(p, m, {**r, "site": FAR}, {**n, "site": "edge-a"}, s, flow=False)
    assert change.state == "failed"
    engine(FAR).forgive()
    assert rewired.apply(P, R, S).state == "done"
    assert rewired.wrong() == {}
