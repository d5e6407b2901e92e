"""The judge, whatever is known of a job."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from speck.model.incarnation import EndState, StartState
from speck.model.job import DesiredState
from speck.model.job_change import Action
from speck.model.job_state import JobState
from speck.model.observation import RunState
from speck.model.plan_outline import OperationState
from speck.monitor.judge import Facts, JobFinding, Sight, Work, judge

TEXTS = st.none() | st.just("bad")
OPERATIONS = st.frozensets(st.sampled_from(OperationState), min_size=1)
FINDINGS = st.builds(
    JobFinding,
    stall=TEXTS,
    failure=TEXTS,
    failures=st.integers(0, 3),
    waits=TEXTS,
    link_problem=TEXTS,
    link_stalls=st.booleans(),
    was_stopped=st.booleans(),
)
FACTS = st.builds(
    Facts,
    wanted=st.sampled_from(DesiredState),
    start=st.none() | st.sampled_from(StartState),
    end=st.sampled_from(EndState),
    has_base=st.booleans(),
    work=st.none() | st.builds(Work, st.sampled_from(Action), OPERATIONS),
    error=TEXTS,
    observed=st.sampled_from([*RunState, *Sight]),
    finding=FINDINGS,
)


@given(FACTS)
def test_every_job_has_a_state_and_the_same_facts_the_same_one(facts: Facts) -> None:
    assert judge(facts) == judge(replace(facts))
    assert isinstance(judge(facts).state, JobState)


@given(FACTS)
def test_only_the_word_of_its_engine_makes_a_job_lost(facts: Facts) -> None:
    if judge(facts).momentary is JobState.LOST:
        assert facts.observed is Sight.ABSENT


@given(FACTS)
def test_of_a_silent_engine_nothing_is_concluded(facts: Facts) -> None:
    """A site that does not answer makes no running job broken."""
    runs = replace(facts, start=StartState.CONFIRMED, end=EndState.NONE, observed=Sight.SILENT)
    assert judge(runs).momentary is JobState.UNREACHABLE
    assert not judge(runs).momentary.broken


@given(FACTS)
def test_before_the_first_poll_nothing_is_claimed_about_an_engine(facts: Facts) -> None:
    unseen = replace(facts, observed=Sight.UNSEEN, work=None)
    others = (replace(unseen, observed=each) for each in RunState)
    if judge(unseen).momentary is not JobState.UNKNOWN:  # it follows from what is stored
        assert {judge(other).momentary for other in others} == {judge(unseen).momentary}


@given(FACTS, FINDINGS, st.booleans())
def test_a_change_at_work_has_the_last_word_and_alters_nothing_at_the_engine(
    facts: Facts, finding: JobFinding, has_work: bool
) -> None:
    facts = facts if has_work else replace(facts, work=None)
    alone = judge(replace(facts, work=None))
    assert judge(facts).momentary is alone.momentary
    if judge(facts).state is not alone.state:
        assert facts.work is not None
        assert judge(replace(facts, finding=finding)).state is judge(facts).state


@given(FACTS)
def test_what_a_person_stopped_or_what_has_finished_is_never_called_running(facts: Facts) -> None:
    over = replace(facts, start=StartState.CONFIRMED, end=EndState.ENDED, work=None)
    assert judge(over).state in (JobState.STOPPED, JobState.FAILED)
    assert judge(replace(over, error=None)).state is JobState.STOPPED
