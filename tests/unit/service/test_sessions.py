"""Sessions that a broker lost: reserved again where no client can hold them, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from binders.memory import World
from binders.memory.broker import MemoryBroker
from speck.binding import Reservation
from speck.errors import TransientError
from speck.model.observation import Sent
from speck.model.values import JsonObject
from speck.service.compositions import ApplyRequest
from speck.store.tables import Batch
from tests.service_helpers import DONE, broker, composition, engine, job_body
from tests.waiting import wait_for
from tests.watching import Watched

STOPPED = job_body("A", state="stopped")
AT_ONCE = 0.1
"""Seconds to look after: a start that is held for five has failed, and its change is over."""


def look(watched: Watched, after: float = 5.0) -> None:
    watched.look(after)
    wait_for(lambda: watched.watch.sessions.idle)


def apply(watched: Watched, *jobs: JsonObject, **more: Any) -> None:
    watched.service.compositions.apply(composition(*jobs, **more), DONE)


def list_messages(watched: Watched) -> list[str]:
    return watched.events("session")


def restart(watched: Watched, after: float = 5.0) -> None:
    broker("edge-a").restart()
    look(watched, after)


def test_the_session_of_a_stopped_job_is_reserved_again(watched: Watched) -> None:
    apply(watched, job_body("A"))
    apply(watched, STOPPED)
    look(watched)
    before = set(broker("edge-a").sessions)

    restart(watched)

    assert set(broker("edge-a").sessions) == before
    assert broker("edge-a").readers == {"A-in": "some"}
    first, second = list_messages(watched)
    assert first == "the broker of site edge-a was restarted"
    assert second.startswith("the session of A at edge-a/A-in was lost and is reserved again")
    look(watched)
    [job] = watched.service.jobs.all()
    assert job.sessions_lost == 1


@pytest.mark.parametrize("has_begun", [False, True])
def test_it_is_stored_that_a_session_whose_reader_has_not_begun_was_reserved_again(
    watched: Watched, has_begun: bool
) -> None:
    """Readers that change at one record must not begin where one lacks what came meanwhile."""
    if has_begun:
        apply(watched, job_body("A"))
    apply(watched, STOPPED)
    look(watched)

    restart(watched)

    [(_, session)] = watched.service.records.sessions.all()
    assert session.remade is not has_begun


def test_a_session_that_is_still_there_is_kept_without_a_word(watched: Watched) -> None:
    apply(watched, job_body("A"))
    apply(watched, STOPPED)
    look(watched)
    broker("edge-a").uptime_s = 0
    look(watched)

    assert list_messages(watched) == ["the broker of site edge-a was restarted"]


def test_a_running_jobs_session_is_never_touched(watched: Watched) -> None:
    apply(watched, job_body("A"))
    look(watched)
    calls = broker("edge-a").count("reserve")

    restart(watched)

    assert broker("edge-a").count("reserve") == calls
    assert broker("edge-a").thrown_out == []
    assert broker("edge-a").readers == {"A-in": "some"}  # announced again, for sinks that begin


def test_nor_is_that_of_a_job_at_a_site_that_is_silent_or_has_forgotten_it(
    watched: Watched,
) -> None:
    apply(watched, job_body("A"))
    look(watched)
    calls = broker("edge-a").count("reserve")
    engine("edge-a").unreachable = True
    restart(watched)
    engine("edge-a").unreachable = False
    restart(watched)

    assert broker("edge-a").count("reserve") == calls


def test_nothing_is_reserved_while_a_change_of_the_job_is_under_way(watched: Watched) -> None:
    apply(watched, job_body("A"))
    apply(watched, STOPPED)
    look(watched)
    engine("edge-a").hold_starts = True
    watched.service.compositions.apply(composition(job_body("A")), ApplyRequest())
    wait_for(lambda: engine("edge-a").count("submit") == 2)
    calls = broker("edge-a").count("reserve")

    restart(watched, AT_ONCE)

    assert broker("edge-a").count("reserve") == calls
    engine("edge-a").let_go()


def test_a_session_is_reserved_again_while_a_change_of_another_job_is_under_way(
    watched: Watched,
) -> None:
    """A change may be blocked for days, and may itself wait for sinks that miss the session."""
    other = job_body("B", "cloud")
    apply(watched, job_body("A"))
    apply(watched, STOPPED)
    look(watched)
    before = set(broker("edge-a").sessions)
    engine("cloud").hold_starts = True
    change = watched.service.compositions.apply(composition(STOPPED, other), ApplyRequest())
    wait_for(lambda: engine("cloud").count("submit") == 1)

    broker("edge-a").restart()

    for _ in range(20):  # a poll may be a second old
        look(watched, AT_ONCE)
    assert set(broker("edge-a").sessions) == before
    engine("cloud").let_go()
    assert watched.service.changes.await_end(change.change, 20)


def test_a_session_that_is_released_meanwhile_stays_released(watched: Watched) -> None:
    apply(watched, job_body("A"))
    apply(watched, STOPPED)
    look(watched)
    broker("edge-a").restart()
    records = watched.service.records
    [(scope, session)] = records.sessions.all()

    def release(kind: str, _: str) -> None:
        if kind == "reserve":
            broker("edge-a").before = None
            records.write(records.sessions.drop(scope, session.client_id, session.site))

    broker("edge-a").before = release
    look(watched)
    assert broker("edge-a").count("reserve") > 0
    assert broker("edge-a").sessions == {}
    assert broker("edge-a").readers == {"A-in": "none"}


def test_a_broker_that_refuses_for_a_while_is_asked_again(watched: Watched) -> None:
    apply(watched, job_body("A"))
    apply(watched, STOPPED)
    look(watched)
    broker("edge-a").refuse("reserve", 1, TransientError("cannot reserve: not now"))
    restart(watched)
    assert set(broker("edge-a").sessions) == set()

    look(watched)

    assert len(broker("edge-a").sessions) == 1


def test_the_service_begins_with_a_look_at_all_sessions(watched: Watched) -> None:
    apply(watched, job_body("A"))
    apply(watched, STOPPED)
    broker("edge-a").restart()

    look(watched)

    assert len(broker("edge-a").sessions) == 1


def test_the_session_of_an_outside_reader_is_reserved_again_beside_other_readers(
    watched: Watched,
) -> None:
    """Of a broker that acknowledges everything, since another reader's session was saved."""
    outputs = [{"site": "edge-a", "topic": "A-out", "client_id": "dashboard"}]
    apply(watched, job_body("A"))
    apply(watched, job_body("A"), job_body("B", source_topic="A-out", state="stopped"))
    look(watched)
    broker("edge-a").autosave()
    apply(
        watched,
        job_body("A"),
        job_body("B", source_topic="A-out", state="stopped"),
        outputs=outputs,
    )
    broker("edge-a").kill()
    assert "dashboard" not in broker("edge-a").sessions

    look(watched)

    assert "dashboard" in broker("edge-a").sessions
    assert list_messages(watched)[-1].startswith(
        "the session of dashboard at edge-a/A-out was lost"
    )
    [(lost, count)] = watched.watch.sessions.lost_sessions.counts.items()
    assert (lost.site, lost.topic, lost.reader, count) == ("edge-a", "A-out", "dashboard", 1)
    calls = broker("edge-a").count("reserve")
    look(watched)
    assert broker("edge-a").count("reserve") == calls


