"""The autopilot in a service: it polls on schedule, acts, gives reasons, and survives a restart."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest

from speck.clock import SystemClock, rfc3339
from speck.errors import InvalidError, NotFoundError, PermanentError
from speck.model.analysis import Analysis
from speck.model.incarnation import Session
from speck.model.link import Link
from speck.model.shown import render
from speck.model.values import JsonObject
from speck.placement.autopilot import Settings
from speck.service import Service, autopilot
from speck.service.advice import advice_of
from speck.spec.site_schema import site_from_data
from tests.analyses import analysis, as_analysis, describe_measured, predict
from tests.memory_fog import FAST, HASTY, memory_service, site_body
from tests.service_helpers import DONE, broker, composition, engine, look_anew
from tests.unit.service.test_placements import CLEAN, ENDS, MERGE
from tests.waiting import wait_for

RANKED = {"job_name": "clean", "composition": "c", "edge": "edge-a", "score": 9.0, "against": []}
ON = Settings(on=True, every_s=300.0, settle_s=600.0, agreeing=2)


class SetClock(SystemClock):
    """A clock whose time of day goes on when a test says so."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 31, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def later(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class Analyst:
    """Answers what a test gives it, for as many seconds back as it is asked."""

    def __init__(self, clock: SetClock):
        self.clock = clock
        self.more: JsonObject = {}
        self.windows_s: list[float] = []
        self.analyses: dict[str, JsonObject] = {}
        self.clean, self.wan = "cloud", 10_000.0
        self.true_rate, self.subtasks = 1000.0, 1
        self.ahead_s: float | None = None
        self.others: list[JsonObject] = []

    def begin(self, window_s: float, ahead_s: float | None = None) -> str:
        self.windows_s.append(window_s)
        self.ahead_s = ahead_s
        identity = f"a{len(self.windows_s)}"
        jobs = [
            describe_measured(
                "clean",
                self.clean,
                selectivity=0.1,
                true_processing_rate=self.true_rate,
                subtasks=self.subtasks,
            ),
            describe_measured("merge", "cloud", 10.0, selectivity=2.0),
            *self.others,
        ]
        window = {
            "from": rfc3339(self.clock.now() - timedelta(seconds=window_s)),
            "to": rfc3339(self.clock.now()),
            "seconds": window_s,
        }
        links = [{"composition": "c", "broker_site": "edge-a", "topic": "raw", "producers": []}]
        links[0] |= {"readers": [], "wan_bytes_per_s": self.wan}  # type: ignore[dict-item]
        body = analysis(jobs, id=identity, window=window, links=links)
        self.analyses[identity] = {**body, **self.more}
        return identity

    def get(self, analysis_id: str) -> Analysis:
        return as_analysis(self.analyses[analysis_id])

    def newest(self, composition: str) -> Analysis | None:
        return None


class Flight:
    """A service with the autopilot on, looked at as its loop would."""

    def __init__(self, service: Service, clock: SetClock):
        self.service, self.clock, self.analyst = service, clock, Analyst(clock)
        service.placements.analyses = self.analyst

    def round(self, seconds: float = 300.0) -> str:
        """One analysis later: the last log line of the autopilot."""
        self.clock.later(seconds)
        self.service.autopilots.run_round()
        self.service.autopilots.run_round()
        return self.messages()[-1]

    def messages(self) -> list[str]:
        return [f"{e['kind']}: {e['message']}" for e in self.log()]

    def log(self) -> list[JsonObject]:
        log: list[JsonObject] = render(self.service.autopilots.get("c").log)
        return log

    def sites(self) -> dict[str, str]:
        for running in self.service.changes.all_under_way():
            assert running.wait_for_end(20)
        return {job.job_name: job.site for job in self.service.jobs.all()}


@pytest.fixture
def flight(tmp_path: Path) -> Iterator[Flight]:
    clock = SetClock()
    sites = map(site_body, ("edge-a", "edge-b", "cloud"))
    with memory_service(tmp_path, sites, clock=clock) as service:
        service.compositions.apply(composition(CLEAN, MERGE, **ENDS), DONE)
        clock.later(1000)
        flight = Flight(service, clock)
        service.autopilots.put("c", ON)
        yield flight


def test_it_is_off_until_it_is_switched_on(flight: Flight) -> None:
    flight.service.autopilots.put("c", Settings())
    for _ in range(3):
        flight.round()
    assert flight.analyst.windows_s == []
    assert flight.service.autopilots.get("c").on is False


