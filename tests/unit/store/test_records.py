"""Typed records over a real store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from speck.clock import SystemClock, rfc3339
from speck.errors import StoreError
from speck.model.accepted import Accepted
from speck.model.change import Change, ChangeState, OperationRecord
from speck.model.composition import composition_of_one
from speck.model.ids import sink_client_id
from speck.model.incarnation import EndState, Incarnation, Session
from speck.model.job_change import Action, JobChange
from speck.model.job_operations import Upload
from speck.model.link import Link
from speck.model.plan import Plan, Step
from speck.model.plan_outline import OperationState, PlanOutline
from speck.spec.site_schema import site_from_data
from speck.store.answers import FirstAnswer
from speck.store.records import Records
from speck.store.tables import Batch
from tests.memory_fog import site_body
from tests.sample_job import JOB, LINK
from tests.waiting import wait_for

ALONE = composition_of_one("A")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def records(path: Path) -> Iterator[Records]:
    opened = Records.open(path, SystemClock())
    yield opened
    opened.store.close()


def reopened(records: Records, path: Path) -> Records:
    records.store.close()
    return Records.open(path, SystemClock())


def session(client_id: str, link: Link = LINK) -> Session:
    return Session(client_id, link, "a", "A")


def test_an_installation_gets_its_uuid_once(records: Records, path: Path) -> None:
    again = reopened(records, path)
    assert again.installation == records.installation
    assert len(again.installation) == 36
    again.store.close()


def test_a_damaged_store_is_not_taken_for_a_first_start(records: Records, path: Path) -> None:
    records.store.close()
    (path / "CURRENT").unlink()
    with pytest.raises(StoreError, match="no CURRENT file there"):
        Records.open(path, SystemClock())


def test_sites_come_back_as_they_were_put(records: Records) -> None:
    site = site_from_data({**site_body("edge-a"), "uplink_mbps": 10})
    records.write(records.sites.put(site))
    assert records.sites.all() == {"edge-a": site}
    records.write(records.drop_site("edge-a"))
    assert records.sites.all() == {}


def test_scopes_of_compositions_and_of_jobs_alone_do_not_meet(records: Records) -> None:
    first, second = Incarnation(JOB, 1, "1"), Incarnation(JOB, 2, "2")
    records.write(
        records.incarnations.put("c", first),
        records.incarnations.put(ALONE, second),
        records.incarnations.put("c2", second),
        records.sessions.put("c", session("r-1")),
    )
    inventory = records.inventory("c")
    assert dict(inventory.jobs) == {"A": first}
    assert inventory.sessions == (session("r-1"),)
    assert dict(inventory.attempts) == {"A": 1}
    assert records.incarnations.get(ALONE, "A") == second
    assert set(records.incarnations.all()) == {
        ("c", "A"),
        (ALONE, "A"),
        ("c2", "A"),
    }


def test_a_removed_job_leaves_the_highest_attempt_behind(records: Records) -> None:
    records.write(records.incarnations.put("c", Incarnation(JOB, 7, "7")))
    records.write(records.incarnations.drop("c", "A"))
    inventory = records.inventory("c")
    assert inventory.jobs == {}
    assert inventory.attempts == {"A": 7}
    assert records.incarnations.attempts("c", "A") == 7
    assert records.incarnations.attempts("c", "B") == 0


def test_links_read_outside_are_those_of_other_scopes(records: Records, path: Path) -> None:
    other = Link("b", "T-9")
    records.write(
        records.sessions.put("c", session("r-1")),
        records.sessions.put("d", session("r-2", other)),
    )
    assert records.sessions.links_read_outside([LINK, other], {"c"}) == {other}
    assert records.sessions.links_read_outside([LINK], {"c"}) == frozenset()
    assert records.sessions.links_read_outside([LINK, other], {"c", "d"}) == frozenset()
    again = reopened(records, path)
    assert again.sessions.links_read_outside([LINK, other], {"d"}) == {LINK}
    again.write(again.sessions.drop("c", "r-1", "a"))
    assert again.sessions.links_read_outside([LINK, other], {"d"}) == frozenset()
    again.store.close()


def test_sinks_outside_are_those_of_other_scopes_by_the_link_that_they_feed(
    records: Records, path: Path
) -> None:
    other = replace(JOB, job_name="B", source=Link("b", "T-9"))
    records.write(
        records.incarnations.put("c", Incarnation(JOB, 1, "1")),
        records.incarnations.put("d", Incarnation(other, 1, "2")),
    )
    ours, theirs = (
        sink_client_id(records.installation, j.job_name, j.source, j.sink) for j in (JOB, other)
    )
    assert records.incarnations.sinks_outside([JOB.sink, JOB.source], {"c"}) == {JOB.sink: [theirs]}
    assert records.incarnations.sinks_outside([JOB.sink, JOB.source], {"d"}) == {JOB.sink: [ours]}
    assert records.incarnations.sinks_outside([JOB.sink, JOB.source], {"c", "d"}) == {}
    again = reopened(records, path)
    assert again.incarnations.sinks_outside([JOB.sink, JOB.source], ()) == {
        JOB.sink: [ours, theirs]
    }
    again.write(again.incarnations.drop("c", "A"))
    assert again.incarnations.sinks_outside([JOB.sink, JOB.source], ()) == {JOB.sink: [theirs]}
    again.store.close()


def test_sessions_of_one_scope_are_listed(records: Records) -> None:
    assert records.sessions.of_scope("c") == []
    records.write(
        records.sessions.put("c", session("r-2")),
        records.sessions.put("c", session("r-1")),
        records.sessions.put("d", session("r-3")),
    )
    assert records.sessions.of_scope("c") == [session("r-1"), session("r-2")]


def test_one_client_id_may_have_a_session_at_each_broker(records: Records) -> None:
    there = Session("dashboard", Link("b", "T-1"), "b", None)
    here = Session("dashboard", LINK, "a", None)
    records.write(records.sessions.put("c", here), records.sessions.put("c", there))
    assert records.inventory("c").sessions == (here, there)
    assert records.sessions.get("c", "dashboard", "b") == there
    assert records.sessions.of_client("dashboard") == [("c", here), ("c", there)]
    assert records.sessions.of_client("display") == []


def test_a_change_is_kept_with_its_operations_in_order(records: Records) -> None:
    steps = tuple(Step(n, Upload("a", f"{n}" * 8), (), "needed") for n in range(1, 13))
    change = Change("1", Plan("c", (JobChange("A", Action.ADD, "", None, "a"),), steps), 3, "now")
    operation_record = OperationRecord(steps[0], OperationState.DONE, "now", "later", 2)
    records.write(
        records.changes.put(change),
        records.changes.put_operations("1", change.operations),
        records.changes.put_operations("1", [operation_record]),
    )
    stored_change = records.changes.get("1")
    assert stored_change is not None
    assert stored_change.revision == 3
    assert [o.id for o in stored_change.operations] == list(range(1, 13))
    assert (
        stored_change.operations[0].state,
        stored_change.operations[0].attempts,
    ) == ("done", 2)
    assert [head.id for head in records.changes.heads()] == ["1"]
    assert records.changes.get("2") is None


def test_events_are_numbered_on_over_a_restart(records: Records, path: Path) -> None:
    records.write(records.events.make("site", "one", site="a"), records.events.make("site", "two"))
    again = reopened(records, path)
    again.write(again.events.make("site", "three"))
    assert [(e.id, e.message) for e in again.events.after()] == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
    ]
    assert [e.message for e in again.events.after(2)] == ["three"]
    assert next(again.events.after()).site == "a"
    again.store.close()


def test_an_event_gets_its_number_when_it_is_written(records: Records) -> None:
    early = records.events.make("site", "made first, written last")
    records.write(records.events.make("site", "made last, written first"))
    records.write(early)
    assert [e.message for e in records.events.after()] == [
        "made last, written first",
        "made first, written last",
    ]


def test_who_follows_events_misses_none_however_many_write(records: Records) -> None:
    def write() -> None:
        for _ in range(50):
            records.write(records.events.make("site", "x"))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    ids: list[int] = []
    while any(thread.is_alive() for thread in threads):
        ids += [e.id for e in records.events.after(ids[-1] if ids else 0)]
    ids += [e.id for e in records.events.after(ids[-1] if ids else 0)]
    assert ids == list(range(1, 201))


def test_what_is_written_together_is_written_as_one(records: Records) -> None:
    with pytest.raises(TypeError):
        records.write({"site/a": {"x": 1}}, {"site/b": {"x": object()}})
    assert records.store.get("site/a") is None


def test_who_writes_at_the_same_time_shares_one_synced_write(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    writing, go_on = threading.Event(), threading.Event()
    write = records.store.write

    def slow(batch: Batch) -> None:
        batches.append(len(batch))
        writing.set()
        assert go_on.wait(20)
        write(batch)

    monkeypatch.setattr(records.store, "write", slow)
    threads = [
        threading.Thread(
            target=records.write, args=({f"x/{n}": {"n": n}}, records.events.make("x", ""))
        )
        for n in range(9)
    ]
    threads[0].start()
    assert writing.wait(20)
    for thread in threads[1:]:
        thread.start()
    wait_for(lambda: records.queued >= 8, "all to queue")
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert batches == [2, 16]
    assert len(list(records.store.scan("x/"))) == 9
    assert [event.id for event in records.events.after()] == list(range(1, 10))


def test_what_cannot_be_written_spoils_only_its_own(records: Records) -> None:
    outcomes: list[str] = []
    lock = threading.Lock()

    def write(n: int) -> None:
        try:
            bad = object() if n % 2 else 0
            records.write({f"x/{n}": {"n": bad}}, records.events.make("x", ""))
            outcome = "written"
        except TypeError:
            outcome = "refused"
        with lock:
            outcomes.append(outcome)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(outcomes) == ["refused"] * 8 + ["written"] * 8
    assert len(list(records.store.scan("x/"))) == 8
    assert [event.id for event in records.events.after()] == list(range(1, 9))


def test_only_the_newest_events_are_kept(
    records: Records, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    monkeypatch.setattr("speck.store.retention.EVENTS", 3)
    for n in range(5):
        records.write(records.events.make("x", str(n)))
    assert [event.id for event in records.events.after()] == [3, 4, 5]
    again = reopened(records, path)
    again.write(again.events.make("x", "5"))
    assert [event.id for event in again.events.after()] == [4, 5, 6]
    again.store.close()


def change(identity: str, composition: str = "c") -> Change:
    step = Step(1, Upload("a", "1" * 8), (), "needed")
    return Change(identity, Plan(composition, (), (step,)), 1, "now")


def put(records: Records, record: Change) -> None:
    records.write(
        records.changes.put(record), records.changes.put_operations(record.id, record.operations)
    )


def test_only_the_newest_changes_of_each_scope_are_kept(
    records: Records, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    monkeypatch.setattr("speck.store.retention.CHANGES_OF_A_SCOPE", 2)
    for n in range(3):
        put(records, change(f"{n}c"))
        put(records, change(f"{n}j", ALONE))
    assert [head.id for head in records.changes.heads()] == ["1c", "1j", "2c", "2j"]
    assert records.changes.operations("0c") == []
    again = reopened(records, path)
    put(again, change("1c"))  # its outcome: no new one
    put(again, change("3c"))
    assert [head.id for head in again.changes.heads()] == ["1j", "2c", "2j", "3c"]
    again.store.close()


def test_only_the_newest_changes_are_kept_over_all_scopes(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speck.store.retention.CHANGES", 2)
    for n in range(4):
        record = change(f"{n}", composition_of_one(f"job-{n}"))
        record.state = ChangeState.BLOCKED if n == 0 else ChangeState.DONE
        put(records, record)
    assert [head.id for head in records.changes.heads()] == ["0", "3"], "0 is still under way"


def test_answers_to_idempotency_keys_are_kept_for_a_day(records: Records, path: Path) -> None:
    old, new = "2020-01-01T00:00:00.000Z", rfc3339(SystemClock().now())
    accepted = Accepted("1", "c", 1, PlanOutline.of(Plan("c", (), ())))
    put = records.answers.put
    records.write(
        put("me", "1", FirstAnswer("", old, accepted)),
        put("me", "2", FirstAnswer("", new, accepted)),
    )
    again = reopened(records, path)
    again.write(again.answers.put("me", "3", FirstAnswer("", new, accepted)))
    assert [again.answers.get("me", key) is not None for key in "123"] == [False, True, True]
    again.store.close()


def test_attempts_never_fall_below_the_highest_there_was(records: Records) -> None:
    """An adopted job counts from its own start; its new scope may have used higher ones."""
    records.write(records.incarnations.put_attempts("c", "A", 5))
    records.write(records.incarnations.put("c", Incarnation(JOB, 1, "0" * 32, end=EndState.ENDED)))
    assert records.incarnations.attempts("c", "A") == 5


def test_sites_are_known_without_reading_them_each_time(
    records: Records, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call to an engine or broker asks for them."""
    a, b = (site_from_data(site_body(name)) for name in ("edge-a", "edge-b"))
    records.write(records.sites.put(b), records.sites.put(a))
    with monkeypatch.context() as patched:
        patched.setattr(records.store, "scan", lambda *_, **__: pytest.fail("it was read"))
        assert list(records.sites.all().items()) == [("edge-a", a), ("edge-b", b)]
    with pytest.raises(TypeError):
        records.write(records.drop_site("edge-b"), {"x": {"x": object()}})
    assert "edge-b" in records.sites.all()
    records.write(records.drop_site("edge-b"))
    assert records.sites.all() == {"edge-a": a}
    again = reopened(records, path)
    assert again.sites.all() == {"edge-a": a}
    again.store.close()


def test_what_runs_is_read_once_and_known_as_it_is_written(records: Records, path: Path) -> None:
    """All looks at 1000 sites ask for it."""
    incarnation_1 = Incarnation(JOB, 1, "1" * 32)
    records.write(
        records.incarnations.put("demo", incarnation_1),
        records.incarnations.put(ALONE, incarnation_1),
    )
    incarnations = records.incarnations.all()
    assert incarnations == {("demo", "A"): incarnation_1, (ALONE, "A"): incarnation_1}
    assert records.incarnations.get("demo", "A") is incarnations["demo", "A"]
    assert records.inventory("demo").jobs["A"] is incarnations["demo", "A"]

    records.write(records.incarnations.drop(ALONE, "A"))
    again = reopened(records, path)

    assert again.incarnations.all() == {("demo", "A"): incarnation_1}
    assert again.incarnations.get(ALONE, "A") is None
    assert again.inventory("nobody").jobs == {}
    again.store.close()
