"""Whole changes in which a link changes hands: what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from binders.memory import World
from speck.errors import PermanentError
from speck.model.change import ChangeReport
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.memory_fog import MemoryKeeper, memory_service, site_body
from tests.service_helpers import DONE as WAIT
from tests.service_helpers import broker, composition, engine, job_body
from tests.waiting import wait_for

FORCED = replace(WAIT, force=True)
OUT: dict[str, Any] = {"outputs": [{"site": "edge-a", "topic": "y", "client_id": "out"}]}
P = job_body("P", source_topic="in", sink_topic="x")
Q = job_body("Q", source_topic="x", sink_topic="y")
R = job_body("R", source_topic="x", sink_topic="y")
BETWEEN = job_body("R", source_topic="x", sink_topic="x2")
Q2 = job_body("Q", source_topic="x2", sink_topic="y")
CALLS = ("try_main", "stop", "submit", "save_progress")


@dataclass
class Feed:
    """Numbers that come in at every call of these kinds to the engine."""

    kinds: tuple[str, ...]
    sent: int = 0

    def __call__(self, kind: str, subject: str) -> None:
        if kind in self.kinds:
            self.send(2)

    def send(self, count: int) -> None:
        payloads = [str(self.sent + n).encode() for n in range(count)]
        self.sent += count
        World.current().feed("tcp://edge-a.test:1883", "in", payloads, "sensor")
        World.current().pump()

    @contextmanager
    def coming_in(self, site: str = "edge-a") -> Iterator[Feed]:
        """Numbers that come before the block, at the calls within it to the engine of a site, and
        after it: each has come out once."""
        self.send(5)
        engine(site).before = self
        yield self
        engine(site).before = None
        self.send(5)
        assert out() == list(range(self.sent))


def out() -> list[int]:
    World.current().pump()
    return [int(payload) for payload in broker("edge-a").take("out")]


def apply(service: Service, *jobs: JsonObject, request: ApplyRequest = FORCED) -> ChangeReport:
    body = service.compositions.apply(composition(*jobs, **OUT), request)
    assert body.change is not None
    return service.changes.get(body.change)


@pytest.mark.parametrize("new", [(P, R), (P, BETWEEN, Q2)], ids=["replaced", "inserted"])
def test_what_comes_while_a_link_changes_hands_comes_out_once(
    service: Service, new: tuple[JsonObject, ...]
) -> None:
    """What comes between the reservation and the stop lies in both sessions."""
    apply(service, P, Q)
    with Feed(CALLS).coming_in() as feed:
        assert apply(service, *new).state == "done"
    assert feed.sent > 10
    assert not any(broker("edge-a").abandoned[c] for c in broker("edge-a").sessions)
    assert service.composition_views.plan("c").operations == ()


@pytest.mark.parametrize("new", [(R,), (BETWEEN, Q2)], ids=["replaced", "inserted"])
def test_a_link_that_another_composition_feeds_and_a_third_reads_changes_hands(
    service: Service, new: tuple[JsonObject, ...]
) -> None:
    beside = job_body("S", source_topic="x", sink_topic="z")
    others = {"outputs": [{"site": "edge-a", "topic": "z", "client_id": "beside"}]}
    service.compositions.apply(composition(P, name="feeds"), WAIT)
    service.compositions.apply(composition(beside, name="reads", **others), WAIT)
    apply(service, Q)
    with Feed(CALLS).coming_in() as feed:
        assert apply(service, *new).state == "done"
    assert feed.sent > 10
    assert [int(payload) for payload in broker("edge-a").take("beside")] == list(range(feed.sent))


def test_the_producer_of_a_link_that_another_composition_reads_is_replaced(
    service: Service,
) -> None:
    service.compositions.apply(composition(P, name="feeds"), WAIT)
    apply(service, Q)
    other = job_body("P2", source_topic="in", sink_topic="x")
    with Feed(CALLS).coming_in():
        change = service.compositions.apply(composition(other, name="feeds"), WAIT).change
        assert service.changes.get(change).state == "done"


SHORT = (
    job_body("Q", source_topic="in", sink_topic="x"),
    job_body("R", source_topic="x", sink_topic="y"),
    job_body("S", source_topic="x", sink_topic="z"),
)

LONG = (
    job_body("P", source_topic="in", sink_topic="w"),
    job_body("Q", source_topic="w", sink_topic="x"),
    job_body("R", source_topic="x", sink_topic="y"),
    job_body("S", source_topic="w", sink_topic="z"),
)


@pytest.mark.parametrize(("old", "new"), [(SHORT, LONG), (LONG, SHORT)], ids=["in", "out"])
def test_a_reader_that_goes_upstream_or_down_as_a_job_is_inserted_gets_everything_once(
    service: Service, old: tuple[JsonObject, ...], new: tuple[JsonObject, ...]
) -> None:
    """S reads what the first job writes: what that took until it stopped, and from then on."""
    outputs = [*OUT["outputs"], {"site": "edge-a", "topic": "z", "client_id": "beside"}]

    def change(*jobs: JsonObject) -> None:
        description = composition(*jobs, outputs=outputs)
        body = service.compositions.apply(description, WAIT)
        assert service.changes.get(body.change).state == "done"

    change(*old)
    with Feed((*CALLS, "status")).coming_in() as feed:
        change(*new)
    assert feed.sent > 10
    assert [int(payload) for payload in broker("edge-a").take("beside")] == list(range(feed.sent))


def test_a_link_can_be_handed_back_and_forth(service: Service) -> None:
    apply(service, P, Q)
    with Feed(("stop", "submit")).coming_in():
        for reader in (R, Q, R):
            assert apply(service, P, reader).state == "done"


def lose_session_of(name: str) -> Callable[[], None]:
    """Let the broker lose a job's session, as one that is killed soon after a reservation."""

    def lose() -> None:
        sessions = broker("edge-a").sessions
        (client_id,) = (each for each in sessions if f"-{name}-" in each)
        del sessions[client_id]

    return lose


