"""What a broker forgets of sinks that have ended is sent again, on in-memory sites."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path

import pytest

from binders.memory import World
from binders.memory.engine import MemoryEngine
from binders.memory.slots import MemoryJob, SlotPool
from speck.binding import EngineCapability, Submission
from speck.errors import ConflictError, EngineRefusedError
from speck.model.values import JsonObject
from speck.service import Service
from speck.spec import resolve
from tests.memory_fog import FAST, HASTY, memory_service, site_body
from tests.properties.test_port_flows import make_job
from tests.service_helpers import DONE, broker, composition, engine, job_body
from tests.unit.service.test_sessions import apply, feed, look
from tests.waiting import wait_for
from tests.watching import Time, Watched

A, B = job_body("A", sink_topic="x"), job_body("B", source_topic="x")
DROPPING = replace(DONE, drop_queues=True)
SENT = [b"%d" % number for number in range(30)]
OUTSIDE: JsonObject = {
    "outputs": [{"broker": "tcp://edge-a.test:1883", "topic": "x", "client_id": "outside"}]
}


def resent(watched: Watched) -> int:
    return sum(message.endswith(": sent again") for message in watched.events("session"))


def look_until_resent(watched: Watched, times: int = 1) -> None:
    def is_resent() -> bool:
        look(watched, 0.1)
        return resent(watched) == times

    wait_for(is_resent)


def test_a_reader_outside_gets_what_its_broker_forgot_of_a_removed_job(watched: Watched) -> None:
    apply(watched, A, **OUTSIDE)
    broker("edge-a").autosave()
    feed(0, 30)
    apply(watched, job_body("C", source_topic="other", sink_topic="x"), **OUTSIDE)
    broker("edge-a").kill()
    look_until_resent(watched)
    assert broker("edge-a").take("outside") == SENT
    assert broker("edge-a").dropped == []


def test_nothing_is_sent_again_that_the_broker_has_of_a_removed_job(watched: Watched) -> None:
    """Its number is cleared only once everything is saved."""
    other = job_body("C", source_topic="other", sink_topic="x")
    apply(watched, A, **OUTSIDE)
    feed(0, 10)
    broker("edge-a").autosave()
    feed(10, 30)
    apply(watched, other, **OUTSIDE)
    assert len(broker("edge-a").sent) == 1
    broker("edge-a").kill()
    look_until_resent(watched)
    assert broker("edge-a").take("outside") == SENT
    look(watched, 20.0)
    wait_for(lambda: not watched.service.records.ended_sinks.all())
    assert broker("edge-a").sent == {}


def test_so_does_a_stopped_reader_after_each_kill(watched: Watched) -> None:
    """What was sent again is not saved either."""
    apply(watched, A, B)
    apply(watched, A, {**B, "state": "stopped"})
    broker("edge-a").autosave()
    feed(0, 30)
    apply(watched, {**A, "state": "stopped"}, {**B, "state": "stopped"})
    for kill in (1, 2):
        broker("edge-a").kill()
        look_until_resent(watched, kill)
    apply(watched, {**A, "state": "stopped"}, B)
    World.current().pump()
    assert [m.payload for m in broker("edge-a").published["B-out"]] == SENT


def test_what_the_broker_has_saved_is_not_sent_again(watched: Watched) -> None:
    apply(watched, A, **OUTSIDE)
    feed(0, 30)
    apply(watched, {**A, "state": "stopped"}, **OUTSIDE)
    broker("edge-a").autosave()
    broker("edge-a").kill()
    look_until_resent(watched)
    assert broker("edge-a").take("outside") == SENT


def test_after_several_autosaves_nobody_is_responsible_any_more(watched: Watched) -> None:
    apply(watched, A, **OUTSIDE)
    feed(0, 30)
    apply(watched, {**A, "state": "stopped"}, **OUTSIDE)
    assert len(watched.service.records.ended_sinks.all()) == 1
    look(watched, 20.0)
    wait_for(lambda: not watched.service.records.ended_sinks.all())
    broker("edge-a").kill()
    look(watched)
    assert engine("edge-a").count("resend") == 0


def test_a_job_that_runs_again_sends_itself(watched: Watched) -> None:
    apply(watched, A, **OUTSIDE)
    feed(0, 30)
    apply(watched, {**A, "state": "stopped"}, **OUTSIDE)
    apply(watched, A, **OUTSIDE)
    broker("edge-a").kill()
    look(watched)
    wait_for(lambda: not watched.service.records.ended_sinks.all())
    assert engine("edge-a").count("resend") == 0


def test_a_job_that_could_not_start_again_is_still_responsible(watched: Watched) -> None:
    apply(watched, A, **OUTSIDE)
    broker("edge-a").autosave()
    feed(0, 30)
    apply(watched, {**A, "state": "stopped"}, **OUTSIDE)
    engine("edge-a").refuse("submit", 9, EngineRefusedError("cannot start A: no"))
    apply(watched, A, **OUTSIDE)
    broker("edge-a").kill()
    look_until_resent(watched)
    assert broker("edge-a").take("outside") == SENT


def test_a_link_that_nobody_reads_needs_nobody(watched: Watched) -> None:
    apply(watched, A)
    feed(0, 30)
    apply(watched, {**A, "state": "stopped"})
    assert watched.service.records.ended_sinks.all() == []


def test_a_job_that_left_its_link_sends_there_again(watched: Watched) -> None:
    apply(watched, A, **OUTSIDE)
    broker("edge-a").autosave()
    feed(0, 30)
    apply(watched, {**A, "sink_topic": "y"}, **OUTSIDE)
    broker("edge-a").kill()
    look_until_resent(watched)
    assert broker("edge-a").take("outside") == SENT


def test_a_silent_engine_is_waited_for(watched: Watched) -> None:
    apply(watched, A, **OUTSIDE)
    broker("edge-a").autosave()
    feed(0, 30)
    apply(watched, {**A, "state": "stopped"}, **OUTSIDE)
    broker("edge-a").kill()
    engine("edge-a").unreachable = True
    for _ in range(9):
        look(watched, 120.0)
    assert resent(watched) == 0
    engine("edge-a").unreachable = False
    look_until_resent(watched)
    assert broker("edge-a").take("outside") == SENT


def test_an_engine_that_cannot_is_not_asked(watched: Watched) -> None:
    capabilities = frozenset(EngineCapability) - {EngineCapability.RESEND}
    engine("edge-a").capabilities = capabilities
    watched.service.connections.engine("edge-a").capabilities = capabilities
    apply(watched, A, **OUTSIDE)
    feed(0, 30)
    apply(watched, {**A, "state": "stopped"}, **OUTSIDE)
    assert watched.service.records.ended_sinks.all() == []


def test_a_drain_waits_for_what_is_sent_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is killed when A has stopped, and B has not taken anything yet."""
    world, save = World.current(), SlotPool.save

    def kill_after_a(pool: SlotPool, job: MemoryJob, trigger_id: str, path: str) -> None:
        if job.submission.job_name == "A":
            job.work()
        save(pool, job, trigger_id, path)
        if job.submission.job_name == "A":
            broker("edge-a").kill()
            world.auto_pump = True

    apply(watched, A, B)
    broker("edge-a").autosave()
    world.auto_pump = False
    world.feed("tcp://edge-a.test:1883", "A-in", SENT, "sensor")
    monkeypatch.setattr(SlotPool, "save", kill_after_a)
    apply(watched, {**B, "source_topic": "elsewhere"})
    assert engine("edge-a").count("resend") == 1
    assert [m.payload for m in broker("edge-a").published["B-out"]] == SENT