def test_it_moves_what_two_analyses_advise_and_tells_what_came_of_it(flight: Flight) -> None:
    assert flight.round() == "wait: 1 of 2 consecutive analyses agree"
    assert flight.round() == (
        "act: the autopilot moves clean to edge-a of c: it saves 90% of the bytes between sites"
    )
    assert flight.sites() == {"clean": "edge-a", "merge": "cloud"}
    (change,) = [entry["change"] for entry in flight.log() if entry["kind"] == "act"]
    assert flight.service.changes.get(change).by == "autopilot"
    flight.analyst.clean, flight.analyst.wan = "edge-a", 1_050.0
    assert flight.round() == "wait: everything is already where the policy wants it"
    assert flight.messages()[-2] == (
        "outcome: between sites c sent 10000 B/s before it was moved;"
        " 1000 B/s was predicted, 1050 B/s was measured"
    )
    messages = [e.message for e in flight.service.records.events.after() if e.kind == "autopilot"]
    assert [text.split(" of c")[0] for text in messages] == [
        "the autopilot",
        "the autopilot moves clean to edge-a",
        "between sites c sent 10000 B/s before it was moved; 1000 B/s was predicted,"
        " 1050 B/s was measured",
    ]


def test_it_looks_on_schedule_and_only_at_what_came_after_the_last_change(flight: Flight) -> None:
    flight.round(0)
    flight.round(100)
    assert flight.analyst.windows_s == [300.0]
    flight.service.compositions.apply(composition({**CLEAN, "args": ["x"]}, MERGE, **ENDS), DONE)
    flight.round(50)
    assert flight.analyst.windows_s == [300.0]  # not even due
    flight.round(200)
    assert flight.analyst.windows_s == [300.0, 250.0]
    assert "must settle for another 350 s" in flight.messages()[-1]


def test_weak_evidence_and_a_silent_site_hold_it_up(flight: Flight) -> None:
    flight.analyst.more = {"ranking": [{**RANKED, "confidence": "low"}]}
    for _ in range(3):
        assert flight.round() == (
            "wait: the evidence is too weak: clean: low confidence: it was measured for a short"
            " time only"
        )
    flight.analyst.more = {}
    flight.round()
    engine("edge-b").unreachable = True
    look_anew(flight.service)
    assert flight.round() == "wait: 1 of 3 sites do not answer"
    engine("edge-b").unreachable = False
    look_anew(flight.service)
    assert flight.round().startswith("act: ")


def test_with_scale_a_job_that_cannot_keep_up_gets_more_subtasks(flight: Flight) -> None:
    flight.service.autopilots.put("c", Settings(True, policy="stay", scale=True))
    flight.analyst.true_rate = 70.0  # 100 records/s arrive
    assert flight.round() == "wait: 1 of 2 consecutive analyses agree"
    assert flight.round().startswith(
        "act: the autopilot scales clean to 2 subtasks of c: clean gets 2 subtasks, not 1:"
    )
    assert flight.sites() == {"clean": "cloud", "merge": "cloud"}
    flight.analyst.true_rate, flight.analyst.subtasks = 140.0, 2
    assert flight.round(1000) == "wait: everything is already where the policy wants it"
    flight.analyst.true_rate = 2000.0
    assert flight.round(1000) == "wait: 1 of 2 consecutive analyses agree"
    assert "scales clean to 1 subtask of c: clean gets 1 subtask, not 2:" in flight.round()
    flight.sites()
    flight.analyst.true_rate, flight.analyst.subtasks = (
        70.0,
        1,
    )  # back at once: nothing is lost by more subtasks
    flight.round(700)
    assert "scales clean to 2 subtasks" in flight.round()


