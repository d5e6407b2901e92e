"""The watch: what it repairs, what it leaves, and what it tells."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from binders.memory import World
from speck.errors import PermanentError
from speck.model.composition import composition_of_one
from speck.model.job_state import JobState
from speck.model.observation import RunState
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import DONE, broker, composition, engine, job, job_body, look_anew
from tests.waiting import wait_for
from tests.watching import Watched, deploy, incarnation

SITES = ("edge-a", "edge-b", "cloud")


def test_what_runs_is_left_alone_and_makes_no_event(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))

    assert watched.repairs == []
    assert watched.events("job") == watched.events("drift") == []


def test_a_round_asks_each_site_once_and_a_reader_of_states_nothing(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))
    before = {site: Counter(kind for kind, _ in engine(site).calls) for site in SITES}
    numbers = {site: broker(site).count("view") for site in SITES}
    watched.time.passed += 5
    watched.watch.poll()
    for _ in range(3):
        assert {job.state for job in watched.service.jobs.all()} == {"running"}
        assert watched.service.sites.all(state="up") == watched.service.sites.all()
    for site in SITES:
        asked = Counter(kind for kind, _ in engine(site).calls) - before[site]
        assert asked["view"] == 1
        assert asked["checkpointing"] <= 1
        assert broker(site).count("view") == numbers[site] + 1


@pytest.mark.parametrize("seed", range(4))
def test_users_are_shown_the_states_by_which_the_watch_repairs(watched: Watched, seed: int) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"), drift="report")
    chance = Random(seed)
    for _ in range(12):
        pool = engine(chance.choice(("edge-a", "cloud")))
        jobs = list(pool.jobs.values())
        if chance.random() < 0.3:
            pool.unreachable = not pool.unreachable
        elif jobs and chance.random() < 0.8:
            jobs[0].state = chance.choice(list(RunState))
        else:
            pool.forget_jobs()
        watched.look(chance.choice((1.0, 20.0)))
        for key, memory in watched.watch._memory.jobs.items():
            (shown,) = watched.service.states.of({}, key[0], None, [key[1]])
            assert shown.status.momentary is memory.state
            problem = None if memory.state is JobState.RUNNING else shown.status.state
            assert problem in (None, memory.state, JobState.RESTARTING)


def test_a_job_that_failed_is_repaired_and_the_others_are_left(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))
    engine("edge-a").fail(incarnation(watched, "A"), "no such sensor")

    watched.look()

    assert watched.repairs == [("c", frozenset({"B"}))]
    assert watched.events("job") == ["A has failed at edge-a: no such sensor; it is started again"]
    assert watched.job("A").state == "failed"
    assert watched.job("A").error == "no such sensor"


def test_a_job_that_is_cancelled_behind_specks_back_is_drift(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    watched.service.connections.engine("edge-a").cancel(incarnation(watched, "A"))

    watched.look()

    assert watched.repairs == [("c", frozenset())]
    assert watched.events("drift") == [
        "A has ended at edge-a though speck did not stop it; it is started again"
    ]


def test_with_drift_report_it_is_only_told(watched: Watched) -> None:
    deploy(watched, job_body("A"), drift="report")
    watched.service.connections.engine("edge-a").cancel(incarnation(watched, "A"))
    for _ in range(10):
        watched.look()

    assert watched.repairs == []
    assert watched.events("drift") == [
        "A has ended at edge-a though speck did not stop it; it is not repaired, since its"
        " composition says drift: report"
    ]
    look_anew(watched.service)
    assert [it.job_name for it in watched.service.composition_views.drift("c")] == ["A"]


def test_what_a_person_cancelled_is_not_said_to_be_started_again(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))
    changes = watched.service.changes
    engine("edge-a").unreachable = True
    changed = composition(job_body("A", args=["x"]), job_body("B", "cloud"))
    change = watched.service.compositions.apply(changed, ApplyRequest()).change
    wait_for(lambda: changes.get(change).state == "blocked")
    watched.service.runner.cancel(change)
    assert changes.await_end(change, 20)
    watched.look()
    engine("cloud").fail(incarnation(watched, "B"), "bad")

    watched.look()

    assert watched.repairs == []
    assert watched.events("job") == [
        "B has failed at cloud: bad; it is not repaired, since the last change was cancelled:"
        " apply again"
    ]


def test_a_lost_job_is_repaired_when_it_is_still_unknown_a_second_later(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    engine("edge-a").forget_jobs()

    watched.look()
    assert watched.repairs == []
    assert watched.events("job") == ["A is lost: the engine of edge-a answers and does not know it"]
    watched.look(1)
    assert watched.repairs == [("c", frozenset())]


def test_a_lost_job_whose_rewiring_has_failed_is_left_to_the_next_change(watched: Watched) -> None:
    """Started alone at its new links it would go on behind what others have not taken yet."""
    deploy(watched, job_body("A"), job_body("B"))
    engine("edge-a").refuse("try_main", 1, PermanentError("its main fails"))
    rewired = composition(job_body("A", sink_topic="x"), job_body("B"))
    body = watched.service.compositions.apply(rewired, DONE)
    assert watched.service.changes.get(body.change).state == "failed"
    engine("edge-a").forget_jobs()
    watched.look()
    watched.look(1)
    watched.look(1)
    assert set(watched.repairs) == {("c", frozenset({"A"}))}
    (told,) = (each for each in watched.events("job") if each.startswith("A "))
    assert "its newest revision gives it other links" in told


def test_a_job_that_waits_for_slots_says_so_once(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B"))
    pool = engine("edge-a")
    pool.fail(incarnation(watched, "A"), "bad")
    pool.total = 1
    for _ in range(3):
        watched.look()

    assert watched.repairs == []
    assert watched.events("job")[-1] == "A: it waits for slots at edge-a: 0 are free, it needs 1"
    assert len(watched.events("job")) == 2
    pool.total = 2
    watched.look()
    assert watched.repairs == [("c", frozenset({"B"}))]


def test_a_job_posted_alone_is_watched_too(watched: Watched) -> None:
    watched.service.jobs.post(job("A"), 20)
    watched.look()
    watched.look()
    engine("edge-a").fail(incarnation(watched, "A", composition_of_one("A")), "bad")

    watched.look()

    assert watched.repairs == [(composition_of_one("A"), frozenset())]


def test_what_speck_stopped_stays_stopped(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    watched.service.compositions.apply(composition(job_body("A", state="stopped")), DONE)
    for _ in range(3):
        watched.look()

    assert watched.repairs == []
    assert watched.events("drift") == watched.events("job") == []


def test_silence_is_told_once_and_mends_nothing(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))
    engine("edge-a").unreachable = True
    for _ in range(5):
        watched.look()

    [event] = watched.events("site")[len(SITES) :]
    assert event.startswith("site edge-a is unreachable: cannot reach")
    assert watched.watch._memory.jobs["c", "A"].state is JobState.UNREACHABLE
    engine("edge-a").unreachable = False
    watched.look()
    assert watched.events("site")[-1].startswith("site edge-a answers again after ")
    assert watched.repairs == []


def test_when_two_of_three_sites_vanish_at_once_nothing_is_repaired(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))
    engine("edge-a").unreachable = engine("edge-b").unreachable = True
    engine("cloud").fail(incarnation(watched, "B"), "bad")
    for _ in range(5):
        watched.look()
    assert watched.repairs == []
    assert watched.events("site")[-1] == (
        "2 of 3 sites became unreachable at the same time (edge-a, edge-b): no job is moved or"
        " repaired until they are back"
    )

    engine("edge-a").unreachable = engine("edge-b").unreachable = False
    watched.look()

    assert watched.repairs == [("c", frozenset({"A"}))]
    assert watched.events("site")[-1] == "enough sites are back: repairs continue"


def test_a_job_that_gets_no_checkpoint_done_is_shown_as_stalled(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    World.current().auto_pump = False  # so that no checkpoint completes
    for _ in range(8):
        watched.look()

    assert watched.job("A").state == "stalled"
    assert str(watched.job("A").error).startswith("no checkpoint completed for ")
    [event] = watched.events("job")
    assert event.startswith("A is stalled at edge-a: no checkpoint completed for ")


def test_beside_a_change_that_is_blocked_the_others_are_looked_after(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))
    engine("edge-a").unreachable = True
    changed = composition(job_body("A", args=["x"]), job_body("B", "cloud"))
    answer = watched.service.compositions.apply(changed, ApplyRequest())
    changes = watched.service.changes
    wait_for(lambda: changes.get(answer.change).state == "blocked")
    watched.look()
    engine("cloud").fail(incarnation(watched, "B"), "bad")

    watched.look()

    assert watched.repairs == [("c", frozenset({"A"}))]
    assert watched.events("job") == ["B has failed at cloud: bad; it is started again"]
    watched.service.runner.cancel(answer.change)


def test_a_job_under_change_is_left_to_its_change(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    engine("edge-a").fail(incarnation(watched, "A"), "bad")
    engine("edge-a").hold_starts = True
    answer = watched.service.compositions.apply(composition(job_body("A")), ApplyRequest())
    for _ in range(3):
        watched.look()
    assert watched.repairs == []

    engine("edge-a").let_go()
    assert watched.service.changes.await_end(answer.change, 20)
    for _ in range(3):
        watched.look()
    assert watched.repairs == []


def test_the_watch_gives_way_to_changes_but_not_twice_running(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions: list[str] = []

    def note_wait(_: object) -> bool:
        actions.append("gave way")
        return True

    monkeypatch.setattr(service.changes, "await_calm", note_wait)
    monkeypatch.setattr(service.watch, "poll", lambda: actions.append("looked"))
    monkeypatch.setattr(service.watch, "_every_s", 0.01)
    service.watch.start()
    wait_for(lambda: len(actions) >= 5)
    assert actions[:5] == ["looked", "gave way", "looked", "looked", "gave way"]