def test_nothing_is_lost_when_the_broker_loses_the_session_of_a_follower(
    service: Service,
) -> None:
    apply(service, P, Q)
    feed = Feed(("submit", "save_progress"))
    feed.send(3)
    lose = lose_session_of("R")

    def kill(kind: str, subject: str) -> None:
        feed(kind, subject)
        if kind == "stop":
            lose()

    engine("edge-a").before = kill
    first = apply(service, P, R)
    assert first.state == "failed"
    assert "has lost its session on x since it was reserved; apply again: Q then" in first.error
    with feed.coming_in():
        assert apply(service, P, R).state == "done"
    (running,) = (i for i in engine("edge-a").running() if i.submission.job_name != "P")
    assert running.submission.job_name == "R"


def test_a_broker_that_is_killed_before_a_handover_forgets_nothing_that_was_taken(
    service: Service,
) -> None:
    """Also of a link that all producers leave. One of them sends again what the broker may have
    forgotten: the new reader does not take it."""
    apply(service, P, Q)
    feed = Feed(("stop",))
    queues = broker("edge-a")
    World.current().pump()
    saved = deepcopy(queues.taken)
    feed.send(3)
    World.current().pump()
    lose, stopped, lost = lose_session_of("R"), list[str](), list[None]()

    def kill(kind: str, subject: str) -> None:
        feed(kind, subject)
        stopped.extend([kind] if kind == "stop" else [])
        if kind == "save_progress" and len(stopped) == 2:  # the reader's, after the producer's
            queues.taken.clear()
            queues.taken.update(saved)
            if not lost:
                lost.append(lose())

    new = {**P, "job_name": "P2"}, R
    engine("edge-a").before = kill
    failed = apply(service, *new)
    assert "has lost its session on x since it was reserved" in failed.error

    def send_again(kind: str, subject: str) -> None:
        if kind == "submit":
            for message in [m for m in list(queues.published["x"]) if m.mark is None]:
                queues.deliver("x", message)

    engine("edge-a").before = send_again
    assert apply(service, *new).state == "done"
    engine("edge-a").before = None
    feed.send(3)
    assert out() == list(range(feed.sent))


HEAD, HEAD2 = ({**P, "job_name": n, "site": "cloud"} for n in ("H", "H2"))
HEAD |= {"source_site": "edge-a", "sink_site": "edge-a"}
HEAD2 |= {"source_site": "edge-a", "sink_site": "edge-a", "sink_topic": "x2"}


@pytest.mark.parametrize(
    "new",
    [
        ({**HEAD2, "sink_topic": "y"},),
        (HEAD2, {**Q2, "upgrade": "stateless"}),
        (HEAD2, {**Q2, "job_name": "Q3"}),
    ],
    ids=["removed", "moved", "replaced"],
)
def test_a_lost_job_that_leaves_its_link_takes_what_its_producer_had_read(
    service: Service, new: tuple[JsonObject, ...]
) -> None:
    apply(service, HEAD, {**Q, "upgrade": "stateless"})  # no state that its engine loses, too
    feed = Feed(("stop", "submit"))
    feed.send(5)
    engine("edge-a").forget_jobs()
    with feed.coming_in("cloud"):
        assert apply(service, *new).state == "done"
    assert service.composition_views.plan("c").operations == ()


@pytest.mark.parametrize(
    "new",
    [
        ({**HEAD2, "job_name": "H"}, {**Q2, "job_name": "Q3"}),
        (HEAD2, {**Q2, "job_name": "Q3"}),
        (HEAD2, Q2),
        ({**HEAD2, "job_name": "H"}, Q2),
    ],
    ids=["moved", "replaced", "replaced before one that goes on", "moved before one that goes on"],
)
def test_a_job_whose_engine_dies_as_it_stops_says_first_what_it_has_sent(
    tmp_path: Path, new: tuple[JsonObject, ...]
) -> None:
    """It had published what it took, and taken it for good, but not reported that yet: who reads
    it would leave."""
    sites = map(site_body, ("edge-a", "cloud"))
    with memory_service(tmp_path, sites, keeper=MemoryKeeper()) as service:
        apply(service, HEAD, Q)
        lose_engine_at_stop(service, new)