def test_it_moves_before_a_forecast_fills_the_uplink(flight: Flight) -> None:
    """10 kB/s leave edge-a, whose uplink has room for 45 kB/s; 60 kB/s are forecast."""
    body = {**site_body("edge-a"), "uplink_mbps": 0.4}
    flight.service.sites.put(site_from_data(body))
    flight.service.autopilots.put("c", Settings(True, min_gain=0.99, agreeing=1))
    assert flight.round().startswith("wait: it would save 90%")
    assert flight.analyst.ahead_s == 0.0
    flight.service.autopilots.put("c", Settings(True, min_gain=0.99, agreeing=1, ahead_s=1200.0))
    high = {"site": "edge-a", "topic": "raw", "rate": 500.0, "low": 400.0, "high": 600.0}
    high |= {"at": "2026-01-31T13:00:00.000Z", "method": "holt", "mape": 0.2}
    flight.analyst.more = {"forecast": [high]}
    message = flight.round()
    assert flight.analyst.ahead_s == 1200.0
    assert message.startswith(
        "act: the autopilot moves clean to edge-a of c: it fixes limits that are violated within"
        " 1200 s: "
    ), message
    (placement,) = [e["placement"] for e in flight.log() if e["kind"] == "act"]
    notes = flight.service.placements.get(placement).comparison.notes
    assert (
        "planned for the forecast of raw at edge-a: up to 600 records/s until"
        " 2026-01-31T13:00:00.000Z (holt, mean error 20%)"
    ) in notes


def test_a_requirement_that_is_not_kept_counts_where_the_advice_is_better_by_it() -> None:
    measured = as_analysis(analysis([]))
    better, unknown = predict(rates=(10.0, 20.0)), predict(rates=(10.0, None))
    assert advice_of(better, measured, ["min_rate"]).broken == ("min_rate is not kept",)
    assert advice_of(better, measured, ["max_latency_ms"]).broken == ()
    assert advice_of(unknown, measured, ["min_rate"]).broken == ()


def test_it_moves_one_composition_at_a_time(flight: Flight) -> None:
    wash = {**CLEAN, "job_name": "wash", "sink_topic": "washed"}
    use = {**MERGE, "job_name": "use", "source_topic": "washed", "sink_topic": "used"}
    ends = {**ENDS, "outputs": [{"site": "cloud", "topic": "used"}]}
    flight.service.compositions.apply(composition(wash, use, name="d", **ends), DONE)
    flight.clock.later(1000)
    flight.service.autopilots.put("d", ON)
    more = [
        describe_measured("wash", "cloud", selectivity=0.1, composition="d"),
        describe_measured("use", "cloud", 10.0, selectivity=2.0, composition="d"),
    ]
    flight.analyst.others, flight.analyst.more = more, {"composition": None}
    flight.round()
    engine("edge-a").hold_starts = True
    try:
        assert flight.round().startswith("act: ")
        message = flight.service.autopilots.get("d").log[-1].message
        assert message.endswith(" of c is under way"), message
    finally:
        engine("edge-a").let_go()
    assert flight.sites()["clean"] == "edge-a"
    assert flight.sites()["wash"] == "cloud"
    flight.round()
    assert flight.service.autopilots.get("d").log[-1].kind == "act"


def test_an_analysis_that_fails_is_told_and_the_next_is_made(flight: Flight) -> None:
    flight.analyst.more = {"state": "failed", "error": "no Java"}
    assert flight.round() == "trouble: analysis a1 is failed: no Java"
    flight.analyst.more = {}
    assert flight.round() == "wait: 1 of 2 consecutive analyses agree"


def test_one_that_takes_long_is_waited_for(flight: Flight) -> None:
    flight.analyst.more = {"state": "running"}
    before = flight.messages()
    assert flight.round() == before[-1]
    flight.analyst.analyses["a1"] = {**flight.analyst.analyses["a1"], "state": "done"}
    assert flight.round(1) == "wait: 1 of 2 consecutive analyses agree"
    assert len(flight.analyst.windows_s) == 1


