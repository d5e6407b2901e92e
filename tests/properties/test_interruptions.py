"""A change may end early at any step, cancelled or superseded, and the next one may want something
else altogether: each record of a publisher outside speck comes out once all the same."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from speck.model.change import ChangeState
from tests.flows import AT_LEAST_ONCE, EXACTLY_ONCE, Flow, Interruption, flow

DELIVERIES = (AT_LEAST_ONCE, EXACTLY_ONCE)
HOW = [
    pytest.param(how, marks=pytest.mark.long if how is Interruption.SUPERSEDED else ())
    for how in Interruption
]
"""A change that is superseded ends as one that is cancelled."""
CHAIN = "a:in>m1 b:m1>out"
THIRD_WIRINGS = [
    (CHAIN, "b:in>m2 a:m2>out", "c:in>m3 d:m3>out"),
    (CHAIN, "b:in>m2 a:m2>out", "c:in>m1 b:m1>out"),
    (CHAIN, "b:in>out", "c:in>out"),
    (CHAIN, "b:in>out", "x:in>m1 b:m1>out"),
    # a job that no revision but the interrupted one knows is to follow
    (CHAIN, "x:in>m2 y:m2>out", "c:in>m3 d:m3>out"),
    # a job that goes on between the same links is replaced
    ("a:in>out", "a@cloud:in>out", "c:in>out"),
    # who is to follow reads behind a job that stays
    (CHAIN, "a:in>m1 x:m1>m2 b:m2>out", "a:in>m1 c:m1>m3 d:m3>out"),
    # who is to follow runs as the reader of the link to which it is to write
    ("a:in>m1 c:m1>m2 d:m2>out", "d:in>m2 b:m2>m3 a:m3>out", "c:in>m1 a:m1>m3 d:m3>out"),
]
"""What runs, what a change turns it into until it ends early, and what is wanted then."""


def change_three_times(
    folder: Path, wirings: Sequence[str], how: Interruption, after: int, delivery: str
) -> bool:
    """Interrupt the second of three changes after so many operations; whether it was done."""
    first, then, third = wirings
    with flow(folder / str(after), delivery=delivery) as stream:
        stream.begin(first)
        state = stream.interrupt(then, how, after)
        stream.complete(third)
        stream.send(3)
        assert stream.find_faults() == {}, (how, after)
        return state is ChangeState.DONE


@pytest.mark.parametrize(
    "delivery", [AT_LEAST_ONCE, pytest.param(EXACTLY_ONCE, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("first", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("wirings", THIRD_WIRINGS, ids=", ".join)
def test_a_third_wiring_takes_what_an_interrupted_change_has_left(
    tmp_path: Path, wirings: Sequence[str], how: Interruption, first: int, delivery: str
) -> None:
    """After each second operation, from the first one on or from the second one on."""
    after = first
    while not change_three_times(tmp_path, wirings, how, after, delivery):
        after += 2
    assert after > 3


@pytest.mark.parametrize("least", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("wirings", THIRD_WIRINGS[:4], ids=", ".join)
def test_what_has_been_left_is_read_though_the_next_change_is_cancelled_too(
    tmp_path: Path, wirings: Sequence[str], how: Interruption, least: int
) -> None:
    """Among others in the middle of the plan in which it is read."""
    first, then, third = wirings
    for after in range(least, 16, 4):
        with flow(tmp_path / str(after)) as stream:
            stream.begin(first)
            stream.interrupt(then, Interruption.CANCELLED, 8)
            stream.interrupt(third, how, after)
            stream.complete("e:in>out")
            stream.send(3)
            assert stream.find_faults() == {}, after


TWICE = [
    ("d:in>m3 a:m3>out", "b:in>m1 c:m1>m3 d:m3>out", 12, "d:in>out", "a:in>out"),
    # a reader that has not begun is wanted in another form, and not again what it was to write to
    (
        "a:in>m3 d:m3>m2 b:m2>out",
        "b:in>m3 c:m3>m2 d:m2>out",
        7,
        "b:in>m2 c:m2>m1 d:m1>out",
        "c:in>out",
    ),
    # what ran before would need a job that runs elsewhere by now
    (
        "a:in>m3 d:m3>m2 b:m2>out",
        "b:in>m3 c:m3>m2 d:m2>out",
        1,
        "b:in>m2 c:m2>m1 d:m1>out",
        "c:in>out",
    ),
]
"""What runs, what it is turned into until the change is cancelled after so many operations, what
another change turns it into until it ends early, too, and what is wanted then."""


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("first", "second", "after", "third", "last"), TWICE)
def test_a_wiring_takes_what_two_interrupted_changes_have_left(
    tmp_path: Path, first: str, second: str, after: int, third: str, last: str, how: Interruption
) -> None:
    for later in (5, 8, 10, 12):
        with flow(tmp_path / str(later), delivery=EXACTLY_ONCE) as stream:
            stream.begin(first)
            stream.interrupt(second, Interruption.CANCELLED, after)
            stream.interrupt(third, how, later)
            stream.complete(last)
            stream.send(3)
            assert stream.find_faults() == {}, later


# -- chains at random ---------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A change to a wiring, and how it ends early; None: it does not."""

    wiring: str
    how: Interruption | None
    after: int
    dies: int | None = None
    """Its engine loses all its jobs after so many calls from its end on; None: it does not."""


