"""Incarnations and sessions in memory, by scope and by site."""

from __future__ import annotations

from dataclasses import replace

from speck.model.incarnation import Incarnation, Session
from speck.model.job import Job
from speck.model.link import Link
from speck.store.deployed_index import DeployedIndex

LINK = Link("a", "T-1")
JOB = Job("A", "a", LINK, Link("a", "T-2"), "tcp://a:1883", "tcp://a:1883", "x.A", "f" * 64)
OTHER = replace(JOB, job_name="B", site="b")


def test_incarnations_are_found_by_scope_and_by_site() -> None:
    index = DeployedIndex()
    first, second, third = (
        Incarnation(OTHER, 1, "1"),
        Incarnation(JOB, 1, "2"),
        Incarnation(JOB, 1, "3"),
    )
    index.put_incarnation("d", "B", first)
    index.put_incarnation("d", "A", second)
    index.put_incarnation("c", "A", third)
    assert list(index.all_incarnations()) == [("c", "A"), ("d", "A"), ("d", "B")]
    assert index.incarnations("d") == {"A": second, "B": first}
    assert index.incarnations_at("a") == {("d", "A"): second, ("c", "A"): third}
    assert index.incarnation("c", "A") is third
    assert index.incarnation("c", "B") is None


def test_one_that_moves_is_found_at_its_new_site_only() -> None:
    index = DeployedIndex()
    index.put_incarnation("c", "A", Incarnation(JOB, 1, "1"))
    before = index.all_incarnations()
    moved = Incarnation(replace(JOB, site="b"), 2, "2")
    at_a, at_b = index.writes_at("a"), index.writes_at("b")
    index.put_incarnation("c", "A", moved)
    assert index.incarnations_at("a") == {}
    assert index.incarnations_at("b") == {("c", "A"): moved}
    assert index.all_incarnations() == {("c", "A"): moved}
    assert before[("c", "A")].attempt == 1
    assert (index.writes_at("a"), index.writes_at("b")) > (at_a, at_b)


def test_reading_all_without_a_write_in_between_copies_nothing() -> None:
    index = DeployedIndex()
    index.put_incarnation("c", "A", Incarnation(JOB, 1, "1"))
    once = index.all_incarnations()
    assert index.all_incarnations() is once
    index.put_incarnation("c", "A", None)
    assert index.all_incarnations() == {}
    assert index.incarnations_at("a") == {}
    index.put_incarnation("c", "A", None)  # it was deleted before


def test_sessions_are_found_on_the_site_of_their_broker() -> None:
    index = DeployedIndex()
    one, two = Session("x", LINK, "a", "A"), Session("y", LINK, "b", "B")
    index.put_session("c", "s/1", one)
    index.put_session("c", "s/2", two)
    assert index.sessions_on("a") == [("c", one)]
    assert index.sessions("c") == [one, two]
    assert index.all_sessions() == [("c", one), ("c", two)]
    index.put_session("c", "s/1", None)
    assert index.sessions_on("a") == []
    assert index.session("c", "s/2") is two


def test_what_concerns_a_link_a_client_id_or_a_jar_is_found_by_it() -> None:
    index = DeployedIndex()
    index.put_session("d", "s/1", Session("x", LINK, "a", "A"))
    index.put_session("c", "s/2", Session("x", LINK, "b", "A"))
    index.put_incarnation("c", "A", Incarnation(JOB, 1, "1"))
    assert [scope for scope, _ in index.sessions_of(LINK)] == ["c", "d"]
    assert [scope for scope, _ in index.sessions_of("x")] == ["c", "d"]
    assert [key for key, _ in index.writing(JOB.sink)] == [("c", "A")]
    assert index.uses_jar(JOB.jar)
    before = index.writes
    index.put_incarnation("c", "A", Incarnation(replace(JOB, sink=LINK, jar="0" * 64), 2, "2"))
    assert index.writes != before
    assert index.writing(JOB.sink) == []
    assert [key for key, _ in index.writing(LINK)] == [("c", "A")]
    assert not index.uses_jar(JOB.jar)
    index.put_session("d", "s/1", None)
    assert [scope for scope, _ in index.sessions_of(LINK)] == ["c"]