def test_what_cannot_be_begun_is_told_and_tried_again(
    flight: Flight, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> str:
        raise PermanentError("cannot analyse now")

    with monkeypatch.context() as broken:
        broken.setattr(flight.analyst, "begin", refuse)
        assert flight.round() == "trouble: cannot analyse now"
    assert flight.round() == "wait: 1 of 2 consecutive analyses agree"


def test_a_move_that_is_refused_is_told_and_not_tried_at_once(
    flight: Flight, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermanentError("cannot carry the state")

    flight.round()
    with monkeypatch.context() as broken:
        broken.setattr(flight.service.compositions, "apply", refuse)
        assert flight.round() == "trouble: cannot carry the state"
    assert flight.round() == "wait: the last change must settle for another 300 s"
    assert not any(line.startswith("outcome") for line in flight.messages())


def test_a_move_that_would_drop_a_queue_is_not_made(flight: Flight) -> None:
    """An outside reader's session is left whose release has failed: any apply would end it."""
    records = flight.service.records
    left = Session("q-db", Link("cloud", "left"), "cloud", None, fed_outside=True)
    records.write(records.sessions.put("c", left))
    broker("cloud").subscribe("q-db", "left")
    flight.round()
    changes = len(flight.service.changes.all())
    line = flight.round()
    assert line.startswith("trouble: cannot apply composition 'c' without --drop-queues")
    assert "drops the queue of q-db at cloud/left (number not known)" in line
    assert len(flight.service.changes.all()) == changes
    assert "q-db" in broker("cloud").sessions


class Killed(BaseException):
    """The service ends here."""


def test_a_move_that_a_stop_of_the_service_swallowed_has_no_outcome(
    flight: Flight, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was noted, and the service was killed before the change was stored."""

    def die(*_: Any) -> None:
        raise Killed

    flight.round()
    with monkeypatch.context() as dying:
        dying.setattr(flight.service.compositions, "apply", die)
        with pytest.raises(Killed):
            flight.round()
    flight.service.close()
    again = Service(flight.service.config, flight.clock, bounds=FAST, patience=HASTY)
    try:
        flight.service, again.placements.analyses = again, flight.analyst
        flight.round()
        assert not any(line.startswith("outcome") for line in flight.messages())
    finally:
        again.close()


def test_it_is_switched_off_while_a_policy_searches(
    flight: Flight, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the search, and what it finds is not carried out any more."""
    flight.round()
    make = flight.service.placements.make

    def slowly(*args: Any, **options: Any) -> Any:
        answer = make(*args, **options)
        off = Thread(target=flight.service.autopilots.put, args=("c", Settings()))
        off.start()
        off.join(10)
        assert not off.is_alive()
        return answer

    monkeypatch.setattr(flight.service.placements, "make", slowly)
    flight.round()
    assert flight.messages()[-1].startswith("settings: the autopilot of c is off")
    assert flight.sites()["clean"] == "cloud"


def test_a_stop_of_the_service_does_not_wait_for_a_search(
    flight: Flight, monkeypatch: pytest.MonkeyPatch
) -> None:
    flight.round()
    searching, stopped = Event(), Event()
    make = flight.service.placements.make

    def search(*args: Any, **options: Any) -> Any:
        searching.set()
        assert stopped.wait(60)
        return make(*args, **options)

    monkeypatch.setattr(autopilot, "CLOSE_S", 0.01)
    monkeypatch.setattr(flight.service.placements, "make", search)
    flight.clock.later(300)
    flight.service.autopilots.start()
    assert searching.wait(120)
    flight.service.autopilots.close()
    stopped.set()
    (thread,) = [each for each in enumerate_threads() if each.name == "autopilot"]
    thread.join(20)
    assert not thread.is_alive()
    assert flight.sites()["clean"] == "cloud"


def test_a_fault_of_its_own_is_told_once_an_analysis(
    flight: Flight, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("window")

    monkeypatch.setattr(flight.service.placements, "make", fail)
    for _ in range(2):
        message = flight.round()
        assert message.startswith("trouble: cannot analyse it: KeyError: 'window'")
    assert len(flight.analyst.windows_s) == 2


def test_it_goes_on_after_a_restart(flight: Flight) -> None:
    flight.round()
    flight.service.close()
    again = Service(flight.service.config, flight.clock, bounds=FAST, patience=HASTY)
    try:
        flight.service, again.placements.analyses = again, flight.analyst
        assert flight.round().startswith("act: ")
        assert flight.sites()["clean"] == "edge-a"
    finally:
        again.close()


@pytest.mark.parametrize("on", [True, False])
def test_a_composition_that_is_gone_takes_its_autopilot_along(flight: Flight, on: bool) -> None:
    flight.service.autopilots.put("c", ON if on else Settings())
    flight.service.compositions.delete("c", 20.0)
    flight.clock.later(300)
    flight.service.autopilots.run_round()
    assert [key for key, _ in flight.service.records.store.scan("pilot")] == []
    with pytest.raises(NotFoundError):
        flight.service.autopilots.get("c")


def test_a_policy_that_does_not_exist_is_refused(flight: Flight) -> None:
    with pytest.raises(InvalidError, match="by policy best"):
        flight.service.autopilots.put("c", Settings(on=True, policy="best"))


def test_its_loop_runs_by_itself(flight: Flight) -> None:
    flight.service.autopilots.start()
    wait_for(lambda: flight.analyst.windows_s and len(flight.messages()) >= 2, "two words")
    assert flight.messages()[-1] == "wait: 1 of 2 consecutive analyses agree"