def test_a_reader_that_joins_makes_nothing_be_sent_again_to_those_that_are_there(
    watched: Watched,
) -> None:
    """It has lost nothing, unlike one whose session is to be there and is not."""
    world = World.current()
    names = ["archive", "dashboard"]
    outputs = [{"site": "edge-a", "topic": "A-out", "client_id": name} for name in names]
    apply(watched, job_body("A"), outputs=outputs[:1])
    world.feed("tcp://edge-a.test:1883", "A-in", [b"1", b"2", b"3"])
    world.pump()
    apply(watched, job_body("A"), outputs=outputs)

    waiting = {name: len(broker("edge-a").sessions[name].waiting) for name in names}
    assert waiting == {"archive": 3, "dashboard": 0}


def test_a_reader_that_does_not_come_back_has_its_session_reserved_after_a_while(
    watched: Watched,
) -> None:
    """Its site is cut off, and the sinks of its link wait for it."""
    apply(watched, job_body("A"))
    look(watched)
    World.current().auto_pump = False
    restart(watched)
    assert broker("edge-a").sessions == {}
    look(watched, 20)
    assert broker("edge-a").sessions == {}
    look(watched, 20)
    assert len(broker("edge-a").sessions) == 1
    assert broker("edge-a").thrown_out == []


def test_sinks_that_wait_for_a_session_that_was_released_are_told(watched: Watched) -> None:
    apply(watched, job_body("A"))
    look(watched)
    [(client_id, report)] = [
        (client_id, report)
        for client_id, report in broker("edge-a").sent.items()
        if report.topic == "A-out"
    ] or [(f"speck-{watched.service.records.installation[:8]}-A-0-out", Sent("A", 1, 7))]
    broker("edge-a").sent[client_id] = replace(report, unread=3, topic="A-out")
    look(watched)
    look(watched)
    assert broker("edge-a").calls.count(("confirm_sessions", "A-out")) == 1
    look(watched, 30)
    assert broker("edge-a").calls.count(("confirm_sessions", "A-out")) == 2


def test_a_broker_that_is_silent_is_told_and_its_sessions_are_seen_to_later(
    watched: Watched,
) -> None:
    apply(watched, job_body("A"))
    apply(watched, STOPPED)
    look(watched)
    broker("edge-a").unreachable = True
    look(watched)
    assert watched.events("site")[-1].startswith("the broker of site edge-a is unreachable: ")
    broker("edge-a").unreachable = False
    broker("edge-a").restart()
    look(watched)

    assert len(broker("edge-a").sessions) == 1
    back = "the broker of site edge-a answers again after "
    assert any(message.startswith(back) for message in watched.events("site"))


