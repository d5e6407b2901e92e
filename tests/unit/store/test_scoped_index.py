"""Records in memory, by scope, site and other marks."""

from __future__ import annotations

from dataclasses import replace

from speck.model.incarnation import Incarnation, Session
from speck.store.scoped_index import ScopedIndex
from tests.sample_job import JOB, LINK

OTHER = replace(JOB, job_name="B", site="b")


def put(index: ScopedIndex[Incarnation], scope: str, incarnation: Incarnation) -> None:
    job = incarnation.job
    index.put((scope, job.job_name), incarnation, job.site, job.sink, job.artifact)


def test_values_are_found_by_scope_and_by_site() -> None:
    index = ScopedIndex[Incarnation]()
    first, second, third = (
        Incarnation(OTHER, 1, "1"),
        Incarnation(JOB, 1, "2"),
        Incarnation(JOB, 1, "3"),
    )
    put(index, "d", first)
    put(index, "d", second)
    put(index, "c", third)
    assert list(index.all()) == [("c", "A"), ("d", "A"), ("d", "B")]
    assert index.of_scope("d") == {"A": second, "B": first}
    assert index.at_site("a") == {("d", "A"): second, ("c", "A"): third}
    assert index.get("c", "A") is third
    assert index.get("c", "B") is None


def test_one_that_moves_is_found_at_its_new_site_only() -> None:
    index = ScopedIndex[Incarnation]()
    put(index, "c", Incarnation(JOB, 1, "1"))
    before = index.all()
    moved = Incarnation(replace(JOB, site="b"), 2, "2")
    at_a, at_b = index.writes_at("a"), index.writes_at("b")
    put(index, "c", moved)
    assert index.at_site("a") == {}
    assert index.at_site("b") == {("c", "A"): moved}
    assert index.all() == {("c", "A"): moved}
    assert before[("c", "A")].attempt == 1
    assert (index.writes_at("a"), index.writes_at("b")) > (at_a, at_b)


def test_reading_all_without_a_write_in_between_copies_nothing() -> None:
    index = ScopedIndex[Incarnation]()
    put(index, "c", Incarnation(JOB, 1, "1"))
    once = index.all()
    assert index.all() is once
    index.drop(("c", "A"))
    assert index.all() == {}
    assert index.at_site("a") == {}
    index.drop(("c", "A"))  # it was deleted before


def test_what_has_a_mark_is_found_by_it() -> None:
    index = ScopedIndex[Session]()
    for scope, site in (("d", "a"), ("c", "b")):
        session = Session("x", LINK, site, "A")
        index.put((scope, site), session, site, session.link, session.client_id)
    assert [key for key, _ in index.marked(LINK)] == [("c", "b"), ("d", "a")]
    assert [key for key, _ in index.marked("x")] == [("c", "b"), ("d", "a")]
    assert index.has_mark("x") and not index.has_mark("y")
    index.drop(("d", "a"))
    assert [key for key, _ in index.marked(LINK)] == [("c", "b")]


def test_one_that_changes_loses_its_former_marks() -> None:
    index = ScopedIndex[Incarnation]()
    put(index, "c", Incarnation(JOB, 1, "1"))
    before = index.writes
    put(index, "c", Incarnation(replace(JOB, sink=LINK, artifact="0" * 64), 2, "2"))
    assert index.writes != before
    assert index.marked(JOB.sink) == []
    assert [key for key, _ in index.marked(LINK)] == [("c", "A")]
    assert not index.has_mark(JOB.artifact)