def lose_engine_at_stop(service: Service, new: tuple[JsonObject, ...]) -> None:
    """A change in which the engine of cloud dies as its job stops, made again."""
    feed, queues, died = Feed(()), broker("edge-a"), list[str]()
    feed.send(5)

    def die(kind: str, subject: str) -> None:
        if kind != "stop" or died:
            return
        died.append(subject)
        sent = deepcopy(queues.sent)
        World.current().feed("tcp://edge-a.test:1883", "in", [b"5", b"6"], "sensor")
        feed.sent += 2
        job = engine("cloud").jobs[subject]
        job.work()
        job.checkpoint()
        queues.sent.clear()
        queues.sent.update(sent)
        engine("cloud").forget_jobs()

    engine("cloud").before = die
    failed = apply(service, *new)
    assert "cannot stop H: cloud does not know it any more" in failed.error
    engine("cloud").before = None
    assert apply(service, *new).state == "done"
    feed.send(5)
    assert out() == list(range(feed.sent))
    assert service.composition_views.plan("c").operations == ()


@pytest.mark.parametrize("tail", [Q2, {**Q2, "job_name": "Q3"}], ids=["moved", "removed"])
def test_nothing_is_lost_when_readers_downstream_have_left_before_a_follower_failed_to_start(
    service: Service, tail: JsonObject
) -> None:
    """What came since P has stopped is in its session only: it comes back, and so does who reads
    what it writes."""
    first, head = {**P, "job_name": "A"}, {**P, "job_name": "B", "sink_topic": "x2"}
    apply(service, first, Q)
    feed = Feed(("submit", "save_progress"))
    feed.send(3)
    lose = lose_session_of("B")

    def kill(kind: str, subject: str) -> None:
        feed(kind, subject)
        if kind == "stop" and "-A-" in str(broker("edge-a").sessions) and not lost:
            lost.append(kind)
            lose()

    lost: list[str] = []
    engine("edge-a").before = kill
    failed = apply(service, head, tail)
    assert failed.state == "failed"
    assert "has lost its session on in since it was reserved" in failed.error
    with feed.coming_in():
        assert apply(service, head, tail).state == "done"
    assert service.composition_views.plan("c").operations == ()


def test_a_session_that_is_reserved_anew_holds_nothing_from_before(service: Service) -> None:
    """As when a broker that was killed has a session again which had been released."""
    apply(service, P, Q)
    feed = Feed(())
    queues = broker("edge-a")
    (released,) = (each for each in queues.sessions if "-Q-" in each)
    apply(service, P, R)
    assert released not in queues.sessions
    queues.subscribe(released, "x")
    feed.send(3)
    assert apply(service, P, R, Q).state == "done"
    feed.send(3)
    assert sorted(out()) == [0, 1, 2, 3, 3, 4, 4, 5, 5]  # two readers from then on


def test_going_back_after_a_start_that_failed_loses_and_repeats_nothing(service: Service) -> None:
    apply(service, P, Q)
    engine("edge-a").refuse("submit", 1, PermanentError("cannot start R: no"))
    with Feed(("stop", "save_progress")).coming_in() as feed:
        assert apply(service, P, R).state == "failed"
        feed.send(3)
        assert apply(service, P, Q).state == "done"
    assert service.composition_views.plan("c").operations == ()


def test_nothing_is_lost_when_a_change_is_cancelled_while_a_followed_reader_is_drained(
    service: Service,
) -> None:
    """What came before the follower's session was reserved waits in the old one only."""
    world = World.current()
    ends_of = {"inputs": [{"site": "edge-a", "topic": "in"}], **OUT}
    first = composition({**Q, "source_topic": "in"}, **ends_of)
    then = composition({**R, "source_topic": "in"}, **ends_of)
    service.compositions.apply(first, WAIT)
    world.auto_pump = False
    world.feed("tcp://edge-a.test:1883", "in", [b"0", b"1", b"2"], "sensor")

    def has(change: str, kind: str, state: str) -> bool:
        operations = service.changes.get(change).operations
        return any((o.kind, o.state) == (kind, state) for o in operations)

    change = service.compositions.apply(then, ApplyRequest()).change
    wait_for(lambda: has(change, "drain", "running"))
    service.runner.cancel(change)
    wait_for(lambda: not service.changes.all_under_way())
    again = service.compositions.apply(then, ApplyRequest()).change
    wait_for(lambda: has(again, "drain", "running") or has(again, "stop", "done"))
    world.auto_pump = True
    wait_for(lambda: not service.changes.all_under_way())
    assert service.changes.get(again).state == "done"
    assert out() == [0, 1, 2]
