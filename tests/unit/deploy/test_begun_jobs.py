"""What holds of sessions once an incarnation has begun, whoever noticed it."""

from __future__ import annotations

from dataclasses import replace

from speck.deploy.begun_jobs import begin_sessions, by_client_id
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation, Session, StartState
from speck.model.job import Job
from tests.unit.deploy.planner.plans import INSTALLATION, job

A, B, LEFT = job("A", "edge-a/in", "edge-a/x"), job("B", "edge-a/in", "edge-a/y"), "left"


def session(of: Job) -> Session:
    own = source_client_id(INSTALLATION, of.job_name, of.source)
    return Session(own, of.source, of.source_site, of.job_name)


def test_its_own_session_is_read_and_lacks_nothing_any_more() -> None:
    there = by_client_id([replace(session(A), remade=True), session(B)])
    (changed,) = begin_sessions(INSTALLATION, Incarnation(A, 1, "1" * 32), there).values()
    assert changed == replace(session(A), job=A, begun=True)


def test_the_cut_behind_which_it_begins_is_committed() -> None:
    """Records are taken from the new sessions from now on; one whose reader starts later has not
    begun there."""
    there = replace(session(B), begun=True, instead_of=LEFT)
    left = Session(LEFT, A.source, "edge-a", "old", begun=True)
    commits = ((session(A).client_id, A, False), (there.client_id, B, True), ("gone", B, False))
    begun = Incarnation(A, 1, "1" * 32, StartState.REQUESTED, commits=commits)
    sessions = by_client_id([session(A), there, left])
    assert begin_sessions(INSTALLATION, begun, sessions) == {
        session(A).client_id: replace(session(A), job=A, begun=True, committed=True),
        there.client_id: replace(session(B), job=B, committed=True),
        LEFT: replace(left, instead_of=there.client_id),
    }


def test_a_session_that_is_drained_or_not_reserved_is_left_alone() -> None:
    commits = ((session(B).client_id, B, False),)
    begun = Incarnation(A, 1, "1" * 32, commits=commits)
    for there in (replace(session(B), drained=True), replace(session(B), reserved=False)):
        assert begin_sessions(INSTALLATION, begun, by_client_id([there])) == {}