def test_a_stop_may_take_long(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sink publishes until the end."""
    save = SlotPool.save

    def save_slowly(pool: SlotPool, job: MemoryJob, trigger_id: str, path: str) -> None:
        watched.time.passed += 40.0
        save(pool, job, trigger_id, path)

    apply(watched, A, **OUTSIDE)
    broker("edge-a").autosave()
    feed(0, 30)
    monkeypatch.setattr(SlotPool, "save", save_slowly)
    apply(watched, {**A, "state": "stopped"}, **OUTSIDE)
    look(watched, 0.1)
    broker("edge-a").kill()
    look_until_resent(watched)
    assert broker("edge-a").take("outside") == SENT


def test_a_broker_may_be_killed_before_it_is_noticed_that_all_was_sent(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    resend = MemoryEngine.resend
    kills = 1

    def resend_in_vain(self: MemoryEngine, submission: Submission) -> None:
        nonlocal kills
        resend(self, submission)
        if kills:
            kills -= 1
            broker("edge-a").kill()

    apply(watched, A, **OUTSIDE)
    broker("edge-a").autosave()
    feed(0, 30)
    apply(watched, {**A, "state": "stopped"}, **OUTSIDE)
    monkeypatch.setattr(MemoryEngine, "resend", resend_in_vain)
    broker("edge-a").kill()
    look_until_resent(watched, 2)
    assert broker("edge-a").take("outside") == SENT


def test_the_wall_clock_may_jump(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    apply(watched, A, **OUTSIDE)
    broker("edge-a").autosave()
    feed(0, 30)
    apply(watched, {**A, "state": "stopped"}, **OUTSIDE)
    now = watched.time.now
    monkeypatch.setattr(watched.time, "now", lambda: now() - timedelta(hours=1))
    broker("edge-a").kill()
    look_until_resent(watched)
    assert broker("edge-a").take("outside") == SENT


def test_nothing_is_left_of_a_sink_that_is_given_up(watched: Watched) -> None:
    other = job_body("C", source_topic="other", sink_topic="x")
    apply(watched, A, **OUTSIDE)
    feed(0, 30)
    apply(watched, other, **OUTSIDE)
    broker("edge-a").autosave()
    broker("edge-a").kill()
    engine("edge-a").refuse("resend", 9, EngineRefusedError("cannot run main: no such class"))

    def is_given_up() -> bool:
        look(watched, 60.0)
        return not watched.service.records.ended_sinks.all()

    wait_for(is_given_up)
    assert broker("edge-a").sent == {}
    assert any("no such class" in message for message in watched.events("session"))


def test_nor_of_a_removed_chain(watched: Watched) -> None:
    others = [job_body(name, source_topic=f"o{name}", sink_topic=f"z{name}") for name in "CDE"]
    apply(watched, A, B, *others)
    feed(0, 30)
    apply(watched, *others)

    def is_clear() -> bool:
        look(watched, 1.0)
        return not broker("edge-a").sent and not watched.service.records.ended_sinks.all()

    wait_for(is_clear)


def test_a_session_is_not_released_before_it_has_what_its_broker_forgot(watched: Watched) -> None:
    """The reader outside is to leave, and must not go while messages for it are still to come."""
    apply(watched, A, **OUTSIDE)
    broker("edge-a").autosave()
    feed(0, 30)
    stopped = {**A, "state": "stopped"}
    apply(watched, stopped, **OUTSIDE)
    broker("edge-a").kill()
    with suppress(ConflictError):
        apply(watched, stopped)
    look_until_resent(watched)
    assert broker("edge-a").take("outside") == SENT


def test_a_sink_sends_again_to_its_own_link_only(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is responsible for the other link of the port any more: what was sent there is not for
    those who come to it later."""

    def read(*topics: str) -> JsonObject:
        place = {"broker": "tcp://edge-a.test:1883"}
        return {"outputs": [{**place, "topic": each, "client_id": f"at-{each}"} for each in topics]}

    monkeypatch.setattr(resolve, "Job", make_job)
    other = job_body("C", source_topic="other", sink_topic="z")
    apply(watched, job_body("A", sink_topic="x,y"), **read("x", "y"))
    broker("edge-a").autosave()
    feed(0, 30)
    apply(watched, other, **read("x", "y"))
    watched.service.compositions.apply(composition(other, **read("x")), DROPPING)
    apply(watched, other, **read("x", "y"))
    broker("edge-a").kill()
    look_until_resent(watched)
    sent = [message.payload for message in broker("edge-a").published["x"]]
    assert sent and broker("edge-a").take("at-x") == sent
    assert broker("edge-a").take("at-y") == []


def test_a_port_that_has_ended_sends_again_to_each_of_its_links(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "Job", make_job)
    place = {"broker": "tcp://edge-a.test:1883"}
    outside = [{**place, "topic": each, "client_id": f"at-{each}"} for each in "xy"]
    apply(watched, A | {"sink_topic": "x,y"}, outputs=outside)
    broker("edge-a").autosave()
    feed(0, 30)
    apply(watched, A | {"sink_topic": "x,y", "state": "stopped"}, outputs=outside)
    broker("edge-a").kill()
    look_until_resent(watched, 2)
    taken = [broker("edge-a").take(f"at-{each}") for each in "xy"]
    assert all(taken) and sorted(chain(*taken), key=int) == SENT


def test_a_service_that_was_restarted_goes_on(tmp_path: Path) -> None:
    time = Time()
    sites = [site_body("edge-a"), site_body("cloud")]
    with memory_service(tmp_path, sites, clock=time) as opened:
        watched = Watched(opened, time)
        apply(watched, A, **OUTSIDE)
        broker("edge-a").autosave()
        feed(0, 30)
        apply(watched, {**A, "state": "stopped"}, **OUTSIDE)
        watched.watch.close()
        opened.close()
        broker("edge-a").kill()
        again = Service(opened.config, time, bounds=FAST, patience=HASTY)
        try:
            watched = Watched(again, time)
            look_until_resent(watched)
            watched.watch.close()
        finally:
            again.close()
        assert broker("edge-a").take("outside") == SENT