def test_a_restart_that_is_noticed_during_a_repair_is_followed_by_another_repair(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the repair has reserved is lost again, though it is noted as reserved only then."""
    apply(watched, job_body("A"))
    apply(watched, STOPPED)
    look(watched)
    before = set(broker("edge-a").sessions)
    lost, reserve = watched.watch.sessions.lost_sessions, MemoryBroker.reserve

    def reserve_and_restart(self: MemoryBroker, *args: Any, **more: Any) -> Reservation:
        monkeypatch.undo()
        made = reserve(self, *args, **more)
        broker("edge-a").restart()
        broker("edge-a").uptime_s = 1000  # what follows notices no further restart
        lost.restore(watched.time.monotonic() + 1, {}, {"edge-a"})
        return made

    monkeypatch.setattr(MemoryBroker, "reserve", reserve_and_restart)
    restart(watched)
    assert broker("edge-a").sessions == {}
    look(watched)
    assert set(broker("edge-a").sessions) == before
    look(watched)
    assert [job.sessions_lost for job in watched.service.jobs.all()] == [2]


def test_what_a_full_queue_dropped_is_told_and_counted(watched: Watched) -> None:
    apply(watched, job_body("A"))
    apply(watched, STOPPED)
    look(watched)
    broker("edge-a").queue_limit = 2
    World.current().feed("tcp://edge-a.test:1883", "A-in", [b"1", b"2", b"3", b"4", b"5"])
    look(watched)

    assert watched.events("site")[-1] == (
        "messages lost at the broker of site edge-a: 3 were dropped because a"
        " reader's queue was full"
    )
    assert watched.watch.sessions.memory.dropped == {"edge-a": 3}


@pytest.mark.parametrize("seen", [True, False])
def test_a_released_session_that_a_killed_broker_brings_back_is_released_again(
    watched: Watched, seen: bool
) -> None:
    apply(watched, job_body("A"))
    apply(watched, STOPPED)
    look(watched)
    broker("edge-a").autosave()
    watched.service.compositions.delete("c", 30, drop_queues=True)
    look(watched)
    if seen:
        look(watched)
    broker("edge-a").kill()
    assert len(broker("edge-a").sessions) == 1

    look(watched)

    assert broker("edge-a").sessions == {}
    assert broker("edge-a").readers == {"A-in": "none"}


def test_a_session_that_is_used_again_is_not_released(watched: Watched) -> None:
    apply(watched, job_body("A"))
    apply(watched, STOPPED)
    look(watched)
    watched.service.compositions.delete("c", 30, drop_queues=True)
    look(watched)
    apply(watched, STOPPED)
    broker("edge-a").autosave()
    broker("edge-a").kill()
    calls = broker("edge-a").count("release")
    look(watched)
    assert broker("edge-a").count("release") == calls


def feed(first: int, last: int) -> None:
    payloads = [b"%d" % number for number in range(first, last)]
    World.current().feed("tcp://edge-a.test:1883", "A-in", payloads, "sensor")
    World.current().pump()


def test_what_a_killed_broker_has_forgotten_of_a_stopped_sink_is_shown_as_lost(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it cannot be sent again: the state in which it ended is gone."""
    a, b = job_body("A", sink_topic="x"), job_body("B", source_topic="x")
    apply(watched, a, b)
    feed(0, 5)
    apply(watched, a, {**b, "state": "stopped"})
    feed(5, 10)
    broker("edge-a").autosave()
    feed(10, 30)
    apply(watched, {**a, "state": "stopped"}, {**b, "state": "stopped"})
    look(watched)
    saved = World.current().saved
    for path in [path for path in saved if "/savepoints/A/" in path]:
        del saved[path]
    broker("edge-a").kill()
    records, dropped = watched.service.records, list[Batch]()
    write = records.write

    def record(*batches: Batch) -> None:
        together = {key: each for batch in batches for key, each in batch.items()}
        gone = [key for key, each in together.items() if each is None]
        if any(key.startswith("ended/") and "-A-" in key for key in gone):
            dropped.append(together)
        write(*batches)

    monkeypatch.setattr(records, "write", record)

    def is_given_up() -> bool:
        look(watched, 60.0)
        return any("cannot be sent again: tried 5" in m for m in watched.events("session"))

    wait_for(is_given_up)
    [together] = dropped  # a service that is killed then leaves both or neither
    assert "cannot be sent again" in str(list(together.values()))
    look(watched, 61.0)
    assert watched.service.jobs.get("B").records_lost == 0, "B does not say what it has"

    apply(watched, {**a, "state": "stopped"}, b)
    World.current().pump()
    look(watched, 61.0)
    assert watched.job("B").records_lost == 20
    assert any("messages lost on link edge-a/x: 20 of" in m for m in watched.events("site"))
    look(watched, 61.0)
    assert watched.job("B").records_lost == 20