@st.composite
def chains(draw: st.DrawFn) -> str:
    """One to three jobs in line, of four names, over three links."""
    names = draw(st.permutations("abcd"))[: draw(st.integers(1, 3))]
    between = draw(st.permutations(("m1", "m2", "m3")))[: len(names) - 1]
    sources, sinks = ("in", *between), (*between, "out")
    return " ".join(f"{n}:{s}>{t}" for n, s, t in zip(names, sources, sinks, strict=True))


steps = st.builds(
    Step, chains(), st.sampled_from([None, None, None, *Interruption, *Interruption]),
    st.integers(1, 18),
)  # fmt: skip


def change_often(sequence: Sequence[Step], delivery: str, last: str) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        flow(Path(folder) / "trial", delivery=delivery) as stream,
    ):
        stream.begin(sequence[0].wiring)
        for step in sequence[1:]:
            _make(stream, step)
            stream.send(3)
        stream.complete(last)
        stream.send(3)
        assert stream.find_faults() == {}


def _make(stream: Flow, step: Step) -> None:
    if step.how is None:
        stream.complete(step.wiring)
    else:
        stream.interrupt(step.wiring, step.how, step.after)
    if step.dies is not None:
        stream.let_die(step.dies)


def _search(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


INTERRUPTED_TWICE = [
    Step("a:in>out", None, 1),
    Step("b:in>m1 c:m1>out", Interruption.CANCELLED, 5),
    Step("c:in>m1 a:m1>out", Interruption.CANCELLED, 12),
]
"""The link has gone from one reader to a second and a third, and the first one comes back."""
MIXED = [
    Step("a:in>m1 c:m1>m3 b:m3>out", None, 1),
    Step("d:in>m1 a:m1>m3 c:m3>out", Interruption.CANCELLED, 11),
]
"""What comes first is read by jobs as they ran: one of them, which was to follow a drained reader,
is not to be started in its new form."""
RELEASED = [
    Step("b:in>m1 c:m1>out", None, 1),
    Step("a:in>m1 b:m1>out", Interruption.CANCELLED, 7),
    Step("a:in>out", Interruption.CANCELLED, 1),
]
"""The sessions downstream of a reader that may have to read first are kept until another one has
taken its place."""
HANDED_OVER = [
    Step("d:in>out", None, 1),
    Step("b:in>m2 a:m2>m1 d:m1>out", Interruption.CANCELLED, 8),
    Step("c:in>m2 d:m2>m1 a:m1>out", Interruption.CANCELLED, 9),
    Step("c:in>m2 d:m2>m1 a:m1>out", Interruption.CANCELLED, 9),
]
"""A reader that never began holds what the one before it has taken: that is no queue."""
SILENT = [
    Step("a:in>m1 c:m1>m3 b:m3>out", None, 1),
    Step("a:in>out", Interruption.SUPERSEDED, 10),
]
"""A job ends while its site is silent, and counts as running when the next plan is made."""

ARRIVED = [
    Step("b:in>out", None, 1),
    Step("a:in>m2 b:m2>m3 d:m3>out", Interruption.UNANSWERED, 7),
]
"""Starts without an answer have arrived, and these jobs publish until they are fenced."""
ARRIVED_AT_THE_END = [
    Step("d:in>m3 a:m3>out", None, 1),
    Step("b:in>out", Interruption.UNANSWERED, 5),
]

ASKED_TO_STOP = [
    Step("a:in>out", None, 1),
    Step("b:in>m2 a:m2>out", Interruption.UNANSWERED, 5),
    Step("d:in>m2 c:m2>m3 a:m3>out", Interruption.UNANSWERED, 13),
]
"""A reader has stopped before the session is reserved that is to follow it."""

MOVED_AWAY = [
    Step("b:in>m2 a:m2>out", None, 1),
    Step("d:in>m3 c:m3>m1 a:m1>out", Interruption.SUPERSEDED, 7),
    Step("b:in>m3 a:m3>out", Interruption.SUPERSEDED, 2),
]
"""A job that first reads another link is no way out for those that are to read before it."""

LEFT_FOR_ANOTHER = [
    Step("c:in>m2 a:m2>out", None, 1),
    Step("c:in>out", Interruption.SUPERSEDED, 5),
    Step("d:in>m3 b:m3>m2 c:m2>out", Interruption.SUPERSEDED, 2),
    Step("c:in>m3 b:m3>m1 d:m1>out", Interruption.UNANSWERED, 12),
]
"""What came since a reader was drained is in the session of its follower: nobody is asked."""

LEFT_BEHIND = [
    Step("a:in>out", None, 1),
    Step("d:in>m1 a:m1>out", None, 1),
    Step("d:in>m2 b:m2>m3 a:m3>out", Interruption.UNANSWERED, 1),
]
"""Both jobs have to read first: the second one stays behind the first one for that time."""


@_search(15)
@example(LEFT_BEHIND, EXACTLY_ONCE, "a:in>out")
@example(INTERRUPTED_TWICE, AT_LEAST_ONCE, "a:in>out")
@example(MIXED, AT_LEAST_ONCE, "c:in>out")
@example(RELEASED, AT_LEAST_ONCE, "c:in>out")
@example(HANDED_OVER, AT_LEAST_ONCE, "c:in>m1 b:m1>out")
@example(SILENT, AT_LEAST_ONCE, "a:in>m3 b:m3>out")
@example(ARRIVED, AT_LEAST_ONCE, "a:in>m1 b:m1>m2 c:m2>out")
@example(ARRIVED_AT_THE_END, AT_LEAST_ONCE, "b:in>m3 a:m3>m2 c:m2>out")
@example(ASKED_TO_STOP, AT_LEAST_ONCE, "b:in>m3 d:m3>out")
@example(MOVED_AWAY, AT_LEAST_ONCE, "c:in>m3 b:m3>m1 d:m1>out")
@example(LEFT_FOR_ANOTHER, EXACTLY_ONCE, "d:in>m3 b:m3>out")
@given(st.lists(steps, min_size=2, max_size=4), st.sampled_from(DELIVERIES), chains())
def test_every_record_comes_out_once_whatever_is_interrupted(
    sequence: list[Step], delivery: str, last: str
) -> None:
    change_often(sequence, delivery, last)


@pytest.mark.long
@_search(600)
@given(st.lists(steps, min_size=2, max_size=6), st.sampled_from(DELIVERIES), chains())
def test_every_record_comes_out_once_whatever_is_interrupted_long(
    sequence: list[Step], delivery: str, last: str
) -> None:
    change_often(sequence, delivery, last)


# -- engines that lose their jobs ---------------------------------------------------------

mortal_steps = st.builds(
    Step,
    chains(),
    st.sampled_from([None, *Interruption, Interruption.UNANSWERED]),
    st.integers(0, 16),
    st.sampled_from([None, 0, 0, 1, 2, 4, 7, 11, 16, 23]),
)
SENT_AGAIN = [
    Step("c:in>out", None, 1),
    Step("a:in>out", None, 1),
    Step("a:in>m1 c:m1>m2 b:m2>out", Interruption.UNANSWERED, 6, 0),
]
"""A start whose answer was lost has run, and is not sent again from an older state."""
TAKEN_OVER = [
    Step("c:in>m1 b:m1>m3 a:m3>out", None, 1),
    Step("a:in>out", Interruption.UNANSWERED, 10, 0),
]
"""The follower, whose start was not answered, has taken what waits for the former reader."""
HANDED_OVER_BEFORE = [
    Step("c:in>m1 a:m1>out", None, 1),
    Step("d:in>m2 c:m2>out", Interruption.SUPERSEDED, 8, 0),
]
"""A job does not come back to a link that an interrupted change has handed over."""
LEFT_BEFORE = [
    Step("b:in>m3 a:m3>out", None, 1),
    Step("b:in>m1 c:m1>m2 d:m2>out", Interruption.SUPERSEDED, 9, 0),
]
"""A job does not come back to write to a link whose reader an interrupted change has removed."""
LOST_BETWEEN = [
    Step("d:in>m1 b:m1>out", None, 1),
    Step("c:in>m1 d:m1>m3 b:m3>out", None, 1, 0),
]
"""The follower of a reader that was lost has all that comes from then on."""
LOST_AT_TWO_LINKS = [
    Step("c:in>out", None, 1),
    Step("b:in>m3 a:m3>m2 c:m2>out", Interruption.UNANSWERED, 1, 0),
]
"""A reader that was lost goes on where it was before it reads another link."""

LOST_AS_IT_READ = [
    Step("b:in>m1 c:m1>m3 a:m3>out", None, 1),
    Step("a:in>m3 c:m3>m2 b:m2>out", Interruption.UNANSWERED, 14, 6),
]
"""A reader that is lost while it reads first goes on with that before another one follows it."""

HANDED_BACK_IN_VAIN = [
    Step("b:in>m3 c:m3>out", None, 1),
    Step("a:in>m3 b:m3>m2 c:m2>out", Interruption.CANCELLED, 15, 14),
    Step("c:in>m3 d:m3>m2 b:m2>out", Interruption.UNANSWERED, 13, 0),
    Step("b:in>m3 d:m3>m2 c:m2>out", Interruption.UNANSWERED, 2, 0),
]
"""A job whose link another one has does not come back before it was handed back."""

LEFT_BY_ITS_PRODUCERS = [
    Step("d:in>m3 c:m3>out", None, 1),
    Step("c:in>out", Interruption.UNANSWERED, 12, 0),
    Step("a:in>out", Interruption.UNANSWERED, 5, 9),
    Step("d:in>m2 b:m2>out", Interruption.SUPERSEDED, 13, 2),
]
"""A reader that is lost after its producer has gone elsewhere takes first what that has sent."""


@_search(10)
@example(SENT_AGAIN, AT_LEAST_ONCE, "d:in>m2 b:m2>m1 c:m1>out")
@example(TAKEN_OVER, AT_LEAST_ONCE, "c:in>m1 b:m1>m3 a:m3>out")
@example(HANDED_OVER_BEFORE, AT_LEAST_ONCE, "d:in>m3 b:m3>m1 a:m1>out")
@example(LEFT_BEFORE, EXACTLY_ONCE, "a:in>m1 b:m1>m2 c:m2>out")
@example(LOST_BETWEEN, EXACTLY_ONCE, "c:in>m1 a:m1>out")
@example(LOST_AT_TWO_LINKS, AT_LEAST_ONCE, "a:in>m2 d:m2>out")
@example(LOST_AS_IT_READ, AT_LEAST_ONCE, "c:in>out")
@example(HANDED_BACK_IN_VAIN, EXACTLY_ONCE, "a:in>m3 b:m3>out")
@example(LEFT_BY_ITS_PRODUCERS, AT_LEAST_ONCE, "c:in>m3 d:m3>out")
@given(st.lists(mortal_steps, min_size=2, max_size=2), st.sampled_from(DELIVERIES), chains())
def test_every_record_comes_out_once_though_an_engine_loses_its_jobs(
    sequence: list[Step], delivery: str, last: str
) -> None:
    """Among others those of a change whose last call it has carried out without an answer."""
    change_often(sequence, delivery, last)


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("last", ["b:in>m3 c:m3>m2 a:m2>out", "c:in>m1 a:m1>out"])
def test_a_start_that_has_arrived_is_not_sent_again_to_an_engine_that_loses_its_jobs(
    tmp_path: Path, last: str, delivery: str
) -> None:
    """It would begin anew from an older state, under numbers that its readers have taken."""
    for after in (5, 6, 7):
        with flow(tmp_path / str(after), delivery=delivery) as stream:
            stream.begin("b:in>out")
            stream.interrupt("b:in>m3 c:m3>m2 a:m2>out", Interruption.UNANSWERED, after)
            stream.let_die(0, {"submit"})
            stream.complete(last)
            stream.send(3)
            assert stream.find_faults() == {}, after
