"""Sessions whose readers are away for weeks: renewed before their brokers drop them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from threading import Event, Thread
from typing import Any

import pytest

from binders.memory.broker import MemoryBroker
from binders.memory.engine import MemoryEngine
from speck.binding import Reservation
from speck.errors import BrokerRefusedError
from speck.model.engines import ArtifactKind
from speck.model.observation import EngineView
from speck.monitor.session_renewals import FIRST_S, SILENT_S
from speck.service.compositions import ApplyRequest
from tests.service_helpers import DONE, LIMIT_S, broker, composition, engine, job_body
from tests.waiting import wait_for
from tests.watching import Watched

DAY = 24 * 3600.0
STOPPED = job_body("A", state="stopped")


def look(watched: Watched, after: float = 5.0) -> None:
    watched.look(after)
    wait_for(lambda: watched.watch.sessions.idle)


def begin(watched: Watched, *jobs: object, kept_s: float | None = 30 * DAY) -> None:
    broker("edge-a").kept_s = kept_s
    watched.service.compositions.apply(composition(*(jobs or (job_body("A"),))), DONE)
    look(watched)


def stop(watched: Watched) -> None:
    watched.service.compositions.apply(composition(STOPPED), DONE)
    look(watched)


def count_renewals(watched: Watched, seconds: float, step: float) -> int:
    before = broker("edge-a").count("reserve")
    for _ in range(round(seconds / step)):
        look(watched, step)
    return broker("edge-a").count("reserve") - before


def list_losses(watched: Watched) -> list[str]:
    return [message for message in watched.events("session") if "was lost" in message]


def test_the_session_of_a_job_that_stays_stopped_is_renewed_in_time(watched: Watched) -> None:
    begin(watched)
    stop(watched)
    assert count_renewals(watched, FIRST_S / 2, 60) == 0
    assert count_renewals(watched, FIRST_S, 60) == 1, "then its time is known"
    assert count_renewals(watched, 60 * DAY, DAY) == 7, "a quarter of 30 days, seen once a day"
    assert broker("edge-a").thrown_out == []
    assert list_losses(watched) == []


def test_a_shorter_time_is_kept_to(watched: Watched) -> None:
    begin(watched, kept_s=3600)
    stop(watched)
    look(watched, FIRST_S)
    assert count_renewals(watched, 3600, 60) == 4


def test_what_is_kept_for_ever_is_not_renewed(watched: Watched) -> None:
    begin(watched, kept_s=None)
    stop(watched)
    look(watched, FIRST_S)
    assert count_renewals(watched, 60 * DAY, DAY) == 0


def test_a_reader_that_runs_is_left_alone_and_renewed_once_it_stops(watched: Watched) -> None:
    begin(watched)
    assert count_renewals(watched, 60 * DAY, DAY) == 0
    stop(watched)
    assert count_renewals(watched, 2 * FIRST_S, 60) == 1


def test_a_job_whose_site_is_off_is_away_after_an_hour(watched: Watched) -> None:
    """Its broker is at the site of its source, which is on."""
    job = job_body("A", "cloud", source_site="edge-a")
    begin(watched, job)
    engine("cloud").unreachable = True
    assert count_renewals(watched, SILENT_S / 2, 60) == 0
    assert count_renewals(watched, SILENT_S + FIRST_S, 60) == 1
    engine("cloud").unreachable = False
    look(watched)
    assert count_renewals(watched, 30 * DAY, DAY) == 0


def test_a_job_whose_engine_is_off_beside_one_that_answers_is_away_after_an_hour(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(watched, job_body("A", "cloud", source_site="edge-a"))
    view_of = MemoryEngine.view
    silent = {ArtifactKind.TEXT: "no answer"}

    def report(self: MemoryEngine) -> EngineView:
        view = view_of(self)
        jobs = {} if ArtifactKind.JAR in silent else view.jobs
        return replace(view, jobs=jobs, silent=dict(silent))

    monkeypatch.setattr(MemoryEngine, "view", report)
    assert count_renewals(watched, SILENT_S + 2 * FIRST_S, FIRST_S) == 0, "its own one answers"
    silent[ArtifactKind.JAR] = silent.pop(ArtifactKind.TEXT)
    assert count_renewals(watched, SILENT_S / 2, FIRST_S) == 0
    assert count_renewals(watched, SILENT_S + FIRST_S, FIRST_S) == 1


def test_a_reader_outside_is_never_disconnected(watched: Watched) -> None:
    output = {"site": "edge-a", "topic": "A-out", "client_id": "dashboard"}
    broker("edge-a").kept_s = 3600
    described = composition(job_body("A"), outputs=[output])
    watched.service.compositions.apply(described, DONE)
    broker("edge-a").sessions["dashboard"].holder = "somebody"
    assert count_renewals(watched, 60 * DAY, DAY) == 0
    assert broker("edge-a").thrown_out == []


def test_a_session_that_was_dropped_and_is_still_announced_counts_as_lost(watched: Watched) -> None:
    begin(watched)
    stop(watched)
    del broker("edge-a").sessions[next(iter(broker("edge-a").sessions))]
    assert count_renewals(watched, 2 * FIRST_S, 60) == 1
    [event] = list_losses(watched)
    assert event.startswith("the session of A at edge-a/A-in was lost and is reserved again")
    [job] = watched.service.jobs.all()
    assert job.sessions_lost == 1


def test_a_broker_that_is_away_is_asked_until_it_answers(watched: Watched) -> None:
    begin(watched)
    stop(watched)
    look(watched, FIRST_S)
    broker("edge-a").unreachable = True
    for _ in range(10):
        look(watched, DAY)
    broker("edge-a").unreachable = False
    assert count_renewals(watched, 10, 5) == 1


def test_sessions_are_renewed_while_another_job_blocks_the_change(watched: Watched) -> None:
    begin(watched)
    stop(watched)
    engine("cloud").unreachable = True
    other = job_body("B", "cloud")
    asked = watched.service.compositions.apply(composition(STOPPED, other), ApplyRequest())
    wait_for(lambda: watched.service.changes.get(asked.change).state == "blocked")
    assert count_renewals(watched, 2 * FIRST_S, 60) == 1
    engine("cloud").unreachable = False
    assert watched.service.changes.await_end(asked.change, 20)


def test_a_restarted_service_renews_soon(watched: Watched) -> None:
    begin(watched)
    stop(watched)
    again = Watched(watched.service, watched.time)
    assert count_renewals(again, 2 * FIRST_S, 60) == 1


def test_one_that_cannot_be_renewed_holds_no_other_back(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the first of them, and is not tried at every poll."""
    begin(watched, job_body("A"), job_body("B"))
    jobs = [job_body(name, state="stopped") for name in "AB"]
    watched.service.compositions.apply(composition(*jobs), DONE)
    look(watched)
    refused, reserve, tried = min(broker("edge-a").sessions), MemoryBroker.reserve, Counter[str]()

    def refuse(self: MemoryBroker, reader: str, topic: str, **more: Any) -> Reservation:
        tried[reader] += 1
        if reader == refused:
            raise BrokerRefusedError("cannot reserve: not authorised")
        return reserve(self, reader, topic, **more)

    monkeypatch.setattr(MemoryBroker, "reserve", refuse)
    broker("edge-a").readers.clear()
    look(watched, FIRST_S)
    look(watched, 5)
    assert broker("edge-a").readers == {"A-in": "some", "B-in": "some"}
    other = max(broker("edge-a").sessions)
    assert tried == {refused: 1, other: 1}
    for _ in range(24):
        look(watched, 5)
    assert tried[other] == 1
    assert 2 <= tried[refused] <= 3, "once a minute"


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_is_released_while_it_is_renewed_leaves_nothing_behind(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """As by a change that was blocked and goes on: it ends the session before the broker is asked
    to keep it, or when it has been."""
    begin(watched)
    stop(watched)
    records, reserve = watched.service.records, MemoryBroker.reserve
    [(scope, session)] = records.sessions.all()

    def release(broker_: MemoryBroker) -> None:
        intended = replace(session, reserved=False)
        records.write(records.sessions.put(scope, intended))
        broker_.release(session.client_id, session.link.topic, last_reader=True)
        records.write(records.sessions.drop(scope, session.client_id, session.site))

    def reserve_beside(self: MemoryBroker, *args: Any, **more: Any) -> Reservation:
        monkeypatch.undo()
        if when == "before":
            release(self)
        made = reserve(self, *args, **more)
        if when == "after":
            release(self)
        return made

    monkeypatch.setattr(MemoryBroker, "reserve", reserve_beside)
    look(watched, 2 * FIRST_S)
    assert broker("edge-a").sessions == {}
    assert broker("edge-a").announced == set()
    assert broker("edge-a").readers == {"A-in": "none"}
    assert list_losses(watched) == []


@pytest.mark.parametrize("how", ["is being made anew", "is given up", "is of another scope"])
def test_a_session_that_others_have_taken_over_meanwhile_is_left_to_them(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """One that a change has just begun to make is in the store, but not reserved yet."""
    begin(watched)
    stop(watched)
    records, reserve_ = watched.service.records, MemoryBroker.reserve
    [(scope, session)] = records.sessions.all()

    def reserve_beside(self: MemoryBroker, *args: Any, **more: Any) -> Reservation:
        monkeypatch.undo()
        made = reserve_(self, *args, **more)
        if how == "is of another scope":
            moved = records.sessions.put("another", session)
            records.write(records.sessions.drop(scope, session.client_id, session.site), moved)
        else:
            changed = replace(session, reserved=False, released=how == "is given up")
            records.write(records.sessions.put(scope, changed))
        return made

    monkeypatch.setattr(MemoryBroker, "reserve", reserve_beside)
    look(watched, 2 * FIRST_S)
    assert set(broker("edge-a").sessions) == {session.client_id}


def test_a_broker_that_hangs_holds_up_nobody_else(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a session is renewed, a change of its composition begins and ends."""
    begin(watched)
    stop(watched)
    hangs, answers, reserve_ = Event(), Event(), MemoryBroker.reserve

    def hang(self: MemoryBroker, *args: Any, **more: Any) -> Reservation:
        monkeypatch.undo()
        hangs.set()
        assert answers.wait(LIMIT_S)
        return reserve_(self, *args, **more)

    monkeypatch.setattr(MemoryBroker, "reserve", hang)
    look_on = Thread(target=look, args=(watched, 2 * FIRST_S), daemon=True)
    look_on.start()
    assert hangs.wait(LIMIT_S)
    others = Thread(
        target=watched.service.compositions.apply,
        args=(composition(STOPPED, job_body("B", "cloud")), DONE),
        daemon=True,
    )
    others.start()
    others.join(LIMIT_S)
    assert not others.is_alive()
    answers.set()
    look_on.join(LIMIT_S)
    assert not look_on.is_alive()


def test_a_link_that_gets_another_reader_while_its_last_one_is_released_has_readers(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sinks wait for readers otherwise, until a later poll of the broker."""
    begin(watched)
    stop(watched)
    records, release = watched.service.records, MemoryBroker.release
    [(scope, session)] = records.sessions.all()
    left = replace(session, reserved=False, released=True)
    records.write(records.sessions.put(scope, left))

    def release_beside(self: MemoryBroker, *args: Any, **more: Any) -> None:
        monkeypatch.undo()
        records.write(records.sessions.put("another", replace(session, client_id="another")))
        self.reserve("another", session.link.topic)
        release(self, *args, **more)

    monkeypatch.setattr(MemoryBroker, "release", release_beside)
    watched.look(5)
    wait_for(lambda: watched.watch.sessions.idle)
    assert set(broker("edge-a").sessions) == {"another"}
    assert broker("edge-a").readers == {"A-in": "some"}
