"""Which jobs are judged unhealthy, and when they are repaired."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from speck.model.engines import ArtifactKind, EngineAt
from speck.model.incarnation import StartState
from speck.model.job_state import JobState
from speck.model.observation import EngineJob, EngineView, RunState, Slots
from speck.monitor.health import Limits, Memory, RepairDecision, Watched, decide, wants_progress
from speck.monitor.stalls import Progress

A = Watched("c", "A", EngineAt("edge-a", ArtifactKind.JAR), "a1")
B = Watched("c", "B", EngineAt("edge-a", ArtifactKind.JAR), "b1")
Z = Watched("c", "Z", EngineAt("cloud", ArtifactKind.JAR), "z1")


def engine(
    *jobs: tuple[str, RunState], free: int | None = 8, total: int | None = None
) -> EngineView:
    """Slots that are in use are those of the jobs, unless there are more in `total`."""
    slots = None if free is None else Slots(total or free + len(jobs), free)
    return EngineView("2.3", slots, {i: EngineJob(i, i, state) for i, state in jobs})


def runs(*ids: str, free: int | None = 8, total: int | None = None) -> EngineView:
    return engine(*((i, RunState.RUNNING) for i in ids), free=free, total=total)


@dataclass
class Watcher:
    """Looks one after the other, and what they remember."""

    sites: dict[str, EngineView | None] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    now: float = 0.0
    limits: Limits = field(default_factory=Limits)

    def look(
        self,
        *jobs: Watched,
        after: float = 5.0,
        progress: Mapping[tuple[str, str], Progress] | None = None,
        **sites: EngineView | None,
    ) -> RepairDecision:
        self.now += after
        self.sites |= {name.replace("_", "-"): view for name, view in sites.items()}
        decision = decide(self.now, self.sites, jobs, progress or {}, self.memory, self.limits)
        self.memory = decision.memory
        return decision

    def state(self, job: Watched) -> JobState:
        return self.memory.jobs[job.key].state


def test_what_runs_is_left_alone() -> None:
    watcher = Watcher()

    decision = watcher.look(A, B, edge_a=runs("a1", "b1"))

    assert decision.repair == {}
    assert decision.due is None
    assert watcher.state(A) is watcher.state(B) is JobState.RUNNING


def test_states_of_the_engine() -> None:
    texts = {
        RunState.STARTING: JobState.DEPLOYING,
        RunState.RESTARTING: JobState.RESTARTING,
        RunState.STOPPING: JobState.STOPPING,
        RunState.FAILED: JobState.FAILED,
        RunState.CANCELED: JobState.STOPPED,
        RunState.FINISHED: JobState.STOPPED,
    }
    for reported, state in texts.items():
        watcher = Watcher()
        decision = watcher.look(A, edge_a=engine(("a1", reported)))
        assert watcher.state(A) is state
        assert bool(decision.repair) is state.broken


def test_a_lost_job_is_repaired_once_it_was_unknown_for_a_second() -> None:
    watcher = Watcher()

    decision = watcher.look(A, edge_a=runs())
    assert decision.repair == {}
    assert decision.due == watcher.now + 1

    assert watcher.look(A, after=1).repair == {"c": {"A"}}


def test_a_lost_job_waits_for_the_slots_of_its_site() -> None:
    watcher = Watcher()
    wide = replace(A, slots=2)
    watcher.look(wide, B, edge_a=runs(free=0))

    assert watcher.look(wide, B).repair == {}
    assert watcher.look(wide, B, edge_a=runs(free=2)).repair == {"c": {"A"}}
    again = replace(wide, engine_job_id="a2")
    assert watcher.look(again, B, edge_a=runs("a2", free=0)).repair == {}
    assert watcher.look(again, B, edge_a=runs("a2", free=1)).repair == {"c": {"B"}}


def test_a_lost_job_waits_for_the_end_of_what_runs_on_without_its_master() -> None:
    watcher = Watcher()
    wide = replace(A, slots=2)
    watcher.look(wide, B, edge_a=runs("b1", free=5, total=8))  # 3 in use, B needs 1

    assert watcher.look(wide, B).repair == {}
    assert watcher.look(wide, B, edge_a=runs("b1", free=7, total=8)).repair == {"c": {"A"}}


def test_but_not_for_ever() -> None:
    watcher = Watcher()
    watcher.look(A, B, edge_a=runs("b1", free=6, total=8))

    assert watcher.look(A, B, after=watcher.limits.zombies_for - 1).repair == {}
    assert watcher.look(A, B, after=1).repair == {"c": {"A"}}


def test_nor_beside_a_job_of_others_whose_slots_are_not_known() -> None:
    watcher = Watcher()
    watcher.look(A, edge_a=runs("foreign", free=1, total=8))

    assert watcher.look(A).repair == {"c": {"A"}}


def test_nor_when_it_has_failed_with_its_master_there() -> None:
    watcher = Watcher()

    assert watcher.look(A, edge_a=engine(("a1", RunState.FAILED), free=5, total=8)).repair == {
        "c": {"A"}
    }


def test_a_start_that_failed_has_its_second_too_once_its_engine_does_not_know_it() -> None:
    """A master that is restarted may recover the job."""
    watcher = Watcher()
    failed = replace(A, start=StartState.ACCEPTED, has_base=True, error="cannot start A: bad")
    assert watcher.look(failed, edge_a=engine(("a1", RunState.STARTING))).repair == {}

    assert watcher.look(failed, edge_a=runs()).repair == {}
    assert watcher.state(failed) is JobState.FAILED
    assert watcher.look(failed, after=1).repair == {"c": {"A"}}


def test_what_never_ran_is_repaired_at_once_when_its_engine_lists_it_as_cancelled() -> None:
    watcher = Watcher()
    void = replace(A, start=StartState.VOID, has_base=True)
    assert watcher.look(void, edge_a=engine(("a1", RunState.CANCELED))).repair == {"c": {"A"}}
    assert watcher.state(void) is JobState.FAILED


def test_slots_that_are_not_known_hold_up_nothing() -> None:
    watcher = Watcher()
    watcher.look(A, B, edge_a=runs(free=None))

    assert watcher.look(A, B).repair == {"c": {"A", "B"}}


def test_slots_are_given_once_over_all_scopes() -> None:
    watcher = Watcher()
    other = Watched("d", "D", EngineAt("edge-a", ArtifactKind.JAR), "d1")
    watcher.look(A, other, edge_a=runs(free=1))

    assert watcher.look(A, other).repair == {"c": {"A"}}


def test_silence_is_no_fault() -> None:
    watcher = Watcher()
    watcher.look(A, Z, edge_a=runs("a1"), cloud=runs("z1"), edge_b=runs())

    for _ in range(100):
        assert watcher.look(A, Z, edge_a=None).repair == {}
    assert watcher.state(A) is JobState.UNREACHABLE
    assert watcher.state(Z) is JobState.RUNNING
    assert watcher.memory.silent == {"edge-a": 10.0}

    watcher.look(A, Z, edge_a=runs("a1"))
    assert watcher.state(A) is JobState.RUNNING
    assert watcher.memory.silent == {}


def test_a_site_that_was_not_looked_at_in_time_says_nothing() -> None:
    watcher = Watcher()
    watcher.look(A, edge_a=runs("a1"))
    del watcher.sites["edge-a"]

    assert watcher.look(A).repair == {}
    assert watcher.state(A) is JobState.RUNNING


def test_a_job_that_keeps_failing_is_repaired_less_and_less_often() -> None:
    watcher, attempt, times = Watcher(), 1, []
    while watcher.now < 2000:
        job = replace(A, engine_job_id=f"a{attempt}")
        failed = engine((job.engine_job_id, RunState.FAILED))
        decision = watcher.look(job, after=0.5, edge_a=failed)
        if decision.repair:
            times.append(watcher.now)
            attempt += 1

    gaps = [round(b - a) for a, b in pairwise(times)]
    assert gaps[:9] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert set(gaps[9:]) == {300}


def test_when_something_is_due_is_told() -> None:
    watcher = Watcher()
    decision = watcher.look(A, edge_a=engine(("a1", RunState.FAILED)))
    assert decision.repair == {"c": {"A"}}
    again = replace(A, engine_job_id="a2")

    decision = watcher.look(again, after=0.25, edge_a=engine(("a2", RunState.FAILED)))

    assert decision.repair == {}
    assert decision.due == watcher.now + 0.75


def test_five_minutes_of_running_are_a_new_beginning() -> None:
    watcher = Watcher()
    for attempt in range(1, 6):
        job = replace(A, engine_job_id=f"a{attempt}")
        failed = engine((job.engine_job_id, RunState.FAILED))
        assert watcher.look(job, after=60, edge_a=failed).repair
    job = replace(A, engine_job_id="a6")
    watcher.look(job, edge_a=runs("a6"))
    watcher.look(job, after=299)
    assert watcher.memory.jobs[A.key].repairs == 5
    watcher.look(job, after=2)

    assert watcher.memory.jobs[A.key].repairs == 0


def test_report_only_is_judged_and_never_repaired() -> None:
    watcher = Watcher()
    shown = replace(A, repair=False)
    for _ in range(10):
        decision = watcher.look(shown, edge_a=engine(("a1", RunState.CANCELED)))
        assert (decision.repair, decision.due) == ({}, None)
    assert watcher.state(A) is JobState.STOPPED


def test_a_job_that_is_being_changed_is_not_judged() -> None:
    watcher = Watcher()
    watcher.look(A, edge_a=runs("a1"))
    busy = replace(A, busy=True)

    assert watcher.look(busy, edge_a=runs()).repair == {}
    assert watcher.state(A) is JobState.RUNNING


def test_back_off_outlives_the_change_that_repairs() -> None:
    watcher = Watcher()
    failed = engine(("a1", RunState.FAILED))
    assert watcher.look(A, edge_a=failed).repair
    watcher.look(replace(A, busy=True), after=0.1)
    again = replace(A, engine_job_id="a2")

    assert not watcher.look(again, after=0.1, edge_a=engine(("a2", RunState.FAILED))).repair


def test_what_is_given_up_is_forgotten() -> None:
    watcher = Watcher()
    watcher.look(A, edge_a=runs())

    assert watcher.look().memory.jobs == {}


# -- half of the sites --------------------------------------------------------------------


def lost_and_silent(sites: int, silent: int, *, apart: float = 1.0) -> Watcher:
    """A is lost at a site that answers; others fall silent one after the other."""
    watcher = Watcher()
    watcher.look(A, edge_a=runs("a1"), **{f"s{n}": runs() for n in range(sites - 1)})
    for n in range(silent):
        watcher.look(A, after=apart, **{f"s{n}": None})
    watcher.look(A, edge_a=runs())
    return watcher


def test_nothing_is_repaired_while_half_of_the_sites_are_silent_at_once() -> None:
    for sites, silent in ((3, 2), (4, 2), (5, 3), (2, 1), (3, 1), (5, 2)):
        watcher = lost_and_silent(sites, silent)
        held = silent >= 2 and 2 * silent >= sites
        assert watcher.memory.on_hold is held
        assert bool(watcher.look(A).repair) is not held


def test_it_goes_on_when_they_are_back() -> None:
    watcher = lost_and_silent(3, 2)
    for _ in range(100):
        assert not watcher.look(A).repair

    assert watcher.look(A, s0=runs()).repair == {"c": {"A"}}
    assert not watcher.memory.on_hold


def test_sites_that_answer_do_not_wait_for_ever() -> None:
    watcher = lost_and_silent(3, 2)
    looks = 1
    while not watcher.look(A, after=5.0).repair:
        looks += 1
        assert looks < 200
    assert 110 <= looks <= 121, "ten minutes of looks, one every 5 s"


def test_sites_that_went_at_different_times_hold_up_nothing() -> None:
    assert lost_and_silent(4, 2, apart=61).look(A).repair == {"c": {"A"}}


# -- stalled ------------------------------------------------------------------------------


def looks(
    watcher: Watcher, count: int, *progresses: Progress, after: float = 5.0
) -> list[JobState]:
    """Looks at A, which runs, with one progress after the other."""
    states = []
    for number in range(count):
        progress = {A.key: progresses[min(number, len(progresses) - 1)]}
        watcher.look(A, after=after, progress=progress, edge_a=runs("a1"))
        states.append(watcher.state(A))
    return states


def test_no_checkpoint_for_three_intervals_is_a_stall() -> None:
    watcher = Watcher()
    assert set(looks(watcher, 20, Progress(20.0, 7))) == {JobState.RUNNING, JobState.STALLED}
    assert watcher.memory.jobs[A.key].since == 70.0
    assert watcher.memory.jobs[A.key].stall == "no checkpoint completed for 95 s"

    assert looks(watcher, 1, Progress(20.0, 8)) == [JobState.RUNNING]


def test_a_job_that_never_completed_any_stalls_too() -> None:
    assert looks(Watcher(), 20, Progress(1.0))[-1] is JobState.STALLED


def test_a_long_interval_is_no_stall() -> None:
    watcher = Watcher()
    for number in range(10):
        progresses = [Progress(600.0, number)] * 120
        assert set(looks(watcher, 120, *progresses)) == {JobState.RUNNING}


def test_few_looks_are_no_stall() -> None:
    assert set(looks(Watcher(), 2, Progress(1.0, 7), after=100)) == {JobState.RUNNING}


def test_a_job_without_checkpoints_never_stalls() -> None:
    assert set(looks(Watcher(), 50, Progress(None))) == {JobState.RUNNING}


def fed(count: int, *, taken: int = 5, rate: int = 10, lag: int = 10) -> list[Progress]:
    return [Progress(1.0, n, taken, rate * n, lag * n) for n in range(count)]


def test_input_that_is_not_taken_while_more_comes_is_a_stall() -> None:
    watcher = Watcher()
    states = looks(watcher, 20, *fed(20))

    assert states[:7] == [JobState.RUNNING] * 7
    assert states[-1] is JobState.STALLED
    reason = watcher.memory.jobs[A.key].stall
    assert reason == "took nothing of its input for 95 s while more was sent"


def test_an_idle_link_is_no_stall() -> None:
    progresses = [Progress(1.0, n, 5, 100, 10) for n in range(50)]
    assert set(looks(Watcher(), 50, *progresses)) == {JobState.RUNNING}


def test_a_burst_that_was_taken_before_it_was_told_is_no_stall() -> None:
    """A reader that joined late: its lag is never 0."""
    progresses = [
        Progress(1.0, 1, 5, 100, 95),
        *(Progress(1.0, n, 5, 200, 95) for n in range(2, 50)),
    ]
    assert set(looks(Watcher(), 50, *progresses)) == {JobState.RUNNING}


def test_a_job_that_gets_on_slowly_is_no_stall() -> None:
    progresses = [Progress(1.0, n, n // 4, 100 * n, 90 * n) for n in range(100)]
    assert set(looks(Watcher(), 100, *progresses)) == {JobState.RUNNING}


def test_a_site_that_was_silent_gets_time_to_show_progress() -> None:
    watcher = Watcher()
    looks(watcher, 5, Progress(1.0, 7))
    for _ in range(20):
        watcher.look(A, edge_a=None)

    assert looks(watcher, 3, Progress(1.0, 7)) == [JobState.RUNNING] * 3


def test_a_new_incarnation_begins_anew() -> None:
    watcher = Watcher()
    assert looks(watcher, 20, Progress(1.0, 7))[-1] is JobState.STALLED
    another = replace(A, engine_job_id="a2")
    watcher.look(another, progress={A.key: Progress(1.0)}, edge_a=runs("a2"))

    assert watcher.state(A) is JobState.RUNNING


def test_progress_is_asked_for_about_once_an_interval() -> None:
    watcher = Watcher()
    assert wants_progress(watcher.memory, A.key, 0.0)
    looks(watcher, 1, Progress(600.0, 7))

    assert not wants_progress(watcher.memory, A.key, watcher.now + 599)
    assert wants_progress(watcher.memory, A.key, watcher.now + 600)
    assert not wants_progress(watcher.memory, A.key, watcher.now + 600, intervals=2.0)
    assert wants_progress(watcher.memory, A.key, watcher.now + 1200, intervals=2.0)


def test_of_two_engines_one_may_be_silent() -> None:
    """What runs on the other is judged and repaired as ever; what runs beside takes no slots."""
    watcher = Watcher()
    text = ArtifactKind.TEXT
    woven = Watched("c", "W", EngineAt("edge-a", text), "w1")
    both = replace(runs("a1", "w1", free=1, total=2), beside=frozenset({text}))
    watcher.look(A, woven, edge_a=both)

    silent = replace(both, jobs={}, slots=Slots(2, 2), silent={text: "no answer"})
    decision = watcher.look(A, woven, edge_a=silent)
    assert watcher.state(A) is JobState.LOST
    assert watcher.state(woven) is JobState.UNREACHABLE
    assert decision.memory.partial == {"edge-a"}
    assert not decision.memory.silent, "the site answers"
    assert watcher.look(A, woven).repair == {"c": {"A"}}

    other = replace(both, jobs={}, slots=None, silent={ArtifactKind.JAR: "no answer"})
    decision = watcher.look(replace(A, engine_job_id="a2"), woven, edge_a=other)
    assert watcher.state(woven) is JobState.LOST
    assert watcher.look(replace(A, engine_job_id="a2"), woven).repair == {"c": {"W"}}
    full = replace(both, jobs={}, slots=Slots(1, 0))
    assert watcher.look(woven, edge_a=full).repair == {"c": {"W"}}, "it needs none of those slots"
